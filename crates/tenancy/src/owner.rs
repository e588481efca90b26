//! Whose an object is when two Kustomizations want it.
//!
//! The owner is who says so in the object's labels *and* names the object in its inventory. Labels alone are written by whoever edits
//! the object, and would lock others out; an inventory alone can be forged. The platform precedes everybody else; among equals the
//! first keeps it. It refuses to tell a tenant who else there is: names are for those who share them.

use tenure_api::metadata::{OWNER_NAME, OWNER_NAMESPACE};
use tenure_api::{ObjectId, ObjectView};

use crate::inventory;
use crate::realm::Placement;

/// What follows from another Kustomization's owning an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// The one that asks goes first.
    Asker,
    /// The owner keeps it, and each may know of the other by name.
    OwnerByName,
    /// The owner keeps it, and who that is isn't told.
    Owner,
}

/// The Kustomization, namespace and name, that an object's labels name.
#[must_use]
pub fn read_owner_labels(object: &serde_json::Value) -> Option<(&str, &str)> {
    let object = ObjectView::of(object);
    Some((object.find_label(OWNER_NAMESPACE)?, object.find_label(OWNER_NAME)?))
}

/// Whether an inventory's entry is believed of a Kustomization that lives there: it must be within its reach. A placement in dispute
/// proves nothing, so it takes nothing away either.
#[must_use]
pub fn is_believed(placement: &Placement, id: &ObjectId) -> bool {
    matches!(placement, Placement::Disputed { .. }) || inventory::check_entry(placement, id).is_ok()
}

/// Who goes first: the Kustomization of the namespace that asks, or the owner in another one or the same.
#[must_use]
pub fn decide_precedence(asker: (&Placement, &str), owner: (&Placement, &str)) -> Precedence {
    match (asker, owner) {
        ((Placement::Platform { .. }, _), (Placement::Platform { .. }, _)) => Precedence::OwnerByName,
        ((Placement::Platform { .. }, _), _) => Precedence::Asker,
        ((Placement::Tenant(asker), _), (Placement::Tenant(owner), _)) if asker.tenant == owner.tenant => {
            Precedence::OwnerByName
        }
        // A namespace of nobody is its own neighbour only.
        ((Placement::Unclaimed { .. }, asker), (Placement::Unclaimed { .. }, owner)) if asker == owner => {
            Precedence::OwnerByName
        }
        _ => Precedence::Owner,
    }
}
