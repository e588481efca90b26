//! Which finalizers an object of a built-in kind may have.

use serde_json::Value;

use super::ObjectExt;
use crate::catalog::Resource;
use crate::http::FieldError;

/// Finalizers that Kubernetes itself gives a meaning; all others need a domain in front.
const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

/// What is wrong with the names of the finalizers, beyond their form.
pub(super) fn validate(resource: &Resource, object: &Value) -> Vec<FieldError> {
    if resource.is_custom() {
        return Vec::new();
    }
    object
        .finalizers()
        .into_iter()
        .enumerate()
        .filter(|(_, finalizer)| !finalizer.contains('/') && !STANDARD.contains(finalizer))
        .map(|(index, finalizer)| {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            FieldError::invalid(format!("metadata.finalizers[{index}]"), finalizer, why)
        })
        .collect()
}
