//! Values that are texts in Secrets and ConfigMaps. helm-controller reads them, so this program never has their content.
//!
//! helm-controller lays the inline values of a HelmRelease over all references. So the value of the Package at such a path is left out of the inline values.

use tenure_api::package_values::{ReferenceKind, ValueReference};

use super::layer::{Found, Layer};
use super::overrides::read_pointer;
use super::{ValuesError, join_steps};

/// The most keys of a path. Helm refuses paths with more than 30.
const MOST_STEPS: usize = 30;
/// The longest path in Helm's form. The definition of HelmReleases has this bound, and the letters of a key.
const LONGEST_TARGET: usize = 250;

/// A value of a component that is a text in another object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The index in `valuesFrom`, for messages.
    pub index: usize,
    /// The path, as a pointer; a key at the root needs no slash.
    pub path: String,
    /// The kind of the object.
    pub kind: ReferenceKind,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The key in the object's data.
    pub key: String,
}

/// An entry of `spec.valuesFrom` in a HelmRelease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelmReference {
    /// The path, as an RFC 6901 pointer.
    pub path: String,
    /// The path, as `helm --set` writes it.
    pub target_path: String,
    /// The kind of the object.
    pub kind: ReferenceKind,
    /// The name of the object.
    pub name: String,
    /// The key in the object's data.
    pub key: String,
}

impl Reference {
    /// Returns the reference in a PackageValues.
    #[must_use]
    pub fn of(index: usize, reference: &ValueReference) -> Self {
        Self {
            index,
            path: reference.path.clone(),
            kind: reference.kind,
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
            key: reference.key.clone(),
        }
    }

    /// Checks that the object is in the namespace of the release: helm-controller reads it there, and nowhere else.
    ///
    /// # Errors
    /// With both namespaces.
    pub fn check_namespace(&self, of_release: &str) -> Result<(), ValuesError> {
        if self.namespace == of_release {
            return Ok(());
        }
        Err(ValuesError::at(
            "",
            format!(
                "spec.valuesFrom[{}].namespace: the release is in namespace {of_release}, and helm-controller reads {} there only: copy it from namespace {}",
                self.index,
                self.kind.as_str(),
                self.namespace
            ),
        ))
    }

    /// Returns the path as keys.
    pub(super) fn read_path(&self) -> Result<Vec<String>, ValuesError> {
        let steps = read_pointer(&format!("spec.valuesFrom[{}].path", self.index), &self.path)?;
        if steps.is_empty() {
            return Err(self.refuse(&steps, "a reference sets one value, not all: name a path"));
        }
        if steps.len() > MOST_STEPS {
            return Err(self.refuse(&steps, &format!("Helm takes at most {MOST_STEPS} keys in such a path")));
        }
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/');
        let is_writable = |step: &String| !step.is_empty() && step.chars().all(is_letter);
        if !steps.iter().all(is_writable) {
            return Err(self.refuse(
                &steps,
                "such a path takes only keys of ASCII letters, digits, -, _, . and /",
            ));
        }
        if write_target(&steps).len() > LONGEST_TARGET {
            return Err(self.refuse(&steps, "the path is too long for a HelmRelease, which takes 250 bytes"));
        }
        Ok(steps)
    }

    fn refuse(&self, steps: &[String], problem: &str) -> ValuesError {
        ValuesError::at(join_steps(steps), format!("spec.valuesFrom[{}]: {problem}", self.index))
    }

    fn write(&self, steps: &[String]) -> HelmReference {
        HelmReference {
            path: join_steps(steps),
            target_path: write_target(steps),
            kind: self.kind,
            name: self.name.clone(),
            key: self.key.clone(),
        }
    }
}

/// Writes a path as `helm --set` reads it: a dot in a key gets a backslash.
fn write_target(steps: &[String]) -> String {
    let keys: Vec<String> = steps.iter().map(|step| step.replace('.', "\\.")).collect();
    keys.join(".")
}

