//! Digests as the controllers write them into statuses, annotations and records: `sha256:<hex>`.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Returns the digest of a value: `sha256:<hex>` over its JSON with sorted keys.
#[must_use]
pub fn digest_value(value: &Value) -> String {
    digest_bytes(value.to_string().as_bytes())
}

/// Returns the digest of bytes: `sha256:<hex>`.
#[must_use]
pub fn digest_bytes(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}
