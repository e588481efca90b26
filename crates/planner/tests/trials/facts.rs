//! The facts for a Kustomization of a scenario: its source and its dependencies.

use serde_json::{Value, json};
use tenure_planner::kustomization::{DependencyFacts, SourceFacts, WholeKustomization};

/// Describes a source that has no artifact, with the reason.
pub(crate) fn describe_failed_source(message: &str) -> SourceFacts {
    SourceFacts::Found {
        artifact: None,
        conditions: vec![serde_json::from_value(make_ready("False", "GitOperationFailed", message)).unwrap()],
    }
}

/// A dependency that is ready, or isn't.
pub(crate) fn describe_dependency(is_ready: bool, whole: Option<WholeKustomization>) -> DependencyFacts {
    let status = if is_ready { "True" } else { "False" };
    DependencyFacts::Found {
        generation: Some(1),
        observed_generation: Some(1),
        conditions: vec![serde_json::from_value(make_ready(status, "x", "x")).unwrap()],
        source: ("GitRepository".to_owned(), "elsewhere".to_owned()),
        last_applied_revision: None,
        whole,
    }
}

fn make_ready(status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" })
}
