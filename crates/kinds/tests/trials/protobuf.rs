//! Bodies from Go's encoder and from kubectl, decoded and compared with their objects.

use base64::Engine as _;
use serde_json::{Map, Value};

use tenure_kinds::built_in;
use tenure_kinds::protobuf::decode;
use tenure_kinds::schema::ObjectSchema;
use tenure_trials::name_of_line;

use crate::{Case, name_object, read_lines};

fn decode_body(case: &Value) -> Vec<u8> {
    let text = case.get("body").and_then(Value::as_str).unwrap();
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

fn drop_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, drop_nulls(value))).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(drop_nulls).collect()),
        other => other,
    }
}

/// Returns the value in the form that the kind's types print.
fn print_by_types(value: Value) -> Value {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let schema = built_in::find_schema(&text("apiVersion"), &text("kind")).unwrap();
    let decoded = schema.decode(value).unwrap();
    assert_eq!(decoded.unknown_fields, Vec::<String>::new());
    let mut value = decoded.value;
    // Claim templates lose their own kind on the way, and get it back as a default.
    schema.default(&mut value);
    drop_nulls(value)
}

fn assert_contained(ours: &Value, theirs: &Value, at: &str) {
    match (ours, theirs) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, value) in left {
                let empty = value.as_object().is_some_and(Map::is_empty);
                // Statuses are the server's to write.
                if !empty && key != "status" {
                    assert_contained(value, right.get(key).unwrap_or(&Value::Null), &format!("{at}/{key}"));
                }
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            assert_eq!(left.len(), right.len(), "{at}");
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                assert_contained(left, right, &format!("{at}[{index}]"));
            }
        }
        // A target port is zero until it is defaulted to the port.
        (left, _) if at.ends_with("/targetPort") && left == &Value::from(0) => {}
        (left, right) => assert_eq!(left, right, "{at}"),
    }
}

/// Checks that a body from Go's encoder gives its object.
pub(crate) fn encoded_by_go() -> Vec<Case> {
    let recorded = read_lines(include_str!("../recorded/protobuf.jsonl")).into_iter();
    recorded
        .map(|(line, case)| {
            Case::new(name_object(line, &case["object"]), move || {
                assert_eq!(
                    print_by_types(decode(&decode_body(&case)).unwrap()),
                    print_by_types(case["object"].clone())
                );
                Ok(())
            })
        })
        .collect()
}

/// Checks that a body from kubectl gives the object that the real server accepted.
pub(crate) fn sent_by_kubectl() -> Vec<Case> {
    let recorded = read_lines(include_str!("../recorded/kubectl_bodies.jsonl")).into_iter();
    recorded
        .map(|(line, case)| {
            let command = case["command"].as_str().unwrap().to_owned();
            Case::new(name_of_line(line, &command), move || {
                let ours = print_by_types(decode(&decode_body(&case)).unwrap());
                // The server adds; it takes nothing away.
                if let Some(answer) = case.get("answer") {
                    assert_contained(&ours, answer, &command);
                }
                Ok(())
            })
        })
        .collect()
}
