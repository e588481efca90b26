//! Ownership seen through a scale subresource. A Scale is another object than the one it scales, so the
//! managers of the one field that they share have to be carried over and back.
//!
//! ```text
//! parent's managedFields ──to_scale──▶ Scale's ──FieldManager for Scale──▶ Scale's ──to_parent──▶ parent's
//! ```

use crate::managed::{Managed, ManagerId, OwnedFields};
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

/// The parent's managers after a write to its Scale in version `parent_version`, whose managers are now
/// `scale`: who owns the Scale's replicas owns the parent's, and nobody else does.
///
/// A manager that owns the replicas by an update keeps its one entry here; Kubernetes splits it in two
/// of the same identity, of which it then reads only the last.
#[must_use]
pub fn to_parent(parent: &Managed, scale: &Managed, paths: &ReplicasPaths, parent_version: &str) -> Managed {
    let mut managers = std::collections::BTreeMap::new();
    let mut in_scale = scale.managers.clone();
    for (id, owned) in &parent.managers {
        // What was written in a version that is gone is forgotten.
        let Some(path) = path_in(paths, &owned.api_version) else {
            continue;
        };
        match path.filter(|path| owned.fields.contains(&path.0)) {
            None => {
                managers.insert(id.clone(), owned.clone());
            }
            Some(path) => {
                if in_scale.remove(&in_version(id, API_VERSION)).is_some() {
                    managers.insert(id.clone(), owned.clone());
                    continue;
                }
                let fields = owned.fields.difference(&FieldSet::from_paths([path]));
                if !fields.is_empty() {
                    managers.insert(
                        id.clone(),
                        OwnedFields {
                            fields,
                            ..owned.clone()
                        },
                    );
                }
            }
        }
    }
    let Some(path) = path_in(paths, parent_version).flatten() else {
        return Managed { managers };
    };
    for (id, owned) in in_scale {
        if owned.fields.contains(&FieldPath::of_fields(&["spec", "replicas"]).0) {
            let gained = FieldSet::from_paths([path]);
            let parent_id = in_version(&id, parent_version);
            // Who comes to own them by the Scale gets no time, as in Kubernetes; an applier keeps his.
            let time = parent.managers.get(&id).and_then(|owned| owned.time);
            let in_parent = managers.entry(parent_id).or_insert_with(|| OwnedFields {
                api_version: parent_version.to_owned(),
                fields: FieldSet::new(),
                time,
            });
            in_parent.fields = in_parent.fields.union(&gained);
        }
    }
    Managed { managers }
}

/// The same manager in another version; appliers are the same in all.
fn in_version(id: &ManagerId, api_version: &str) -> ManagerId {
    ManagerId::new(&id.manager, id.operation, api_version, &id.subresource)
}
