//! The data of ConfigMaps and Secrets, and when it may not change.

use base64::Engine as _;
use serde_json::Value;

use crate::schema::validation::{empty, immutable, names, text};
use crate::schema::{FieldError, FieldErrorKind, FieldPath, json_syntax};

/// All values of a ConfigMap or Secret together, in bytes.
const DATA_LIMIT: usize = 1024 * 1024;

/// Checks the data of a ConfigMap or Secret.
pub(crate) fn data(kind: &str, value: &Value, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    let plain = kind == "ConfigMap";
    for field in ["data", "binaryData"] {
        let Some(Value::Object(map)) = value.get(field) else {
            continue;
        };
        let path = FieldPath::new(field);
        for (key, content) in map {
            for complaint in names::data_key(key) {
                errors.push(FieldError::invalid(path.key(key), key.as_str(), complaint));
            }
            if field == "data" && value.get("binaryData").is_some_and(|binary| binary.get(key).is_some()) {
                errors.push(FieldError::invalid(
                    path.key(key),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                ));
            }
            let length = content.as_str().map_or(0, str::len);
            size += if plain && field == "data" {
                length
            } else {
                length / 4 * 3
            };
        }
    }
    if size > DATA_LIMIT {
        let field = if plain { "" } else { "data" };
        errors.push(FieldError::new(
            FieldErrorKind::TooLong,
            field,
            "",
            format!("may not be more than {DATA_LIMIT} bytes"),
        ));
    }
    if !plain {
        secret(value, errors);
    }
}

fn secret(value: &Value, errors: &mut Vec<FieldError>) {
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
    match text(value, "type") {
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        "kubernetes.io/dockercfg" => docker(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => docker(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if data.get("username").is_none() && data.get("password").is_none() => {
            require(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" if text(data, "ssh-privatekey").is_empty() => {
            errors.push(FieldError::required(path.key("ssh-privatekey"), ""));
        }
        "kubernetes.io/service-account-token" => {
            const ANNOTATION: &str = "kubernetes.io/service-account.name";
            let annotations = value.pointer("/metadata/annotations").unwrap_or(&NOTHING);
            if text(annotations, ANNOTATION).is_empty() {
                errors.push(FieldError::required(
                    FieldPath::new("metadata").child("annotations").key(ANNOTATION),
                    "",
                ));
            }
        }
        _ => {}
    }
}

fn docker(data: &Value, key: &str, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("data").key(key);
    let Some(content) = data.get(key).and_then(Value::as_str) else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(content)
        .unwrap_or_default();
    let problem = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_)) => return,
        _ => json_syntax::fault(&bytes).unwrap_or_else(|| "must be a JSON object".to_owned()),
    };
    errors.push(FieldError::invalid(path, "<secret contents redacted>", problem));
}

/// What may not change: an immutable object's data, a Secret's type.
pub(crate) fn immutable_data(kind: &str, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if kind == "Secret" {
        immutable(value, old, "type", &FieldPath::default(), errors);
    }
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if value.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden("immutable", detail));
    }
    for field in ["data", "binaryData"] {
        let content = |object: &Value| object.get(field).filter(|_| !empty(object, field)).cloned();
        if content(value) != content(old) {
            errors.push(FieldError::forbidden(field, detail));
        }
    }
}
