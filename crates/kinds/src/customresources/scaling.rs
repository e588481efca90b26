//! The fields that the scale subresource of a custom kind reads: an existing value must be a number or a text. Errors are in Go's words. A
//! missing value is valid.

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
    /// Returns the places of a definition's version; `None` if it has no scale subresource.
    pub(super) fn from_version(version: &Value) -> Option<Self> {
        let scale = version.pointer("/subresources/scale")?;
        let path = |key: &str| Some(scale.get(key)?.as_str()?.to_owned()).filter(|path| !path.is_empty());
        Some(Self {
            spec: path("specReplicasPath")?,
            status: path("statusReplicasPath").unwrap_or_default(),
            selector: path("labelSelectorPath"),
        })
    }

    /// Checks the wanted number of replicas.
    pub(super) fn check_spec(&self, object: &Value, errors: &mut Vec<FieldError>) {
        check_replicas(object, &self.spec, errors);
    }

    /// Checks the observed number of replicas, and the selector of the counted objects.
    pub(super) fn check_status(&self, object: &Value, errors: &mut Vec<FieldError>) {
        check_replicas(object, &self.status, errors);
        if let Some(path) = &self.selector {
            let checked = find_at_path(object, path).and_then(|value| match value {
                Some(Value::String(_)) | None => Ok(()),
                Some(other) => Err(describe_mismatch(other, "string")),
            });
            if let Err(why) = checked {
                errors.push(FieldError::invalid(path, "", format!("{path} {why}")));
            }
        }
    }
}

fn check_replicas(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let number = find_at_path(object, path).and_then(|value| match value {
        None => Ok(0),
        Some(value) => value.as_i64().ok_or_else(|| describe_mismatch(value, "int64")),
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

/// Returns the value at a path of fields; an error if something on the way has no fields.
fn find_at_path<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut at = object;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        let inner = match at {
            Value::Null => None,
            Value::Object(map) => map.get(name),
            other => return Err(describe_mismatch(other, "map[string]interface{}")),
        };
        match inner {
            Some(inner) => at = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn describe_mismatch(value: &Value, wanted: &str) -> String {
    let (text, found) = (print(value), type_name(value));
    format!("accessor error: {text} is of the type {found}, expected {wanted}")
}
