//! Ownership seen through a scale subresource. A Scale is another object than the one it scales, so the
//! managers of the one field that they share have to be carried over and back.
//!
//! ```text
//! parent's managedFields ──to_scale──▶ Scale's ──FieldManager for Scale──▶ Scale's ──to_parent──▶ parent's
//! ```

use serde_json::Value;

use crate::managed::{Managed, ManagerId, Operation, OwnedFields, list_of};
use crate::path::FieldPath;
use crate::set::FieldSet;

/// The version of Scale objects.
pub const API_VERSION: &str = "autoscaling/v1";

/// Where the parent keeps its replicas, in each version that it is served in; none for a version whose
/// kind has no scale subresource.
pub type ReplicasPaths = [(String, Option<FieldPath>)];

fn replicas_in_scale() -> FieldSet {
    FieldSet::from_paths(&[FieldPath::of_fields(&["spec", "replicas"])])
}

/// The parent's path in a version: the outer option is whether the version is known.
fn path_in<'p>(paths: &'p ReplicasPaths, version: &str) -> Option<Option<&'p FieldPath>> {
    paths
        .iter()
        .find(|(known, _)| known == version)
        .map(|(_, path)| path.as_ref())
}

/// The managers of a Scale made from its parent: those that own the parent's replicas.
#[must_use]
pub fn to_scale(parent: &Managed, paths: &ReplicasPaths) -> Managed {
    let managers = parent.managers.iter().filter_map(|(id, owned)| {
        let path = path_in(paths, &owned.api_version)??;
        owned.fields.contains(&path.0).then(|| {
            let in_scale = OwnedFields {
                api_version: API_VERSION.to_owned(),
                fields: replicas_in_scale(),
                time: owned.time,
            };
            (in_version(id, API_VERSION), in_scale)
        })
    });
    Managed {
        managers: managers.collect(),
    }
}

/// The parent's managedFields after a write to its Scale in version `parent_version`, whose managers are now
/// `scale`: who owns the Scale's replicas owns the parent's, and nobody else does.
///
/// As in Kubernetes, a manager that owns the replicas by an update, and more, has two entries of one identity then: readers
/// take the last one for all.
#[must_use]
pub fn to_parent(parent: &Managed, scale: &Managed, paths: &ReplicasPaths, parent_version: &str) -> Value {
    let mut managers: Vec<(ManagerId, OwnedFields)> = Vec::new();
    let mut in_scale = scale.managers.clone();
    for (id, owned) in &parent.managers {
        // What was written in a version that is gone is forgotten.
        let Some(path) = path_in(paths, &owned.api_version) else {
            continue;
        };
        let fields = match path.filter(|path| owned.fields.contains(&path.0)) {
            None => owned.fields.clone(),
            // Who updates is another one in the Scale's version.
            Some(_) if id.operation == Operation::Apply && in_scale.remove(id).is_some() => owned.fields.clone(),
            Some(path) => owned.fields.difference(&FieldSet::from_paths([path])),
        };
        if !fields.is_empty() || path.is_none() {
            managers.push((
                id.clone(),
                OwnedFields {
                    fields,
                    ..owned.clone()
                },
            ));
        }
    }
    let path = path_in(paths, parent_version).flatten();
    for (id, owned) in in_scale {
        let Some(path) = path.filter(|_| owned.fields.contains(&FieldPath::of_fields(&["spec", "replicas"]).0)) else {
            continue;
        };
        let in_parent = OwnedFields {
            api_version: parent_version.to_owned(),
            fields: FieldSet::from_paths([path]),
            // Who comes to own them by the Scale gets no time; an applier keeps his.
            time: parent.managers.get(&id).and_then(|owned| owned.time),
        };
        managers.retain(|(known, _)| id.operation != Operation::Apply || *known != id);
        managers.push((in_version(&id, parent_version), in_parent));
    }
    list_of(managers.iter().map(|(id, owned)| (id, owned)).collect())
}

/// The same manager in another version; appliers are the same in all.
fn in_version(id: &ManagerId, api_version: &str) -> ManagerId {
    ManagerId::new(&id.manager, id.operation, api_version, &id.subresource)
}
