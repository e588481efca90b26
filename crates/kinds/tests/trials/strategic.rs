//! Patches compared with the results of the real server.

use serde_json::{Map, Value};
use tenure_kinds::built_in;
use tenure_kinds::schema::ObjectSchema;
use tenure_kinds::strategic::strategic_merge;
use tenure_trials::name_of_line;

use crate::{Case, read_lines};

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
    let schema = built_in::find_schema(text("apiVersion"), text("kind")).unwrap();
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

/// Each patch has its result from the real server.
pub(crate) fn patches() -> Vec<Case> {
    let recorded = read_lines(include_str!("../recorded/strategic.jsonl")).into_iter();
    recorded
        .map(|(line, case)| {
            let kind = case["live"]["kind"].as_str().unwrap_or_default();
            let name = name_of_line(line, &format!("{kind} {}", case["patch"]));
            Case::new(name, move || {
                check(&case).map_err(|problem| format!("{}\n  {problem}", case["patch"]))
            })
        })
        .collect()
}
