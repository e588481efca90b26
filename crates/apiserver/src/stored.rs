//! The stored form of objects: JSON with a place for the revision.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenure_kinds::kind::Resource;
use tenure_store::{Entry, Payload};

use crate::http::ApiError;
use crate::http::body::MAX_BODY;

/// Decodes the object of a stored entry.
pub(crate) fn decode_stored(entry: &Entry) -> Result<Value, ApiError> {
    serde_json::from_slice(&entry.bytes)
        .map_err(|error| ApiError::internal(format!("a stored object is unreadable: {error}")))
}

/// Decodes the metadata of a stored entry, as an object without other fields.
pub(crate) fn decode_metadata(entry: &Entry) -> Result<Value, ApiError> {
    #[derive(Deserialize)]
    struct Described {
        metadata: Value,
    }
    let described: Described = serde_json::from_slice(&entry.bytes)
        .map_err(|error| ApiError::internal(format!("a stored object is unreadable: {error}")))?;
    Ok(json!({"metadata": described.metadata}))
}

/// Encodes an object for the store, and marks the place of the resourceVersion.
pub(crate) fn encode(object: &Value) -> Result<Payload, ApiError> {
    let (out, revision_at) = write(object)?;
    Ok(make_payload(out, revision_at))
}

/// Encodes the changed form of an object that had this many `bytes` before. The result is no larger than a request
/// may be, whatever defaults, owners, webhooks and former patches add up to. An object that is already larger may
/// become smaller.
pub(crate) fn encode_within(object: &Value, bytes: usize) -> Result<Payload, ApiError> {
    let (out, revision_at) = write(object)?;
    if out.len() > MAX_BODY && out.len() > bytes {
        return Err(ApiError::too_large(MAX_BODY));
    }
    Ok(make_payload(out, revision_at))
}

fn make_payload(out: Vec<u8>, revision_at: Option<usize>) -> Payload {
    match revision_at {
        Some(offset) => Payload::with_revision_at(out, offset),
        None => Payload::plain(out),
    }
}

fn write(object: &Value) -> Result<(Vec<u8>, Option<usize>), ApiError> {
    let failed = |error: serde_json::Error| ApiError::internal(format!("an object can't be written: {error}"));
    let Value::Object(map) = object else {
        return Err(ApiError::internal("an object is no JSON object"));
    };
    let mut out = Vec::with_capacity(1024);
    let mut revision_at = None;
    out.push(b'{');
    // Kind and version come first, as kube-apiserver writes them; lists then cut them off (see `without_kind`).
    let first = ["kind", "apiVersion", "metadata"]
        .into_iter()
        .filter_map(|key| map.get_key_value(key));
    let rest = map
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata"));
    for (index, (key, value)) in first.chain(rest).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        serde_json::to_writer(&mut out, key).map_err(failed)?;
        out.push(b':');
        match value {
            Value::Object(metadata) if key == "metadata" => {
                revision_at = Some(encode_metadata(&mut out, metadata).map_err(failed)?);
            }
            other => serde_json::to_writer(&mut out, other).map_err(failed)?,
        }
    }
    out.push(b'}');
    Ok((out, revision_at))
}

/// Returns the first bytes of every stored object of a resource.
pub(crate) fn kind_prefix(resource: &Resource) -> Vec<u8> {
    prefix_of(&resource.kind, &resource.storage_api_version)
}

/// Returns the first bytes of a stored object of this kind and version.
pub(crate) fn prefix_of(kind: &str, api_version: &str) -> Vec<u8> {
    format!("{{\"kind\":{kind:?},\"apiVersion\":{api_version:?},").into_bytes()
}

/// Splits a stored object into a new head and a rest without kind and version, as lists of built-in kinds need their
/// items.
pub(crate) fn without_kind<'a>(bytes: &'a [u8], prefix: &[u8]) -> (&'static [u8], &'a [u8]) {
    match bytes.strip_prefix(prefix) {
        Some(rest) => (b"{", rest),
        None => (b"", bytes),
    }
}

fn encode_metadata(out: &mut Vec<u8>, metadata: &Map<String, Value>) -> Result<usize, serde_json::Error> {
    out.extend_from_slice(b"{\"resourceVersion\":\"");
    let offset = out.len();
    out.push(b'"');
    for (key, value) in metadata.iter().filter(|(key, _)| *key != "resourceVersion") {
        out.push(b',');
        serde_json::to_writer(&mut *out, key)?;
        out.push(b':');
        serde_json::to_writer(&mut *out, value)?;
    }
    out.push(b'}');
    Ok(offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_may_shrink_but_not_grow_over_limit() {
        let large = json!({"spec": {"text": "x".repeat(MAX_BODY)}});
        assert_eq!(encode_within(&large, 0).unwrap_err().code, 413);
        assert_eq!(
            encode_within(&large, MAX_BODY).unwrap_err().code,
            413,
            "larger than before"
        );
        assert!(encode_within(&large, 2 * MAX_BODY).is_ok(), "smaller than before");
        assert!(encode_within(&json!({}), 0).is_ok());
    }

    #[test]
    fn the_revision_lands_in_metadata_only() {
        let object = json!({"apiVersion": "v1", "data": {"metadata": {"resourceVersion": "x"}}, "metadata": {"name": "a", "resourceVersion": "3"}});
        let bytes = encode(&object).unwrap().with_revision(42);
        let read: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(read["metadata"], json!({"name": "a", "resourceVersion": "42"}));
        assert_eq!(read["data"]["metadata"]["resourceVersion"], "x");
    }
}
