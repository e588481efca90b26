//! Names of the RoleBindings that a Tenant wants: one name for one meaning, since the role of a RoleBinding can't be changed.

use sha2::{Digest, Sha256};
use tenure_api::metadata::OWNER_BINDING_PREFIX;

/// Returns the name of the RoleBinding that binds an owner to a ClusterRole.
#[must_use]
pub fn name_owner_binding(kind: &str, name: &str, role: &str) -> String {
    name_managed_binding(&[kind, name, role])
}

/// Returns `capsule:managed:HASH`, a hash of the parts that identify the binding.
pub(crate) fn name_managed_binding(parts: &[&str]) -> String {
    format!("{OWNER_BINDING_PREFIX}{}", hash_parts(parts))
}

/// Returns 16 hexadecimal digits of the SHA-256 of the parts.
pub(crate) fn hash_parts(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\u{0}").as_bytes());
    hex::encode(digest).chars().take(16).collect()
}
