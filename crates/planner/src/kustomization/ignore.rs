//! Fields that a Kustomization leaves to others, as Flux's `ignore` does. They are no drift. If their object is applied for another reason, such a field is left out if
//! another applier owns it, and applied otherwise.
//!
//! Fields that identify the object or its applier can't be ignored. Flux writes null for an ignored field without an owner; Tenure leaves it out.

use std::borrow::Cow;

use kustomize::ObjectSelector;
use serde_json::{Value, json};
use tenure_api::KustomizationSpec;
use tenure_api::digest::{digest_bytes, digest_value};
use tenure_api::metadata::{KUSTOMIZE_CONTROLLER, OWNER_NAME, OWNER_NAMESPACE};

use super::desired::write_label;
use crate::fields;
use crate::object::Object;
use crate::overlay::make_patch_target;
use crate::pointer::Pointer;

/// The parsed rules of `spec.ignore`.
#[derive(Debug, Default)]
pub(super) struct Ignored {
    rules: Vec<Rule>,
    /// The digest of the rules; nothing without rules.
    digest: Option<String>,
}

/// A rule of `spec.ignore`: the paths, and the objects for which they are ignored.
#[derive(Debug)]
struct Rule {
    target: Option<ObjectSelector>,
    paths: Vec<Pointer>,
}

impl Ignored {
    /// Reads the rules.
    ///
    /// # Errors
    /// A message that names the field and its problem.
    pub(super) fn from_spec(spec: &KustomizationSpec) -> Result<Self, String> {
        let read = |(index, rule): (usize, &tenure_api::kustomization::IgnoreRule)| {
            let field = format!("spec.ignore[{index}]");
            let path = |(at, text): (usize, &String)| {
                let pointer = Pointer::parse(text);
                let pointer = pointer.and_then(check_reach);
                pointer.map_err(|why| format!("{field}.paths[{at}]: {text:?} {why}"))
            };
            let target = rule
                .target
                .as_ref()
                .map(|target| ObjectSelector::new(&make_patch_target(target)));
            Ok(Rule {
                paths: rule.paths.iter().enumerate().map(path).collect::<Result<_, _>>()?,
                target: target.transpose().map_err(|why| format!("{field}.target: {why}"))?,
            })
        };
        let rules = spec.ignore.iter().enumerate().map(read);
        Ok(Self {
            rules: rules.collect::<Result<_, String>>()?,
            digest: (!spec.ignore.is_empty()).then(|| digest_value(&json!(spec.ignore))),
        })
    }

    /// Digests a desired object together with the rules: an object that matched under other rules may not match under these.
    pub(super) fn digest_desired(&self, object: &Value) -> String {
        let of_object = digest_value(object);
        match &self.digest {
            Some(of_rules) => digest_bytes(format!("{of_object} {of_rules}").as_bytes()),
            None => of_object,
        }
    }

    /// Lists the ignored paths of the rules whose target matches this object.
    fn list_paths(&self, object: &Value) -> Vec<&Pointer> {
        let fits = |rule: &&Rule| rule.target.as_ref().is_none_or(|target| target.fits(object));
        self.rules.iter().filter(fits).flat_map(|rule| &rule.paths).collect()
    }

    /// Returns a state of an object without the fields that are left to others in an object which looks like `model`; the labels of the applier stay.
    pub(super) fn strip_ignored<'v>(&self, model: &Value, object: &'v Value) -> Cow<'v, Value> {
        let paths = self.list_paths(model);
        if paths.iter().all(|path| path.find(object).is_none()) {
            return Cow::Borrowed(object);
        }
        let mut stripped = object.clone();
        for path in paths {
            path.remove(&mut stripped);
        }
        restore_labels(&mut stripped, object);
        Cow::Owned(stripped)
    }

    /// Returns the part of a desired object to apply to an existing one, given the result of its dry-run; nothing if the whole object is to be applied.
    pub(super) fn find_part_to_apply(&self, desired: &Object, live: &Value, dry_run: &Value) -> Option<Object> {
        let another = |path: &&Pointer| path.find(live) != path.find(dry_run);
        let drifted: Vec<&Pointer> = self.list_paths(dry_run).into_iter().filter(another).collect();
        if drifted.is_empty() {
            return None;
        }
        let mut payload = desired.0.clone();
        let is_theirs = |path: &&Pointer| fields::is_applied_by_another(live, path, KUSTOMIZE_CONTROLLER);
        let (theirs, ours): (Vec<&Pointer>, Vec<&Pointer>) = drifted.into_iter().partition(is_theirs);
        // First, fields are left out as in Flux.
        for path in theirs {
            path.remove(&mut payload);
        }
        for path in ours {
            match path.find(live) {
                Some(value) => path.replace(&mut payload, value.clone()),
                None => path.remove(&mut payload),
            }
        }
        restore_labels(&mut payload, &desired.0);
        Some(Object(payload))
    }
}

/// Refuses fields that a rule may not leave out.
fn check_reach(pointer: Pointer) -> Result<Pointer, &'static str> {
    let steps: Vec<&str> = pointer.steps().iter().map(String::as_str).collect();
    match steps.as_slice() {
        ["apiVersion" | "kind"] | ["metadata"] | ["metadata", "name" | "namespace"] => {
            Err("tells which object it is, and can't be left to others")
        }
        ["metadata", "labels", OWNER_NAME | OWNER_NAMESPACE] => {
            Err("tells who applied the object, and can't be left to others")
        }
        _ => Ok(pointer),
    }
}

/// Restores the labels that name the applier of an object.
fn restore_labels(object: &mut Value, before: &Value) {
    let Some(labels) = before.get("metadata").and_then(|metadata| metadata.get("labels")) else {
        return;
    };
    for key in [OWNER_NAME, OWNER_NAMESPACE] {
        if let Some(value) = labels.get(key) {
            write_label(object, key, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded by `e2e/flux-expressions`.
    const RECORDED: &str = include_str!("../../tests/data/ignore-rules.json");

    fn spec(rules: &Value) -> KustomizationSpec {
        serde_json::from_value(json!({
            "interval": "1m", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "app" }, "ignore": rules,
        }))
        .unwrap()
    }

    #[test]
    fn rules_select_and_strip_what_they_do_in_flux() {
        let recorded: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
        assert_eq!(recorded.len(), 45);
        for case in &recorded {
            let rule = json!({ "paths": case["paths"], "target": case["target"] });
            let ignored = Ignored::from_spec(&spec(&json!([rule])));
            assert_eq!(ignored.is_err(), case.get("invalid").is_some(), "{rule}: {ignored:?}");
            let Ok(ignored) = ignored else { continue };
            for answer in case["answers"].as_array().unwrap() {
                let object = &answer["object"];
                // Flux's patch fails if an index doesn't exist: then nothing is left out.
                let flux = answer.get("stripped").unwrap_or(object);
                assert_eq!(*ignored.strip_ignored(object, object), *flux, "{rule} of {object}");
            }
        }
    }
}
