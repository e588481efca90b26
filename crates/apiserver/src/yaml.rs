//! YAML request bodies.

use serde_json::Value;

/// The one document in a body; JSON is YAML, and most clients send it.
pub(crate) fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}
