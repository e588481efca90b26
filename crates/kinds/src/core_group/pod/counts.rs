//! The Pod counts in the status of controllers, which must agree with each other.

use serde_json::Value;

use crate::schema::validation::non_negative;
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

/// The count fields of a kind: every count, the counts that are at most the replicas, and the error for too many available Pods.
pub(crate) struct Counts {
    /// Every count field.
    pub(crate) all: &'static [&'static str],
    /// The counts that are at most the number of replicas.
    pub(crate) parts: &'static [&'static str],
    /// The error if more Pods are available than ready.
    pub(crate) ready: &'static str,
}

impl Counts {
    /// The usual error if more Pods are available than ready.
    pub(crate) const PLAIN: &str = "cannot be greater than readyReplicas";
}

/// Checks the counts of a kind that makes pods.
pub(crate) fn validate_counts(counts: &Counts, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (status, before) = (
        value.get("status").unwrap_or(&NOTHING),
        old.get("status").unwrap_or(&NOTHING),
    );
    let path = FieldPath::new("status");
    let number = |status: &Value, field: &str| status.get(field).and_then(Value::as_i64).unwrap_or(0);
    for field in counts.all {
        non_negative(status, field, &path, errors);
    }
    let replicas = number(status, "replicas");
    for field in counts.parts.iter().filter(|field| number(status, field) > replicas) {
        let detail = "cannot be greater than status.replicas";
        errors.push(FieldError::invalid(path.child(field), number(status, field), detail));
    }
    let available = number(status, "availableReplicas");
    if !counts.parts.is_empty() && available > number(status, "readyReplicas") {
        errors.push(FieldError::invalid(
            path.child("availableReplicas"),
            available,
            counts.ready,
        ));
    }
    let field = "collisionCount";
    let was = before.get(field).and_then(Value::as_i64);
    if counts.all.contains(&field) && was.is_some_and(|was| number(status, field) < was) {
        let detail = "cannot be decremented";
        errors.push(FieldError::invalid(path.child(field), number(status, field), detail));
    }
}
