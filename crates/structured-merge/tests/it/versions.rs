//! Managers in other versions: the live object must be valid in each of their versions, even for a write that changes other fields.

use std::sync::Arc;

use serde_json::{Value, json};
use structured_merge::{Applied, ApplyError, FieldManager, SameShape, Schema, Timestamp, Typing};

fn typing(fields: &[&str]) -> Typing {
    let fields: serde_json::Map<String, Value> = fields
        .iter()
        .map(|field| ((*field).to_owned(), json!({"type": "string"})))
        .collect();
    Schema::from_structural(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}),
    )
    .unwrap()
}

fn manager(version: &str) -> FieldManager {
    let versions = vec![
        ("example.com/v1".to_owned(), typing(&["a"])),
        ("example.com/v2".to_owned(), typing(&["a", "b"])),
    ];
    let (name, own) = versions
        .iter()
        .find(|(name, _)| name.ends_with(version))
        .unwrap()
        .clone();
    FieldManager::new(own, &name, "Thing")
        .for_custom_resource()
        .with_converter(Arc::new(SameShape::new(versions)))
}

fn thing(version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": {"name": "x"}, "spec": spec})
}

/// A version of an owner may lack a field of the object. An apply then fails as a faulty conversion, and an update succeeds without owners.
#[test]
fn apply_fails_if_owner_version_lacks_a_field() {
    let now = Timestamp::from_unix_seconds(1_800_000_000);
    let apply = |live: Option<&Value>, version: &str, spec: Value, who: &str| {
        manager(version).apply(live, &thing(version, spec), who, false, now)
    };
    let mut live = apply(None, "v1", json!({"a": "1"}), "first").unwrap().into_object(None);
    live["metadata"]["uid"] = json!("1");
    live["apiVersion"] = json!("example.com/v2");
    let error_message = |refused: ApplyError| match refused {
        ApplyError::Internal(message) => message,
        other => panic!("{other:?}"),
    };
    let refused = apply(Some(&live), "v2", json!({"b": "2"}), "second").unwrap_err();
    assert_eq!(
        error_message(refused),
        "failed to convert new object: .spec.b: field not declared in schema"
    );
    // The object already has this field, so the apply changes nothing else, and is refused nevertheless.
    live["spec"]["b"] = json!("2");
    let refused = apply(Some(&live), "v2", json!({"b": "2"}), "second").unwrap_err();
    assert_eq!(error_message(refused), ".spec.b: field not declared in schema");
    // An update succeeds without owners.
    let updated = manager("v2").update(Some(&live), thing("v2", json!({"a": "3", "b": "2"})), "third", now);
    assert_eq!(updated["metadata"]["managedFields"], Value::Null);
}

#[test]
fn apply_of_existing_values_changes_only_owners() {
    let now = Timestamp::from_unix_seconds(1_800_000_000);
    let live = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x", "uid": "1"}, "spec": {"a": "1"},
    });
    let applied = manager("v1").apply(Some(&live), &thing("v1", json!({"a": "1"})), "first", false, now);
    let Ok(Applied::OwnersChanged(object)) = applied else {
        panic!("{applied:?}")
    };
    assert_eq!(object["spec"], live["spec"]);
    assert_eq!(object["metadata"]["managedFields"][0]["manager"], "first");
}
