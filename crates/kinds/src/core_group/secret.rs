//! Secrets: `stringData` is a way to write `data` and is never stored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::data;
use crate::kind::Kind;
use crate::schema::defaults;
use crate::table::cells;

/// Secrets.
pub(super) static SECRET: Kind = Kind {
    selectable_fields: &["type"],
    normalize: |_, object| encode_texts(object),
    // An applied Secret keeps the texts until its owners are settled.
    prepare_create: |_, object| encode_texts(object),
    prepare_update: |_, _, new| encode_texts(new),
    defaults: |_, object| fill_in(object),
    validate: |value, errors| data::data("Secret", value, errors),
    validate_update: |value, old, errors| data::immutable_data("Secret", value, old, errors),
    cells: show,
    is_counted_by_plural: true,
    ..Kind::named("", "Secret", "secrets")
};

/// Texts become data, and are never stored as such.
fn encode_texts(object: &mut Value) {
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

/// Text data becomes data, and is never stored as such.
fn fill_in(object: &mut Map<String, Value>) {
    defaults::set(object, "type", "Opaque");
    if let Some(Value::Object(texts)) = object.remove("stringData")
        && let Some(data) = defaults::object_at(object, "data")
    {
        for (key, value) in texts {
            let bytes = value.as_str().unwrap_or_default();
            data.insert(key, STANDARD.encode(bytes).into());
        }
    }
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cells::name(object),
        cells::text(object, "/type").into(),
        cells::size(object, "/data").into(),
        cells::age(object, now),
    ]
}
