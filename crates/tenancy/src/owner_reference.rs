//! The ownerReference of a tenant's namespace.

use serde_json::{Value, json};

/// Returns the ownerReference by which a namespace belongs to a Tenant.
///
/// The reference leaves out `blockOwnerDeletion`. The admission plugin OwnerReferencesPermissionEnforcement, which OpenShift enables, accepts
/// that field only from users that may set the Tenant's finalizers. Owners may not, and create namespaces.
#[must_use]
pub fn make_owner_reference(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "capsule.clastix.io/v1beta2",
        "kind": "Tenant",
        "name": name,
        "uid": uid,
        "controller": true,
    })
}
