//! The formats of what is sent: JSON, YAML and protobuf, read into one JSON value. Owns the words for what is none of them. Refuses to
//! know of which kind the value should be.

use serde_json::Value;
use tenure_kinds::schema::found;
use tenure_kinds::schema::strict::{self, Twice};
use tenure_kinds::{customresources, protobuf};

use crate::http::ApiError;
use crate::yaml;

/// The form of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Json,
    Yaml,
    Protobuf,
}

/// What precedes the reason why a body's type can't be read.
pub(crate) const UNTYPED: &str = "couldn't get version/kind; json parse error: ";

/// What is said of a body that is no object.
pub(crate) fn untyped(value: &Value) -> String {
    let found = found(value);
    format!(
        "{UNTYPED}json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

/// The JSON value in a body, and the fields that are in it twice.
pub(crate) fn parse(body: &[u8], format: BodyFormat, twice: Twice) -> Result<(Value, Vec<String>), ApiError> {
    match format {
        BodyFormat::Json => {
            strict::read_json(body, twice).map_err(|detail| ApiError::bad_request(format!("{UNTYPED}{detail}")))
        }
        BodyFormat::Yaml => yaml::parse(body)
            .map(|(mut value, repeated)| {
                // To YAML, 1.0 is 1.
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
