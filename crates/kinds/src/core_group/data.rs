//! The data of ConfigMaps and Secrets, and its immutability. This module handles both kinds alike.

use serde_json::Value;

use crate::schema::validation::{is_empty_field, names};
use crate::schema::{FieldError, FieldErrorKind, FieldPath};

/// The limit for the values of a ConfigMap or Secret together, in bytes.
const DATA_LIMIT: usize = 1024 * 1024;

/// Returns the length of a value in bytes, from its field and its text.
pub(super) type Length = fn(&str, &str) -> usize;

/// Returns the approximate number of bytes that a base64 text decodes to.
pub(super) fn measure_decoded(text: &str) -> usize {
    text.len() / 4 * 3
}

/// Checks the keys of data, and the length of all values together. The error for data that is too long names `field`.
pub(super) fn check_keys_and_length(value: &Value, field: &str, length: Length, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for part in ["data", "binaryData"] {
        let Some(Value::Object(map)) = value.get(part) else {
            continue;
        };
        let path = FieldPath::new(part);
        for (key, content) in map {
            for complaint in names::data_key(key) {
                errors.push(FieldError::invalid(path.key(key), key.as_str(), complaint));
            }
            if part == "data" && value.get("binaryData").is_some_and(|binary| binary.get(key).is_some()) {
                errors.push(FieldError::invalid(
                    path.key(key),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                ));
            }
            size += length(part, content.as_str().unwrap_or_default());
        }
    }
    if size > DATA_LIMIT {
        errors.push(FieldError::new(
            FieldErrorKind::TooLong,
            field,
            "",
            format!("may not be more than {DATA_LIMIT} bytes"),
        ));
    }
}

/// Checks that an immutable object's data stays unchanged.
pub(super) fn check_immutable(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if value.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden("immutable", detail));
    }
    for field in ["data", "binaryData"] {
        let content = |object: &Value| object.get(field).filter(|_| !is_empty_field(object, field)).cloned();
        if content(value) != content(old) {
            errors.push(FieldError::forbidden(field, detail));
        }
    }
}
