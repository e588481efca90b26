//! Secrets. `stringData` is another form of `data` for writes and is never stored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::data;
use crate::kind::Kind;
use crate::schema::validation::{get_text, validate_immutable};
use crate::schema::{FieldError, FieldPath, defaults, json_syntax};
use crate::table::cells;

/// Secrets.
pub(super) static SECRET: Kind = Kind {
    selectable_fields: &["type"],
    is_confidential: true,
    normalize: |_, object| encode_texts(object),
    // An applied Secret keeps the texts until its owners are settled.
    prepare_create: |_, object| encode_texts(object),
    prepare_update: |_, _, new| encode_texts(new),
    defaults: |_, object| fill_in(object),
    validate,
    validate_update: |value, old, errors| {
        validate_immutable(value, old, "type", &FieldPath::default(), errors);
        data::check_immutable(value, old, errors);
    },
    cells: show,
    is_counted_by_plural: true,
    ..Kind::new("", "Secret", "secrets")
};

/// Converts `stringData` into `data`. `stringData` is never stored.
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

/// Sets the default type, and converts `stringData` into `data`.
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

/// Checks a Secret: its data, and the keys that its type requires.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    data::check_keys_and_length(value, "data", |_, text| data::measure_decoded(text), errors);
    static NOTHING: Value = Value::Null;
    let data = value.get("data").unwrap_or(&NOTHING);
    let path = FieldPath::new("data");
    let mut require = |keys: &[&str]| {
        for key in keys {
            if data.get(*key).is_none() {
                errors.push(FieldError::required(path.key(key), ""));
            }
        }
    };
    match get_text(value, "type") {
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        "kubernetes.io/dockercfg" => validate_docker_config(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => validate_docker_config(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if data.get("username").is_none() && data.get("password").is_none() => {
            require(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" if get_text(data, "ssh-privatekey").is_empty() => {
            errors.push(FieldError::required(path.key("ssh-privatekey"), ""));
        }
        "kubernetes.io/service-account-token" => {
            const ANNOTATION: &str = "kubernetes.io/service-account.name";
            let annotations = value.pointer("/metadata/annotations").unwrap_or(&NOTHING);
            if get_text(annotations, ANNOTATION).is_empty() {
                errors.push(FieldError::required(
                    FieldPath::new("metadata").child("annotations").key(ANNOTATION),
                    "",
                ));
            }
        }
        _ => {}
    }
}

fn validate_docker_config(data: &Value, key: &str, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("data").key(key);
    let Some(content) = data.get(key).and_then(Value::as_str) else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let bytes = STANDARD.decode(content).unwrap_or_default();
    let problem = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_)) => return,
        _ => json_syntax::find_syntax_error(&bytes).unwrap_or_else(|| "must be a JSON object".to_owned()),
    };
    errors.push(FieldError::invalid(path, "<secret contents redacted>", problem));
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cells::name_cell(object),
        cells::get_text(object, "/type").into(),
        cells::size(object, "/data").into(),
        cells::format_age(object, now),
    ]
}
