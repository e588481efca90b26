//! Taking fields over from kubectl and from what was there before the first apply, as Flux does: their entries in managedFields are
//! merged into ours, so that the next apply removes what Git does not have.

use serde_json::{Map, Value, json};
use tenure_api::metadata::{BEFORE_FIRST_APPLY, KUBECTL_PREFIX, KUSTOMIZE_CONTROLLER};

use crate::plan::{TakeOver, Watched};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The take-over that a live object needs, if it needs one.
pub(super) fn needed(target: Watched, live: &Value) -> Option<TakeOver> {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let (theirs, mut kept): (Vec<Value>, Vec<Value>) = entries.into_iter().flatten().cloned().partition(is_taken_over);
    let last_applied = live
        .pointer("/metadata/annotations")
        .is_some_and(|annotations| annotations.get(LAST_APPLIED).is_some());
    if theirs.is_empty() && !last_applied {
        return None;
    }
    let mut patch = Vec::new();
    let mut from: Vec<String> = theirs.iter().map(|entry| text(entry, "manager").to_owned()).collect();
    from.sort();
    from.dedup();
    if !theirs.is_empty() {
        let ours = kept.iter().position(|entry| {
            text(entry, "manager") == KUSTOMIZE_CONTROLLER
                && text(entry, "operation") == "Apply"
                && text(entry, "subresource").is_empty()
        });
        let mut entry = match ours {
            Some(index) => kept.remove(index),
            None => json!({
                "manager": KUSTOMIZE_CONTROLLER,
                "operation": "Apply",
                "apiVersion": theirs.first().map(|entry| text(entry, "apiVersion")).unwrap_or_default(),
                "fieldsType": "FieldsV1",
                "time": theirs.iter().map(|entry| text(entry, "time")).max().unwrap_or_default(),
                "fieldsV1": {},
            }),
        };
        let mut fields = entry
            .get("fieldsV1")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        for other in &theirs {
            if let Some(other) = other.get("fieldsV1").and_then(Value::as_object) {
                unite(&mut fields, other);
            }
        }
        if let Some(entry) = entry.as_object_mut() {
            entry.insert("fieldsV1".to_owned(), Value::Object(fields));
        }
        kept.push(entry);
        patch.push(json!({ "op": "replace", "path": "/metadata/managedFields", "value": kept }));
    }
    if last_applied {
        patch.push(
            json!({ "op": "remove", "path": format!("/metadata/annotations/{}", LAST_APPLIED.replace('/', "~1")) }),
        );
    }
    // Carries the version that this was decided on: a write in between makes the patch fail instead of undoing it.
    if let Some(version) = live.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
        patch.push(json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version }));
    }
    Some(TakeOver {
        target,
        from,
        patch: Value::Array(patch),
    })
}

fn is_taken_over(entry: &Value) -> bool {
    let manager = text(entry, "manager");
    let operation = text(entry, "operation");
    text(entry, "subresource").is_empty()
        && ((manager.starts_with(KUBECTL_PREFIX) && (operation == "Apply" || operation == "Update"))
            || (manager == BEFORE_FIRST_APPLY && operation == "Update"))
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn unite(ours: &mut Map<String, Value>, theirs: &Map<String, Value>) {
    for (key, value) in theirs {
        match (ours.get_mut(key), value) {
            (Some(Value::Object(ours)), Value::Object(theirs)) => unite(ours, theirs),
            (Some(_), _) => {}
            (None, value) => {
                ours.insert(key.clone(), value.clone());
            }
        }
    }
}
