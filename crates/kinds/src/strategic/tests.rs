//! Large lists, and invalid patches. The real server's results of patches are in `tests/trials`.

use serde_json::{Value, json};

use super::strategic_merge;
use crate::schema::BuiltinSchemas;

/// The number of items. If each item were compared with every other item, each test would take minutes.
const MANY: usize = 30_000;

fn make_named_items(prefix: &str, names: impl Iterator<Item = usize>) -> Vec<Value> {
    names
        .map(|index| json!({"name": format!("{prefix}{index}"), "value": prefix}))
        .collect()
}

fn merge_patch(kind: (&str, &str), live: &Value, patch: &Value) -> Value {
    let schema = BuiltinSchemas::instance().type_of(kind.0, kind.1).unwrap();
    strategic_merge(live, patch, &schema).unwrap()
}

fn make_pod(container: Value) -> Value {
    json!({"spec": {"containers": [container]}})
}

#[test]
fn large_lists_are_merged_by_key() {
    let live = make_pod(json!({"name": "a", "env": make_named_items("x", 0..MANY)}));
    // Backwards, half of them new, a few deleted.
    let mut env = make_named_items("x", (MANY / 2..MANY + MANY / 2).rev());
    env.extend((0..100).map(|index| json!({"$patch": "delete", "name": format!("x{index}")})));
    let merged = merge_patch(("v1", "Pod"), &live, &make_pod(json!({"name": "a", "env": env})));
    let env = merged
        .pointer("/spec/containers/0/env")
        .and_then(Value::as_array)
        .unwrap();
    assert_eq!(env.len(), MANY + MANY / 2 - 100);
    let name = |place: usize| env[place]["name"].as_str().unwrap();
    // The patch's items come in its order. Each other item stays before the item that followed it.
    let last = format!("x{}", MANY / 2);
    assert_eq!(
        (name(0), name(MANY / 2), name(env.len() - 1)),
        ("x44999", "x100", last.as_str())
    );
}

#[test]
fn large_lists_are_ordered() {
    let live = make_pod(json!({"name": "a", "env": make_named_items("x", 0..MANY)}));
    let order: Vec<Value> = (0..MANY)
        .rev()
        .map(|index| json!({"name": format!("x{index}")}))
        .collect();
    let patch = make_pod(json!({"name": "a", "env": make_named_items("x", 0..MANY), "$setElementOrder/env": order}));
    let merged = merge_patch(("v1", "Pod"), &live, &patch);
    let env = merged
        .pointer("/spec/containers/0/env")
        .and_then(Value::as_array)
        .unwrap();
    assert_eq!((env.len(), &env[0]["name"]), (MANY, &json!(format!("x{}", MANY - 1))));
}

#[test]
fn large_sets_are_merged() {
    let finalizers = |from: usize, to: usize| -> Vec<Value> {
        (from..to).map(|index| json!(format!("example.com/{index}"))).collect()
    };
    let live = json!({"metadata": {"finalizers": finalizers(0, MANY)}});
    let patch = json!({"metadata": {"finalizers": finalizers(MANY / 2, MANY + MANY / 2)}});
    let both = merge_patch(("v1", "ConfigMap"), &live, &patch);
    assert_eq!(
        both["metadata"]["finalizers"].as_array().unwrap().len(),
        MANY + MANY / 2
    );
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": finalizers(1, MANY)}});
    let one = merge_patch(("v1", "ConfigMap"), &live, &patch);
    assert_eq!(one["metadata"]["finalizers"], json!(["example.com/0"]));
}
