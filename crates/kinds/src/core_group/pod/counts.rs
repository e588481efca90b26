//! Counts of pods in the status of what makes them, which agree with each other.

use serde_json::Value;

use crate::schema::validation::non_negative;
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

/// The counts of a kind: all of them, those that are no more than all replicas, and the word for those that are ready.
pub(crate) struct Counts {
    /// All of them.
    pub(crate) all: &'static [&'static str],
    /// Those that are no more than all replicas.
    pub(crate) parts: &'static [&'static str],
    /// What is said where more are available than ready.
    pub(crate) ready: &'static str,
}

impl Counts {
    /// What most kinds say where more are available than ready.
    pub(crate) const PLAIN: &str = "cannot be greater than readyReplicas";
}

/// Checks the counts of a kind that makes pods.
pub(crate) fn counted(counts: &Counts, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
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
