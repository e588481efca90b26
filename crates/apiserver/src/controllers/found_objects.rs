//! The objects that tasks read beside their own: owners, dependents, and the content of a namespace. A client chooses how
//! many there are and how large. So each is read once for a task, and only its metadata is decoded.

use std::collections::HashMap;

use serde_json::Value;
use tenure_checkpoint::checkpoint;

use super::dispatch::Task;
use super::garbage::{OwnerReference, OwnerState, owner_state, owners_of};
use super::object_name::{ObjectName, get_text};
use crate::catalog::Catalog;
use crate::registry::Registry;
use crate::view::View;

/// Returns these objects with their metadata only.
pub(super) fn read_metadata(view: &View, names: &[ObjectName]) -> Vec<Value> {
    let read = |name: &ObjectName| {
        checkpoint();
        view.get_metadata(&name.group, &name.plural, name.namespace.as_deref(), &name.name)
    };
    names.iter().filter_map(read).collect()
}

/// Returns all objects in a namespace, with their metadata only.
pub(super) fn content_of(view: &View, catalog: &Catalog, namespace: &str) -> Vec<(ObjectName, Value)> {
    let mut stored: Vec<&(String, String)> = catalog
        .iter()
        .filter(|resource| resource.namespaced)
        .map(|resource| &resource.stored_as)
        .collect();
    stored.sort();
    stored.dedup();
    let mut content = Vec::new();
    for (group, plural) in stored {
        for object in view.list_metadata(group, plural, Some(namespace)) {
            let name = ObjectName::in_namespace(group, plural, namespace, get_text(&object, "/metadata/name"));
            content.push((name, object));
        }
    }
    content
}

/// The owners that were read for one object, with their metadata only; `None` for a missing one. An object may name the
/// same large owner many thousand times.
type FoundOwners = HashMap<ObjectName, Option<Value>>;

/// Returns the states of the owners of the object `dependent`, in the order of its references.
pub(super) fn resolve_owners(
    object: &Value,
    dependent: &ObjectName,
    (view, catalog): (&View, &Catalog),
) -> Vec<OwnerState> {
    let mut known = FoundOwners::new();
    owners_of(object)
        .iter()
        .map(|reference| resolve_owner(reference, dependent, (view, catalog), &mut known))
        .collect()
}

/// Returns the state of an owner of the object `dependent`.
fn resolve_owner(
    reference: &OwnerReference,
    dependent: &ObjectName,
    (view, catalog): (&View, &Catalog),
    known: &mut FoundOwners,
) -> OwnerState {
    checkpoint();
    let (group, version) = reference
        .api_version
        .split_once('/')
        .unwrap_or(("", reference.api_version.as_str()));
    let Some(resource) = catalog.find_kind(group, version, &reference.kind) else {
        return OwnerState::Unresolved;
    };
    let namespace = match (resource.namespaced, dependent.namespace.as_deref()) {
        // A cluster-scoped object can't have an owner in a namespace: the reference names no namespace.
        (true, None) => return OwnerState::Unresolved,
        (true, namespace) => namespace,
        (false, _) => None,
    };
    let (group, plural) = &resource.stored_as;
    let name = ObjectName {
        group: group.clone(),
        plural: plural.clone(),
        namespace: namespace.map(str::to_owned),
        name: reference.name.clone(),
    };
    let found = known
        .entry(name)
        .or_insert_with_key(|name| view.get_metadata(group, plural, namespace, &name.name));
    owner_state(reference, found.as_ref())
}

/// Returns the UID of the object of a task, for its dependents.
pub(super) fn owner_of(registry: &Registry, task: &Task) -> Option<String> {
    let (Task::Dependent(name) | Task::Foreground(name) | Task::Orphan(name) | Task::Workload(name)) = task else {
        return None;
    };
    let object = registry
        .view()
        .get_metadata(&name.group, &name.plural, name.namespace.as_deref(), &name.name)?;
    Some(get_text(&object, "/metadata/uid").to_owned()).filter(|uid| !uid.is_empty())
}
