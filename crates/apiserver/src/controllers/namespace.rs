//! Deletion of a namespace: the conditions that report the progress of deleting its content, and its finalizer. This
//! module is pure. Invariant: a namespace with any content keeps its finalizer.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object_name::{get_text, is_deleting, list_finalizers};
use crate::authentication::api_time;

/// The finalizer in a namespace's spec that waits for its content.
pub(crate) const FINALIZER: &str = "kubernetes";

/// The objects that are left in a terminating namespace after a round of deletions, and the errors of the round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// How many objects of each resource (plural, group).
    pub(crate) resources: BTreeMap<(String, String), usize>,
    /// How many objects wait for each finalizer.
    pub(crate) finalizers: BTreeMap<String, usize>,
    /// The errors.
    pub(crate) failures: Vec<String>,
}

impl Remaining {
    /// Counts a remaining object of a resource.
    pub(crate) fn count(&mut self, group: &str, plural: &str, object: &Value) {
        *self.resources.entry((plural.to_owned(), group.to_owned())).or_default() += 1;
        for finalizer in list_finalizers(object) {
            *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }

    /// Checks whether the content is empty and no error occurred.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.failures.is_empty()
    }
}

/// Checks whether the namespace's content must be deleted.
#[must_use]
pub(crate) fn is_ending(namespace: &Value) -> bool {
    is_deleting(namespace) && has_finalizer(namespace)
}

fn has_finalizer(namespace: &Value) -> bool {
    namespace
        .pointer("/spec/finalizers")
        .and_then(Value::as_array)
        .is_some_and(|list| list.iter().any(|held| held.as_str() == Some(FINALIZER)))
}

/// Returns the namespace without its finalizer, for the `finalize` subresource.
#[must_use]
pub(crate) fn without_finalizer(namespace: &Value) -> Value {
    let mut namespace = namespace.clone();
    if let Some(list) = namespace.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut) {
        list.retain(|held| held.as_str() != Some(FINALIZER));
    }
    namespace
}

/// Returns the namespace with conditions about its remaining content, for the `status` subresource; `None` if it has
/// them already.
#[must_use]
pub(crate) fn with_conditions(namespace: &Value, remaining: &Remaining, now: Timestamp) -> Option<Value> {
    let mut failures = remaining.failures.clone();
    failures.sort();
    let content: Vec<String> = remaining
        .resources
        .iter()
        .map(|((plural, group), count)| format!("{plural}.{group} has {count} resource instances"))
        .collect();
    let waiting: Vec<String> = remaining
        .finalizers
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    let state = |bad: bool, reason: &str, message: String, good_reason: &str, good: &str| {
        if bad {
            ("True", reason.to_owned(), message)
        } else {
            ("False", good_reason.to_owned(), good.to_owned())
        }
    };
    let wanted = [
        (
            "NamespaceDeletionDiscoveryFailure",
            state(
                false,
                "",
                String::new(),
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            state(
                false,
                "",
                String::new(),
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
        ),
        (
            "NamespaceDeletionContentFailure",
            state(
                !failures.is_empty(),
                "ContentDeletionFailed",
                format!(
                    "Failed to delete all resource types, {} remaining: {}",
                    failures.len(),
                    failures.join(", ")
                ),
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
        ),
        (
            "NamespaceContentRemaining",
            state(
                !content.is_empty(),
                "SomeResourcesRemain",
                format!("Some resources are remaining: {}", content.join(", ")),
                "ContentRemoved",
                "All content successfully removed",
            ),
        ),
        (
            "NamespaceFinalizersRemaining",
            state(
                !waiting.is_empty(),
                "SomeFinalizersRemain",
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    waiting.join(", ")
                ),
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
        ),
    ];
    let mut conditions: Vec<Value> = namespace
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let before = conditions.clone();
    for (kind, (status, reason, message)) in wanted {
        let held = conditions
            .iter_mut()
            .find(|condition| get_text(condition, "/type") == kind);
        let time = match &held {
            Some(held) if get_text(held, "/status") == status => get_text(held, "/lastTransitionTime").to_owned(),
            _ => api_time(now),
        };
        let condition = json!({
            "type": kind,
            "status": status,
            "lastTransitionTime": time,
            "reason": reason,
            "message": message,
        });
        match held {
            Some(held) => *held = condition,
            None => conditions.push(condition),
        }
    }
    if conditions == before {
        return None;
    }
    let mut namespace = namespace.clone();
    let status = namespace.as_object_mut()?.entry("status").or_insert_with(|| json!({}));
    status
        .as_object_mut()?
        .insert("conditions".to_owned(), Value::Array(conditions));
    Some(namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending() -> Value {
        json!({
            "metadata": { "name": "shop", "deletionTimestamp": "2026-01-02T03:04:05Z" },
            "spec": { "finalizers": ["kubernetes", "acme.io/keep"] },
            "status": { "phase": "Terminating" },
        })
    }

    fn now() -> Timestamp {
        "2026-01-02T03:04:06Z".parse().unwrap_or_default()
    }

    #[test]
    fn conditions_of_ending_namespace_name_remaining_resources() {
        let mut remaining = Remaining::default();
        let held = json!({ "metadata": { "finalizers": ["a.io/b"] } });
        remaining.count("", "configmaps", &held);
        remaining.count("apps", "deployments", &json!({}));
        remaining.count("apps", "deployments", &held);
        let first = with_conditions(&ending(), &remaining, now()).unwrap_or_default();
        let message =
            |object: &Value, index: usize| get_text(object, &format!("/status/conditions/{index}/message")).to_owned();
        assert_eq!(
            message(&first, 3),
            "Some resources are remaining: configmaps. has 1 resource instances, deployments.apps has 2 resource instances"
        );
        assert_eq!(
            message(&first, 4),
            "Some content in the namespace has finalizers remaining: a.io/b in 2 resource instances"
        );
        assert_eq!(get_text(&first, "/status/phase"), "Terminating");
        assert_eq!(with_conditions(&first, &remaining, now()), None);
        let done = with_conditions(&first, &Remaining::default(), now()).unwrap_or_default();
        assert_eq!(message(&done, 3), "All content successfully removed");
    }

    #[test]
    fn only_its_own_finalizer_goes() {
        assert!(is_ending(&ending()));
        let done = without_finalizer(&ending());
        assert_eq!(done["spec"]["finalizers"], json!(["acme.io/keep"]));
        assert!(!is_ending(&done));
    }
}
