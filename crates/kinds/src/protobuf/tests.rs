//! Bodies that Go encoded and that kubectl sent, decoded and compared with the objects they were made of.

use base64::Engine as _;
use serde_json::{Map, Value};

use super::{ProtobufError, decode};
use crate::schema::{BuiltinSchemas, ObjectSchema};

fn body(case: &Value) -> Vec<u8> {
    let text = case.get("body").and_then(Value::as_str).unwrap();
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

fn bare(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, bare(value))).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(bare).collect()),
        other => other,
    }
}

/// In the form that the kind's types print.
fn printed(value: Value) -> Value {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let schema = BuiltinSchemas::shared()
        .kind(&text("apiVersion"), &text("kind"))
        .unwrap();
    let decoded = schema.decode(value).unwrap();
    assert_eq!(decoded.unknown_fields, Vec::<String>::new());
    let mut value = decoded.value;
    // Claim templates lose their own kind on the way, and get it back as a default.
    schema.default(&mut value);
    bare(value)
}

#[test]
fn what_go_encodes_is_read_back() {
    let recorded = include_str!("../../tests/recorded/protobuf.jsonl");
    for line in recorded.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let object = case.get("object").cloned().unwrap();
        assert_eq!(printed(decode(&body(&case)).unwrap()), printed(object));
    }
}

#[test]
fn what_kubectl_sends_is_what_the_real_server_took() {
    let recorded = include_str!("../../tests/recorded/kubectl_bodies.jsonl");
    for line in recorded.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let ours = printed(decode(&body(&case)).unwrap());
        let Some(answer) = case.get("answer") else { continue };
        // The server adds; it takes nothing away.
        contained(&ours, answer, case.get("command").and_then(Value::as_str).unwrap());
    }
}

fn contained(ours: &Value, theirs: &Value, at: &str) {
    match (ours, theirs) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, value) in left {
                let empty = value.as_object().is_some_and(Map::is_empty);
                // Statuses are the server's to write.
                if !empty && key != "status" {
                    contained(value, right.get(key).unwrap_or(&Value::Null), &format!("{at}/{key}"));
                }
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            assert_eq!(left.len(), right.len(), "{at}");
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                contained(left, right, &format!("{at}[{index}]"));
            }
        }
        // A target port is zero until it is defaulted to the port.
        (left, _) if at.ends_with("/targetPort") && left == &Value::from(0) => {}
        (left, right) => assert_eq!(left, right, "{at}"),
    }
}

#[test]
fn damaged_bodies_are_refused() {
    assert_eq!(decode(b"{}"), Err(ProtobufError::NotFramed));
    let recorded = include_str!("../../tests/recorded/protobuf.jsonl");
    for line in recorded.lines().take(20) {
        let case: Value = serde_json::from_str(line).unwrap();
        let whole = body(&case);
        // Every cut and every flipped byte either fails or yields some object; nothing panics.
        for cut in 4..whole.len() {
            let _ = decode(whole.get(..cut).unwrap());
            let mut flipped = whole.clone();
            flipped[cut] ^= 0xff;
            let _ = decode(&flipped);
        }
    }
}
