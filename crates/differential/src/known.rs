//! Differences that are kept on purpose, each with its reason in docs/reference/differences-from-kubernetes.md. Refuses to
//! allow more of an answer than the very place that differs.

use serde_json::Value;
use tenure_testkit::exchange::Step;

/// What is left of the differences of one answer.
pub(crate) fn without_known(_step: &Step, found: Vec<(String, Value, Value)>) -> Vec<(String, Value, Value)> {
    found
}
