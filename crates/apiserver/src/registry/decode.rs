//! From a request body to an object of the resource: format, group, version and kind, unknown fields.

use serde_json::Value;

use super::{FieldValidation, Operation};
use crate::http::ApiError;
use crate::kinds;
use crate::schema::strict;

/// The form of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Json,
    Yaml,
    Protobuf,
}

/// The object in a body, of the kind that the resource or subresource takes.
pub(crate) fn decode_object(op: &Operation, body: &[u8], format: BodyFormat) -> Result<Value, ApiError> {
    let (mut object, repeated) = parse(body, format)?;
    if !object.is_object() {
        return Err(ApiError::bad_request(
            "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct { APIVersion string; Kind string }",
        ));
    }
    check_kind(op, &mut object)?;
    check_fields(op, &mut object, repeated)?;
    Ok(object)
}

/// The JSON value in a body, and the fields that are in it twice.
pub(crate) fn parse(body: &[u8], format: BodyFormat) -> Result<(Value, Vec<String>), ApiError> {
    match format {
        BodyFormat::Json => strict::read_json(body).map_err(|error| {
            if body.is_empty() {
                return ApiError::bad_request("EOF");
            }
            ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
        }),
        BodyFormat::Yaml => crate::yaml::parse(body)
            .map_err(|error| ApiError::bad_request(format!("couldn't get version/kind; yaml parse error: {error}"))),
        BodyFormat::Protobuf => kinds::decode_protobuf(body)
            .map(|value| (value, Vec::new()))
            .map_err(ApiError::bad_request),
    }
}

fn check_kind(op: &Operation, object: &mut Value) -> Result<(), ApiError> {
    let resource = &op.resource;
    let (wanted_version, wanted_kind) = match op.subresource.as_deref().and_then(|name| resource.subresource(name)) {
        Some(sub) if !sub.version.is_empty() => {
            let version = if sub.group.is_empty() {
                sub.version.clone()
            } else {
                format!("{}/{}", sub.group, sub.version)
            };
            (version, sub.kind.clone())
        }
        _ => (resource.api_version(), resource.kind.clone()),
    };
    let Some(map) = object.as_object_mut() else {
        return Ok(());
    };
    // A typed client may leave both out: the URL says what it is. For custom resources there is nothing to guess from.
    for (key, wanted) in [("apiVersion", &wanted_version), ("kind", &wanted_kind)] {
        let missing = map.get(key).and_then(Value::as_str).is_none_or(str::is_empty);
        if missing {
            if resource.is_custom() {
                return Err(ApiError::bad_request(format!(
                    "Object '{}' is missing in '{}'",
                    capital(key),
                    "body"
                )));
            }
            map.insert(key.to_owned(), Value::from(wanted.as_str()));
        }
    }
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version != wanted_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({wanted_version})"
        )));
    }
    if kind != wanted_kind {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {wanted_kind}: converting ({kind}) to ({wanted_kind}): unknown conversion",
            resource.version
        )));
    }
    Ok(())
}

fn capital(key: &str) -> &'static str {
    if key == "kind" { "Kind" } else { "apiVersion" }
}

/// A value of the wrong type is an error always; unknown and repeated fields as the client wishes.
pub(crate) fn check_fields(op: &Operation, object: &mut Value, repeated: Vec<String>) -> Result<(), ApiError> {
    let decoded = kinds::read(op, std::mem::take(object))?;
    *object = decoded.value;
    let mut faults = repeated;
    faults.extend(decoded.unknown_fields);
    if faults.is_empty() {
        return Ok(());
    }
    match op.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => {
            for text in faults {
                op.warn(text);
            }
        }
        FieldValidation::Strict => {
            let resource = &op.resource;
            return Err(ApiError::bad_request(format!(
                "{} in version {:?} cannot be handled as a {}: strict decoding error: {}",
                resource.kind,
                resource.version,
                resource.kind,
                faults.join(", ")
            )));
        }
    }
    Ok(())
}
