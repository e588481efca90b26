//! Ownership through a scale subresource. A Scale and its parent are different objects that share one field, so the managers of that field
//! must be converted in both directions.
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

/// The path of the parent's replicas in each served version; `None` for a version whose kind has no scale subresource.
pub type ReplicasPaths = [(String, Option<FieldPath>)];

fn replicas_in_scale() -> FieldSet {
    FieldSet::from_paths(&[FieldPath::of_fields(&["spec", "replicas"])])
}

/// Returns the parent's path in a version: the outer option is whether the version is known.
fn path_in<'p>(paths: &'p ReplicasPaths, version: &str) -> Option<Option<&'p FieldPath>> {
    paths
        .iter()
        .find(|(known, _)| known == version)
        .map(|(_, path)| path.as_ref())
}

/// Returns the managers of a parent's Scale: the managers that own the parent's replicas.
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

/// Returns the parent's managedFields after a write to its Scale in version `parent_version`. `scale` contains the Scale's managers after
/// the write. The owners of the Scale's replicas become the only owners of the parent's replicas.
///
/// As in Kubernetes, a manager that owns the replicas and more by an update then has two entries of one identity. Readers take the last
/// entry for all.
#[must_use]
pub fn to_parent(parent: &Managed, scale: &Managed, paths: &ReplicasPaths, parent_version: &str) -> Value {
    let mut managers: Vec<(ManagerId, OwnedFields)> = Vec::new();
    let mut in_scale = scale.managers.clone();
    for (id, owned) in &parent.managers {
        // Fields from a version that is no longer served are forgotten.
        let Some(path) = path_in(paths, &owned.api_version) else {
            continue;
        };
        let fields = match path.filter(|path| owned.fields.contains(&path.0)) {
            None => owned.fields.clone(),
            // A manager that updates has another identity in the Scale's version.
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
            // A manager that gets the replicas through the Scale gets no time. A manager that applies keeps its time.
            time: parent.managers.get(&id).and_then(|owned| owned.time),
        };
        managers.retain(|(known, _)| id.operation != Operation::Apply || *known != id);
        managers.push((in_version(&id, parent_version), in_parent));
    }
    list_of(managers.iter().map(|(id, owned)| (id, owned)).collect())
}

/// Returns the manager's identity in another version. A manager that applies has one identity in all versions.
fn in_version(id: &ManagerId, api_version: &str) -> ManagerId {
    ManagerId::new(&id.manager, id.operation, api_version, &id.subresource)
}
