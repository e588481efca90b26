//! What Git manages and refuses to have edited by hand: which Kustomizations say so stands on the namespaces that they have objects in.
//!
//! A policy sees managedFields as they will be: a field that somebody takes over is Git's no more. So it compares what Git's manager had
//! with what it will have, and refuses whoever takes its name. It sees no inventory: what bears the labels counts as applied.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenure_api::metadata::{
    HAND_EDITS, HAND_EDITS_REFUSE, KUSTOMIZE_CONTROLLER, OTHER_WRITERS, OWNER_NAME, OWNER_NAMESPACE,
};
use tenure_api::{ObjectId, ObjectView};

use super::facts::{LONGEST_LIST, REFUSING, read};
use super::{About, Policy, USER, Validation, Where, namespace_facts, phrase, quote, variable};
use crate::admission::Rule;
use crate::admission::managed::is_at_work;
use crate::facts::Facts;
use crate::realm::{Placement, is_kubernetes_own};
use crate::{identity, inventory};

/// The Kustomizations that refuse edits by hand, by the namespaces in which they have objects: a line each, with who may edit all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusing(BTreeMap<String, BTreeSet<String>>);

impl Refusing {
    /// Whether a Kustomization says that edits are refused, or its Surface does.
    #[must_use]
    pub fn is_said(kustomization: &Value, surface: Option<&Value>) -> bool {
        find_said(kustomization, surface, HAND_EDITS).as_deref() == Some(HAND_EDITS_REFUSE)
    }

    /// Adds a Kustomization with its Surface, if it refuses edits and applies now.
    pub fn add(&mut self, facts: &Facts, kustomization: &Value, surface: Option<&Value>) {
        let view = ObjectView::of(kustomization);
        let is_suspended = surface.is_some_and(|surface| ObjectView::of(surface).is_true("/spec/suspend"));
        if !Self::is_said(kustomization, surface) || !is_at_work(view) || is_suspended {
            return;
        }
        let (own, name) = (view.read_text("/metadata/namespace"), view.read_text("/metadata/name"));
        let placement = facts.place(own);
        let account = identity::decide_for_kustomization(&placement, own, view.find_text("/spec/serviceAccountName"));
        let writers = find_said(kustomization, surface, OTHER_WRITERS).unwrap_or_default();
        let account = account.map(|account| account.to_string()).ok();
        let writers = writers.split(',').map(|writer| writer.trim().to_owned()).chain(account);
        let writers: Vec<String> = writers
            .filter(|writer| !writer.is_empty() && !writer.contains('\n'))
            .collect();
        let line = format!("{own}/{name} {}", writers.join(","));
        if matches!(placement, Placement::Disputed { .. }) {
            return;
        }
        for entry in view.list_views("/status/inventory/entries") {
            let Some(id) = entry.find_text("/id").and_then(|id| id.parse::<ObjectId>().ok()) else {
                continue;
            };
            let may_stand = !id.namespace.is_empty() && !is_kubernetes_own(&id.namespace);
            if may_stand && inventory::check_entry(&placement, &id).is_ok() {
                self.0.entry(id.namespace).or_default().insert(line.clone());
            }
        }
    }

    /// What is to stand on a namespace. What is too long isn't written.
    pub(super) fn describe(&self, namespace: &str) -> Option<String> {
        let lines: Vec<&str> = self.0.get(namespace)?.iter().map(String::as_str).collect();
        Some(lines.join("\n")).filter(|lines| lines.len() <= LONGEST_LIST)
    }
}

/// What a Kustomization says, else its Surface.
fn find_said(kustomization: &Value, surface: Option<&Value>, annotation: &str) -> Option<String> {
    let own = ObjectView::of(kustomization)
        .find_annotation(annotation)
        .map(str::to_owned);
    own.or_else(|| surface.and_then(|surface| ObjectView::of(surface).find_annotation(annotation).map(str::to_owned)))
}

pub(super) fn managed(platform: &str) -> Policy {
    let label = |key: &str| format!("oldObject.?metadata.?labels[?{}].orValue('')", quote(key));
    let had = |object: &str| {
        format!(
            "{object}.?metadata.?managedFields.orValue([]).filter(entry, entry.?manager.orValue('') == '{KUSTOMIZE_CONTROLLER}' && \
             entry.?operation.orValue('') == 'Apply' && entry.?subresource.orValue('') == '').map(entry, entry.?fieldsV1.orValue({{}}))"
        )
    };
    let mut variables = namespace_facts();
    variables.push(variable(
        "owner",
        format!(
            "string({}) + '/' + string({})",
            label(OWNER_NAMESPACE),
            label(OWNER_NAME)
        ),
    ));
    variables.push(variable(
        "lines",
        format!(
            "{}.split('\\n').filter(line, line.startsWith(variables.owner + ' '))",
            read(REFUSING)
        ),
    ));
    variables.push(variable(
        "refused",
        format!(
            "variables.lines.size() > 0 && !({USER} in variables.lines[0].substring(size(variables.owner) + 1).split(','))"
        ),
    ));
    let mut conditions = vec![(
        "managed",
        format!("{} != '' && {} != ''", label(OWNER_NAME), label(OWNER_NAMESPACE)),
    )];
    conditions.extend(super::facts::not_free(platform));
    Policy {
        name: "git-managed".to_owned(),
        action: super::Action::Deny,
        place: Where::InNamespaces,
        about: vec![About {
            groups: vec!["*"],
            resources: vec!["*"],
            operations: vec!["UPDATE"],
        }],
        conditions,
        variables,
        validations: vec![Validation {
            holds: format!(
                "!variables.refused || ({} == {} && request.?options.?fieldManager.orValue('') != '{KUSTOMIZE_CONTROLLER}')",
                had("object"),
                had("oldObject")
            ),
            rule: Rule::GitManaged,
            why: phrase(
                "what Kustomization {} applied here is managed by Git",
                &["variables.owner"],
            ),
            remedy: quote("change it there, or suspend what applies it first"),
        }],
    }
}
