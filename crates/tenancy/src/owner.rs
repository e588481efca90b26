//! Decides whose an object is if two Kustomizations want it.
//!
//! The owner is the Kustomization that the object's labels name *and* that has the object in its inventory. Labels alone can be
//! written by every editor of the object, and would lock others out. An inventory alone can be forged. The platform precedes all
//! others, and among equals the first owner keeps the object. A tenant never learns the name of another tenant's Kustomization.

use tenure_api::metadata::{OWNER_NAME, OWNER_NAMESPACE};
use tenure_api::{ObjectId, ObjectView};

use crate::inventory;
use crate::placement::Placement;

/// The order of two Kustomizations, one of which owns an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// The Kustomization that asks goes first.
    Asker,
    /// The owner keeps the object, and each may know the other by name.
    OwnerByName,
    /// The owner keeps the object, and its name isn't shown.
    Owner,
}

/// Returns the Kustomization, as namespace and name, in an object's labels.
#[must_use]
pub fn read_owner_labels(object: &serde_json::Value) -> Option<(&str, &str)> {
    let object = ObjectView::new(object);
    Some((object.find_label(OWNER_NAMESPACE)?, object.find_label(OWNER_NAME)?))
}

/// Checks whether an inventory's entry of a Kustomization is believed: the object must be within reach of the Kustomization's
/// namespace. A placement in dispute proves nothing, so it takes nothing away either.
#[must_use]
pub fn is_believed(placement: &Placement, id: &ObjectId) -> bool {
    matches!(placement, Placement::Disputed { .. }) || inventory::check_entry(placement, id).is_ok()
}

/// Decides the order of two Kustomizations by their namespaces: the one that asks, and the owner. Both
/// may be in the same namespace.
#[must_use]
pub fn decide_precedence(asker: (&Placement, &str), owner: (&Placement, &str)) -> Precedence {
    match (asker, owner) {
        ((Placement::Platform { .. }, _), (Placement::Platform { .. }, _)) => Precedence::OwnerByName,
        ((Placement::Platform { .. }, _), _) => Precedence::Asker,
        ((Placement::Tenant(asker), _), (Placement::Tenant(owner), _)) if asker.tenant == owner.tenant => {
            Precedence::OwnerByName
        }
        // A namespace without a tenant shares names only with itself.
        ((Placement::Unclaimed { .. }, asker), (Placement::Unclaimed { .. }, owner)) if asker == owner => {
            Precedence::OwnerByName
        }
        _ => Precedence::Owner,
    }
}
