//! Decides which entries of a status's inventory are believed. Every writer of the status subresource can forge an entry, so an
//! entry gives no right. It is a hint of what may be pruned, and is checked like everything else.

use tenure_api::metadata::{OWNER_NAME, OWNER_NAMESPACE};
use tenure_api::{ObjectId, ObjectView};

use crate::denial::Denial;
use crate::placement::Placement;
use crate::write_scope::{self, Scope};

/// Checks whether an object in an inventory could have been applied from this namespace.
///
/// # Errors
/// When the entry names an object that [`write_scope::check_object`] denies.
pub fn check_entry(placement: &Placement, id: &ObjectId) -> Result<(), Denial> {
    let scope = match id.namespace.is_empty() {
        true => Scope::Cluster,
        false => Scope::Namespaced,
    };
    write_scope::check_object(placement, scope, id)
}

/// Checks whether a live object names this Kustomization as its owner: with both owner labels,
/// exactly.
#[must_use]
pub fn is_owned(object: &serde_json::Value, kustomization_namespace: &str, kustomization_name: &str) -> bool {
    let object = ObjectView::new(object);
    object.find_label(OWNER_NAME) == Some(kustomization_name)
        && object.find_label(OWNER_NAMESPACE) == Some(kustomization_namespace)
}