/// Resolves references: `changes` are the other changes of the PackageValues, and `merged` is their result on the Package. The values at the paths of the references
/// leave it.
pub(super) fn resolve(
    references: &[Reference],
    changes: &Layer,
    merged: &mut Layer,
) -> Result<Vec<HelmReference>, ValuesError> {
    let mut read: Vec<(Vec<String>, &Reference)> = Vec::with_capacity(references.len());
    for reference in references {
        read.push((reference.read_path()?, reference));
    }
    read.sort_by(|one, other| one.0.cmp(&other.0));
    let mut above: Option<&Vec<String>> = None;
    for (steps, reference) in &read {
        if let Some(above) = above.filter(|above| steps.starts_with(above)) {
            return Err(reference.refuse(
                steps,
                &format!("another reference sets {}: choose one", join_steps(above)),
            ));
        }
        above = Some(steps);
        let is_set_above = (1..steps.len())
            .any(|length| matches!(changes.find(steps.get(..length).unwrap_or_default()), Found::Value(_)));
        if changes.find(steps) != Found::Missing || is_set_above {
            return Err(reference.refuse(steps, "values or unset changes this path, too: choose one"));
        }
        let blocked = (1..steps.len())
            .find(|length| matches!(merged.find(steps.get(..*length).unwrap_or_default()), Found::Value(_)));
        if let Some(length) = blocked {
            let parent = join_steps(steps.get(..length).unwrap_or_default());
            return Err(reference.refuse(
                steps,
                &format!("the Package has no map at {parent}, so nothing below it can be set"),
            ));
        }
        merged.remove(steps);
    }
    Ok(read.iter().map(|(steps, reference)| reference.write(steps)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::chart_values::Override;

    fn apply(package: &Value, changes: &Value, paths: &[&str]) -> Result<(Value, Vec<String>), String> {
        let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let unset: Vec<String> = serde_json::from_value(changes["unset"].clone()).unwrap_or_default();
        let mut changes = Override::of(Some(&map(&changes["values"])), &unset, &[]).unwrap();
        changes.references = paths
            .iter()
            .enumerate()
            .map(|(index, path)| Reference {
                index,
                path: (*path).to_owned(),
                kind: ReferenceKind::Secret,
                namespace: "n".to_owned(),
                name: "s".to_owned(),
                key: "k".to_owned(),
            })
            .collect();
        let package = Layer::of(&map(package)).unwrap();
        let effective = changes.apply(&package, &package).map_err(|error| error.to_string())?;
        let targets = effective.references.into_iter().map(|reference| reference.target_path);
        Ok((Value::Object(effective.values), targets.collect()))
    }

    #[test]
    fn inline_values_leave_room_for_references() {
        let check = |package: Value, paths: &[&str], values: Value, targets: &[&str]| {
            let (found, written) = apply(&package, &json!({}), paths).unwrap();
            assert_eq!(
                (found, written),
                (values, targets.iter().map(|text| (*text).to_owned()).collect())
            );
        };
        check(
            json!({ "a": { "b": "clear", "c": 1 }, "d": null }),
            &["/e/f", "/a/b", "d"],
            json!({ "a": { "c": 1 } }),
            &["a.b", "d", "e.f"],
        );
        check(json!({ "a": { "b": 1 } }), &["/a/b"], json!({ "a": {} }), &["a.b"]);
        check(json!({ "a": { "b": 1 } }), &["a"], json!({}), &["a"]);
        check(json!({}), &["/a.b/c~1d/0"], json!({}), &["a\\.b.c/d.0"]);
    }

    #[test]
    fn conflicting_references_are_refused() {
        let check = |package: Value, changes: Value, paths: &[&str], expected: &str| {
            let refused = apply(&package, &changes, paths).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        };
        let none = || json!({});
        check(
            none(),
            none(),
            &["/a", "/a/b"],
            "/a/b: spec.valuesFrom[1]: another reference sets /a",
        );
        check(none(), none(), &["/a", "a"], "another reference sets /a");
        check(
            none(),
            json!({ "values": { "a": { "b": 1 } } }),
            &["/a"],
            "values or unset changes this path",
        );
        check(
            none(),
            json!({ "values": { "a": 1 } }),
            &["/a/b"],
            "values or unset changes this path",
        );
        check(
            none(),
            json!({ "unset": ["/a"] }),
            &["/a/b"],
            "values or unset changes this path",
        );
        check(json!({ "a": [1] }), none(), &["/a/0"], "the Package has no map at /a");
        check(json!({ "a": null }), none(), &["/a/b"], "the Package has no map at /a");
        check(none(), none(), &["/_cluster/x"], "keys that begin with _");
        for path in ["/a//b", "/a/\u{e9}", "/a=b", "/a[0]", "/a,b", "/a b", "/a\\b"] {
            check(none(), none(), &[path], "only keys of ASCII letters");
        }
        check(none(), none(), &[&format!("/{}", "a".repeat(251))], "too long");
        check(none(), none(), &["a.b"], "spec.valuesFrom[0].path");
        check(none(), none(), &[&"/a".repeat(31)], "at most 30 keys");
        let many: Vec<String> = (0..17).map(|index| format!("/k{index}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        check(none(), none(), &many, "valuesFrom has more than 16 entries");
    }
}
