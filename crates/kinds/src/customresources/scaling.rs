//! The places that the scale subresource of a custom kind reads: what is there has to be readable as a number or a text.
//! Owns the complaints, in Go's words; where nothing is, nothing is wrong.

use go_words::value::{print, type_name};
use serde_json::Value;

use crate::schema::FieldError;

/// The paths of a version's scale subresource, as its definition writes them: `.spec.replicas`.
#[derive(Debug)]
pub(super) struct ScaleChecks {
    spec: String,
    status: String,
    selector: Option<String>,
}

impl ScaleChecks {
    /// Of a version of a definition; `None` if it has no such subresource.
    pub(super) fn of(version: &Value) -> Option<Self> {
        let scale = version.pointer("/subresources/scale")?;
        let path = |key: &str| Some(scale.get(key)?.as_str()?.to_owned()).filter(|path| !path.is_empty());
        Some(Self {
            spec: path("specReplicasPath")?,
            status: path("statusReplicasPath").unwrap_or_default(),
            selector: path("labelSelectorPath"),
        })
    }

    /// The number that is wanted.
    pub(super) fn check_spec(&self, object: &Value, errors: &mut Vec<FieldError>) {
        check_replicas(object, &self.spec, errors);
    }

    /// The number that there is, and how to find those that are counted.
    pub(super) fn check_status(&self, object: &Value, errors: &mut Vec<FieldError>) {
        check_replicas(object, &self.status, errors);
        if let Some(path) = &self.selector {
            let checked = found(object, path).and_then(|value| match value {
                Some(Value::String(_)) | None => Ok(()),
                Some(other) => Err(mismatch(other, "string")),
            });
            if let Err(why) = checked {
                errors.push(FieldError::invalid(path, "", format!("{path} {why}")));
            }
        }
    }
}

fn check_replicas(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let number = found(object, path).and_then(|value| match value {
        None => Ok(0),
        Some(value) => value.as_i64().ok_or_else(|| mismatch(value, "int64")),
    });
    let fault = match number {
        Err(why) => FieldError::invalid(path, 0, format!("{path} {why}")),
        Ok(count) if count < 0 => FieldError::invalid(path, count, "should be a non-negative integer"),
        Ok(count) if count > i64::from(i32::MAX) => {
            FieldError::invalid(path, count, "should be less than or equal to 2147483647")
        }
        Ok(_) => return,
    };
    errors.push(fault);
}

/// The value at a path of fields; an error if something on the way has no fields.
fn found<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut at = object;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        let inner = match at {
            Value::Null => None,
            Value::Object(map) => map.get(name),
            other => return Err(mismatch(other, "map[string]interface{}")),
        };
        match inner {
            Some(inner) => at = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn mismatch(value: &Value, wanted: &str) -> String {
    let (text, found) = (print(value), type_name(value));
    format!("accessor error: {text} is of the type {found}, expected {wanted}")
}
