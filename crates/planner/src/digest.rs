//! Digests of objects, and the part of a live object that counts when it is compared: what Flux compares too, labels, annotations
//! and everything outside metadata and status.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The digest of a value: `sha256:<hex>` over its JSON with sorted keys.
#[must_use]
pub fn of(value: &Value) -> String {
    of_bytes(value.to_string().as_bytes())
}

/// The digest of bytes: `sha256:<hex>`.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// What counts of an object when it is compared with another state of itself.
#[must_use]
pub fn comparable(object: &Value) -> Value {
    let Some(fields) = object.as_object() else {
        return object.clone();
    };
    let mut result = Map::new();
    for (key, value) in fields {
        match key.as_str() {
            "status" => {}
            "metadata" => {
                let mut metadata = Map::new();
                for key in ["labels", "annotations"] {
                    if let Some(entries) = value
                        .get(key)
                        .filter(|entries| entries.as_object().is_some_and(|map| !map.is_empty()))
                    {
                        metadata.insert(key.to_owned(), entries.clone());
                    }
                }
                result.insert(key.clone(), Value::Object(metadata));
            }
            _ => {
                result.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(result)
}
