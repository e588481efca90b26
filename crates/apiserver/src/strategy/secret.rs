//! Secrets: `stringData` is a way to write `data` and is never stored.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

pub(super) fn prepare(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    if let Some(Value::Object(texts)) = map.remove("stringData")
        && !texts.is_empty()
    {
        let data = map.entry("data").or_insert_with(|| json!({}));
        if !data.is_object() {
            *data = json!({});
        }
        if let Some(data) = data.as_object_mut() {
            for (key, value) in texts {
                data.insert(key, Value::from(STANDARD.encode(value.as_str().unwrap_or_default())));
            }
        }
    }
}
