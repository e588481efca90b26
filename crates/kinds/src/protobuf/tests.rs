//! Damaged bodies. Bodies from Go and kubectl are in `tests/trials`.

use base64::Engine as _;
use serde_json::Value;

use super::{ProtobufError, decode};

fn decode_body(case: &Value) -> Vec<u8> {
    let text = case.get("body").and_then(Value::as_str).unwrap();
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

#[test]
fn damaged_bodies_are_refused() {
    assert_eq!(decode(b"{}"), Err(ProtobufError::NotFramed));
    let recorded = include_str!("../../tests/recorded/protobuf.jsonl");
    for line in recorded.lines().take(20) {
        let case: Value = serde_json::from_str(line).unwrap();
        let whole = decode_body(&case);
        // Every cut and every flipped byte either fails or yields some object; nothing panics.
        for cut in 4..whole.len() {
            let _ = decode(whole.get(..cut).unwrap());
            let mut flipped = whole.clone();
            flipped[cut] ^= 0xff;
            let _ = decode(&flipped);
        }
    }
}
