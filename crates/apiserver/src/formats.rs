//! The formats of request bodies: JSON, YAML and protobuf, decoded into one JSON value. This module has the errors
//! for malformed bodies, and doesn't check the kind of the value.

use serde_json::Value;
use tenure_kinds::schema::json_type_name;
use tenure_kinds::schema::strict::{self, Twice};
use tenure_kinds::{customresources, protobuf};

use crate::http::ApiError;
use crate::yaml;

/// The format of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Json,
    Yaml,
    Protobuf,
}

/// The beginning of the error for a body whose type is unreadable.
pub(crate) const UNTYPED: &str = "couldn't get version/kind; json parse error: ";

/// Returns the error for a body that is not an object.
pub(crate) fn describe_untyped(value: &Value) -> String {
    let found = json_type_name(value);
    format!(
        "{UNTYPED}json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

/// Returns the JSON value in a body, and its repeated fields.
pub(crate) fn parse(body: &[u8], format: BodyFormat, twice: Twice) -> Result<(Value, Vec<String>), ApiError> {
    match format {
        BodyFormat::Json => {
            strict::read_json(body, twice).map_err(|detail| ApiError::bad_request(format!("{UNTYPED}{detail}")))
        }
        BodyFormat::Yaml => yaml::parse(body)
            .map(|(mut value, repeated)| {
                // In YAML, 1.0 equals 1.
                customresources::plain_numbers(&mut value);
                (value, repeated)
            })
            .map_err(|error| {
                ApiError::bad_request(format!(
                    "error decoding YAML: error converting YAML to JSON: yaml: {error}"
                ))
            }),
        BodyFormat::Protobuf => protobuf::decode(body)
            .map(|value| (value, Vec::new()))
            .map_err(|error| ApiError::bad_request(error.to_string())),
    }
}
