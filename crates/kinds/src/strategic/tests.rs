//! Patches compared with what the real server made of them.

use serde_json::{Map, Value, json};

use super::strategic_merge;
use crate::schema::{BuiltinSchemas, ObjectSchema};

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                kept.map(|(key, value)| (key, without_nulls(value)))
                    .collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

fn check(case: &Value) -> Result<(), String> {
    let field = |name: &str| case.get(name).unwrap();
    let live = field("live");
    let text = |name: &str| live.get(name).and_then(Value::as_str).unwrap();
    let schema = BuiltinSchemas::shared().kind(text("apiVersion"), text("kind")).unwrap();
    let answer = field("answer");
    let refused = answer.get("kind").and_then(Value::as_str) == Some("Status");
    let merged = match strategic_merge(live, field("patch"), schema.definition()) {
        Ok(merged) => merged,
        Err(_) if refused => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let mut merged = schema.decode(merged).map_err(|error| error.to_string())?.value;
    schema.default(&mut merged);
    if refused {
        let mut old = live.clone();
        old.as_object_mut().unwrap();
        for object in [&mut merged, &mut old] {
            object
                .pointer_mut("/metadata")
                .and_then(Value::as_object_mut)
                .unwrap()
                .insert("resourceVersion".into(), "1".into());
        }
        let errors = schema.validate_update(&merged, &old);
        return if errors.is_empty() {
            Err(format!("accepted, want {}", answer.get("message").unwrap()))
        } else {
            Ok(())
        };
    }
    // A change of the spec counts, which is the registry's to note.
    let generation = answer.pointer("/metadata/generation").cloned();
    if let (Some(generation), Some(metadata)) = (
        generation,
        merged.pointer_mut("/metadata").and_then(Value::as_object_mut),
    ) {
        metadata.insert("generation".into(), generation);
    }
    let (ours, theirs) = (without_nulls(merged), without_nulls(answer.clone()));
    if ours == theirs {
        Ok(())
    } else {
        Err(format!("ours   {ours}\n  theirs {theirs}"))
    }
}

#[test]
fn patches_do_what_they_do_on_the_real_server() {
    let recorded = include_str!("../../tests/recorded/strategic.jsonl");
    let mut wrong = Vec::new();
    for line in recorded.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        if let Err(problem) = check(&case) {
            wrong.push(format!("{}\n  {problem}", case.get("patch").unwrap()));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        recorded.lines().count(),
        wrong.join("\n")
    );
}

/// Where every item is compared with every other, each of these takes minutes.
const MANY: usize = 30_000;

fn named(prefix: &str, names: impl Iterator<Item = usize>) -> Vec<Value> {
    names
        .map(|index| json!({"name": format!("{prefix}{index}"), "value": prefix}))
        .collect()
}

fn merged(kind: (&str, &str), live: &Value, patch: &Value) -> Value {
    let schema = BuiltinSchemas::shared().kind(kind.0, kind.1).unwrap();
    strategic_merge(live, patch, schema.definition()).unwrap()
}

fn pod(container: Value) -> Value {
    json!({"spec": {"containers": [container]}})
}

#[test]
fn large_lists_are_merged_by_key() {
    let live = pod(json!({"name": "a", "env": named("x", 0..MANY)}));
    // Backwards, half of them new, a few deleted.
    let mut env = named("x", (MANY / 2..MANY + MANY / 2).rev());
    env.extend((0..100).map(|index| json!({"$patch": "delete", "name": format!("x{index}")})));
    let merged = merged(("v1", "Pod"), &live, &pod(json!({"name": "a", "env": env})));
    let env = merged
        .pointer("/spec/containers/0/env")
        .and_then(Value::as_array)
        .unwrap();
    assert_eq!(env.len(), MANY + MANY / 2 - 100);
    let name = |place: usize| env[place]["name"].as_str().unwrap();
    // The patch's items in its order; the others before those that they were before.
    let last = format!("x{}", MANY / 2);
    assert_eq!(
        (name(0), name(MANY / 2), name(env.len() - 1)),
        ("x44999", "x100", last.as_str())
    );
}

#[test]
fn large_lists_are_ordered() {
    let live = pod(json!({"name": "a", "env": named("x", 0..MANY)}));
    let order: Vec<Value> = (0..MANY)
        .rev()
        .map(|index| json!({"name": format!("x{index}")}))
        .collect();
    let patch = pod(json!({"name": "a", "env": named("x", 0..MANY), "$setElementOrder/env": order}));
    let merged = merged(("v1", "Pod"), &live, &patch);
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
    let both = merged(("v1", "ConfigMap"), &live, &patch);
    assert_eq!(
        both["metadata"]["finalizers"].as_array().unwrap().len(),
        MANY + MANY / 2
    );
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": finalizers(1, MANY)}});
    let one = merged(("v1", "ConfigMap"), &live, &patch);
    assert_eq!(one["metadata"]["finalizers"], json!(["example.com/0"]));
}
