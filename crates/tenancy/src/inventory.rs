//! Which entries of a status's inventory are believed. A status can be forged by whoever may write the status subresource, so an
//! entry gives no right: it is a hint of what may be pruned, checked like everything else.

use tenure_api::metadata::{OWNER_NAME, OWNER_NAMESPACE};
use tenure_api::{ObjectId, ObjectView};

use crate::denial::Denial;
use crate::reach::{self, Scope};
use crate::realm::Placement;

/// Whether an entry's object could have been applied by what lives here.
///
/// # Errors
/// When the entry names what [`reach::check_object`] refuses.
pub fn check_entry(placement: &Placement, id: &ObjectId) -> Result<(), Denial> {
    let (scope, namespace) = if id.namespace.is_empty() {
        (Scope::Cluster, None)
    } else {
        (Scope::Namespaced, Some(id.namespace.as_str()))
    };
    reach::check_object(placement, scope, &id.kind, namespace, &id.name)
}

/// Whether a live object says of itself that this Kustomization owns it: both owner labels, exactly.
#[must_use]
pub fn is_owned(object: &serde_json::Value, kustomization_namespace: &str, kustomization_name: &str) -> bool {
    let object = ObjectView::of(object);
    object.find_label(OWNER_NAME) == Some(kustomization_name)
        && object.find_label(OWNER_NAMESPACE) == Some(kustomization_namespace)
}
