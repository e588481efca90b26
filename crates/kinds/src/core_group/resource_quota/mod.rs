//! The kind ResourceQuota.

mod validation;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kind::Kind;
use crate::table::cells;

/// ResourceQuotas.
pub(super) static RESOURCE_QUOTA: Kind = Kind {
    is_answered_when_deleted: true,
    initial_status: Some(|| json!({})),
    validate: validation::validate_quota,
    validate_update: validation::quota_update,
    validate_status: |value, _, errors| validation::quota_status(value, errors),
    cells: show,
    is_counted_by_plural: true,
    ..Kind::new("", "ResourceQuota", "resourcequotas")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut requests = Vec::new();
    let mut limits = Vec::new();
    for (key, hard) in object
        .pointer("/status/hard")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let used = object
            .pointer("/status/used")
            .and_then(|used| used.get(key))
            .and_then(Value::as_str)
            .unwrap_or("0");
        let part = format!("{key}: {used}/{}", hard.as_str().unwrap_or_default());
        if key.starts_with("limits") {
            limits.push(part)
        } else {
            requests.push(part)
        }
    }
    let name = cells::get_text(object, "/metadata/name").into();
    vec![
        name,
        requests.join(", ").into(),
        limits.join(", ").into(),
        cells::format_age(object, now),
    ]
}
