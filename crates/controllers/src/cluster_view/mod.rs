//! The last known state of the objects in the cluster, and the reconcilers to wake after a change.
//!
//! - `cache`: reconciled objects and namespaces, as the controller's own watches reported them.
//! - `change_subscriptions`: objects in any lane that are woken after a change of another object.
//! - `inventory_index`: the Kustomizations that name an object in their inventories.
//! - `key`: the key of a reconciled object, and the static facts of its kind.
//! - `live_objects`: applied objects, as watches of the applying accounts reported them.
//! - `mailbox`: wakes one reconciler, with the changed objects.
//! - `object_change`: a watch event about one object.
//! - `remote_clusters`: other clusters to which Kustomizations apply: connections, budgets and their live objects.

pub(crate) mod cache;
pub(crate) mod change_subscriptions;
pub(crate) mod inventory_index;
pub(crate) mod key;
pub(crate) mod live_objects;
pub(crate) mod mailbox;
pub(crate) mod object_change;
pub(crate) mod remote_clusters;
