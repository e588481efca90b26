//! The order in which objects are deleted. Children (Kustomizations, HelmReleases, Surfaces) act as accounts and clean up after themselves. So they are deleted first,
//! and the rest waits until they are gone, but no longer than the timeout. Without this bound, an account that may set a finalizer on a child could keep rights and
//! delay others. Namespaces follow after everything else, then definitions and admission policies, and last the rights of the acting ServiceAccount: after these,
//! further deletions may be refused.
//!
//! The modules for pruning and deletion decide about the objects; this one only orders them.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::inventory::split_api_version;
use tenure_api::metadata::{OWNER_NAME, OWNER_NAMESPACE};
use tenure_api::{Kustomization, ObjectId, ObjectView, OwnerReference};

use super::context::Context;
use super::{deletion_wait, order, recreate, remote_cluster};
use crate::answer::Live;
use crate::outcome::add_duration;
use crate::plan::{Delete, Stage, Watched};

/// The number of children that a message names.
const CHILDREN_NAMED: usize = 10;
const RBAC: &str = "rbac.authorization.k8s.io";
/// The most owners that are followed in the search for a cycle.
const OWNERS_FOLLOWED: usize = 100;

/// A turn in the order of deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// An object that acts as an account and cleans up after itself.
    Child,
    Other,
    /// A Namespace, or a Tenant with its namespaces.
    Namespace,
    /// A definition of others, or an admission policy or webhook.
    Definition,
    /// The acting ServiceAccount, its bindings, and the bound roles.
    OwnRights,
}

/// The next step of a deletion.
pub(super) enum NextRemoval {
    /// Delete these objects.
    Delete(Vec<Delete>),
    /// Delete these objects. They give the right to delete.
    DeleteOwnRights(Vec<Delete>),
    /// Wait until these objects are gone, but not longer than this.
    Wait(Vec<ObjectId>, Timestamp),
    /// Nothing is left to delete.
    Done,
}

/// Chooses the objects to delete next. `is_hindered`: some object could not be deleted, so the rights stay.
pub(super) fn choose_next(
    context: &Context<'_>,
    deletes: Vec<Delete>,
    terminating: &[Watched],
    is_hindered: bool,
) -> NextRemoval {
    let own = OwnRights::find(context);
    let turn = |id: &ObjectId| own.find_turn(context, id);
    let Some(next) = deletes.iter().map(|delete| turn(&delete.target.id)).min() else {
        return NextRemoval::Done;
    };
    let children = terminating.iter().map(|target| &target.id);
    let children = children.filter(|id| turn(id) == Turn::Child && !is_above(context, id));
    let waits = children.map(|id| (id, find_wait_end(context, id)));
    let waits: Vec<(&ObjectId, Timestamp)> = waits.filter(|(_, end)| context.now < *end).collect();
    if next > Turn::Child
        && let Some(until) = waits.iter().map(|(_, end)| *end).max()
    {
        let children = waits.into_iter().map(|(id, _)| id.clone()).collect();
        return NextRemoval::Wait(children, until);
    }
    if next > Turn::Other && is_hindered {
        return NextRemoval::Done;
    }
    let mut now: Vec<Delete> = deletes
        .into_iter()
        .filter(|delete| turn(&delete.target.id) == next)
        .collect();
    if next < Turn::OwnRights {
        return NextRemoval::Delete(now);
    }
    // A ClusterRoleBinding may give the right to delete the RoleBindings.
    now.sort_by_key(|delete| match delete.target.id.kind.as_str() {
        "RoleBinding" => 0,
        "ClusterRoleBinding" => 1,
        _ => 2,
    });
    NextRemoval::DeleteOwnRights(now)
}

/// Finds the Kustomizations that apply each other in a cycle with this one, by the owner labels of each. The result is empty without a cycle. `get` finds only
/// Kustomizations that this one may know.
///
/// A Surface in the cycle generates a Kustomization of the cycle, and is applied by another one. Its own labels are unknown here, so the Kustomization that applies
/// it finds the cycle, and the others don't. That is enough, because one that doesn't wait ends the wait of all.
#[must_use]
pub fn find_owner_cycle(
    own: &Kustomization,
    get: impl Fn(&str, &str) -> Option<Arc<Kustomization>>,
) -> BTreeSet<ObjectId> {
    let is_own = |id: &ObjectId| {
        let metadata = &own.metadata;
        Some(&id.namespace) == metadata.namespace.as_ref() && Some(&id.name) == metadata.name.as_ref()
    };
    let mut found = BTreeSet::new();
    let mut next = find_owner(own);
    while let Some(owner) = next.take_if(|_| found.len() < OWNERS_FOLLOWED) {
        if owner.kind == "Surface" {
            if !has_applied(own, &owner) {
                break;
            }
            found.insert(owner);
            return found;
        }
        if is_own(&owner) {
            return found;
        }
        next = get(&owner.namespace, &owner.name).and_then(|owner| find_owner(&owner));
        if !found.insert(owner) {
            break;
        }
    }
    BTreeSet::new()
}

/// Returns the Kustomization that applies a Kustomization, or else the Surface that generates it.
fn find_owner(kustomization: &Kustomization) -> Option<ObjectId> {
    let metadata = &kustomization.metadata;
    let label = |key: &str| metadata.labels.as_ref()?.get(key).cloned();
    if let (Some(namespace), Some(name)) = (label(OWNER_NAMESPACE), label(OWNER_NAME)) {
        return Some(ObjectId {
            namespace,
            name,
            group: "kustomize.toolkit.fluxcd.io".to_owned(),
            kind: "Kustomization".to_owned(),
        });
    }
    let mut owners = metadata.owner_references.iter().flatten();
    let is_surface = |owner: &&OwnerReference| {
        let (group, _) = split_api_version(&owner.api_version);
        group == "tenure.dev" && owner.kind == "Surface"
    };
    Some(ObjectId {
        namespace: metadata.namespace.clone()?,
        name: owners.find(is_surface)?.name.clone(),
        group: "tenure.dev".to_owned(),
        kind: "Surface".to_owned(),
    })
}

/// Checks whether an object is in the inventory of a Kustomization.
fn has_applied(kustomization: &Kustomization, object: &ObjectId) -> bool {
    let inventory = kustomization
        .status
        .as_ref()
        .and_then(|status| status.inventory.as_ref());
    let id = object.to_string();
    inventory.is_some_and(|inventory| inventory.entries.iter().any(|entry| entry.id == id))
}

/// Checks whether an object that is being deleted may itself wait for this Kustomization: it is this one, it owns or generates this one, it applies this one in a
/// cycle, or its deletion began earlier. A repository may contain the Kustomization that applies it. Times of deletions are in whole seconds, so they don't show the
/// order in a cycle.
fn is_above(context: &Context<'_>, id: &ObjectId) -> bool {
    let metadata = &context.snapshot.kustomization.metadata;
    let label = |key: &str| {
        metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(key))
            .map(String::as_str)
    };
    let is_kustomization = id.group == "kustomize.toolkit.fluxcd.io" && id.kind == "Kustomization";
    let is_named = |namespace: Option<&str>, name: Option<&str>| {
        is_kustomization && Some(&*id.namespace) == namespace && Some(&*id.name) == name
    };
    let generates = |owner: &OwnerReference| {
        let (group, _) = split_api_version(&owner.api_version);
        group == id.group && owner.kind == id.kind && owner.name == id.name && id.namespace == context.namespace
    };
    let is_in_cycle = context.snapshot.endings.cycle.contains(id) && !remote_cluster::is_elsewhere(context.snapshot);
    let since = read_deletion_time(context, id);
    let own = metadata.deletion_timestamp.as_ref().map(|time| time.0);
    is_named(Some(context.namespace), Some(context.name))
        || is_named(label(OWNER_NAMESPACE), label(OWNER_NAME))
        || metadata.owner_references.iter().flatten().any(generates)
        || is_in_cycle
        || since.zip(own).is_some_and(|(since, own)| since < own)
}

/// Finds the end of the wait for a child. The time counts from the child's deletion, so that a new attempt doesn't begin the wait again.
fn find_wait_end(context: &Context<'_>, id: &ObjectId) -> Timestamp {
    let since = read_deletion_time(context, id).unwrap_or(context.snapshot.attempt.started);
    add_duration(since, context.timeout)
}

fn read_deletion_time(context: &Context<'_>, id: &ObjectId) -> Option<Timestamp> {
    let live = context.find_live(id).and_then(Live::object)?;
    ObjectView::new(live)
        .find_text("/metadata/deletionTimestamp")?
        .parse()
        .ok()
}

/// Names children, with the finalizers that hold them.
pub(super) fn describe_children(context: &Context<'_>, children: &[ObjectId]) -> String {
    let children = children.iter().take(CHILDREN_NAMED);
    let children: Vec<String> = children.map(|id| deletion_wait::describe_held(context, id)).collect();
    children.join(", ")
}

/// The roles that are bound to the acting ServiceAccount by bindings in the snapshot.
struct OwnRights {
    roles: BTreeSet<(String, String, String)>,
}

impl OwnRights {
    fn find(context: &Context<'_>) -> Self {
        let live = context.snapshot.live.iter();
        let bindings = live.filter_map(|(id, live)| Some((id, live.object()?)));
        let roles = bindings.filter(|(id, live)| recreate::find_own_rights(context, id, live).is_some());
        let roles = roles.map(|(id, live)| {
            let text = |path: &str| {
                live.pointer(path)
                    .and_then(serde_json::Value::as_str)
                    .unwrap_or_default()
            };
            let (kind, name) = (text("/roleRef/kind").to_owned(), text("/roleRef/name").to_owned());
            let namespace = if kind == "Role" {
                id.namespace.clone()
            } else {
                String::new()
            };
            (kind, namespace, name)
        });
        Self { roles: roles.collect() }
    }

    fn find_turn(&self, context: &Context<'_>, id: &ObjectId) -> Turn {
        let live = context.snapshot.live.get(id).and_then(Live::object);
        match (id.group.as_str(), id.kind.as_str()) {
            ("kustomize.toolkit.fluxcd.io", "Kustomization")
            | ("helm.toolkit.fluxcd.io", "HelmRelease")
            | ("tenure.dev", "Surface") => Turn::Child,
            // A Tenant's namespaces are deleted with it.
            ("", "Namespace") | ("capsule.clastix.io", "Tenant") => Turn::Namespace,
            ("", "ServiceAccount")
                if id.namespace == context.identity.namespace() && id.name == context.identity.name() =>
            {
                Turn::OwnRights
            }
            (RBAC, "RoleBinding" | "ClusterRoleBinding")
                if live.is_some_and(|live| recreate::find_own_rights(context, id, live).is_some()) =>
            {
                Turn::OwnRights
            }
            (RBAC, kind)
                if self
                    .roles
                    .contains(&(kind.to_owned(), id.namespace.clone(), id.name.clone())) =>
            {
                Turn::OwnRights
            }
            ("admissionregistration.k8s.io", _) => Turn::Definition,
            _ if order::find_stage(id) == Stage::Definitions => Turn::Definition,
            _ => Turn::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    /// Finds the cycle of a Kustomization among others, each with its owner.
    fn find(own: &str, owners: &[(&str, &str)]) -> Vec<String> {
        let make = |(name, owner): &(&str, &str)| {
            let kustomization: Kustomization = serde_json::from_value(json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": { "name": name, "namespace": "team", "labels": { OWNER_NAME: owner, OWNER_NAMESPACE: "team" } },
                "spec": { "interval": "1m", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "r" } },
            }))
            .unwrap();
            ((*name).to_owned(), Arc::new(kustomization))
        };
        let all: BTreeMap<String, Arc<Kustomization>> = owners.iter().map(make).collect();
        let found = find_owner_cycle(&all[own], |_, name| all.get(name).cloned());
        found.into_iter().map(|id| id.name).collect()
    }

    #[test]
    fn only_kustomizations_in_a_cycle_are_found() {
        let three = [("a", "c"), ("b", "a"), ("c", "b"), ("below", "a")];
        assert_eq!(find("a", &three), ["b", "c"]);
        assert_eq!(find("c", &three), ["a", "b"]);
        // A cycle above it is no cycle with it.
        assert!(find("below", &three).is_empty());
        // The chain ends at a Kustomization that is unknown.
        assert!(find("a", &[("a", "b"), ("b", "elsewhere")]).is_empty());
        assert!(find("a", &[("a", "a")]).is_empty());
    }

    /// Kustomization `c` applies Surface `s`, which generates `a`, which applies `b`, which applies `c`.
    #[test]
    fn cycle_through_surface_is_found_by_its_applier() {
        let make = |name: &str, metadata: serde_json::Value, applied: &str| {
            let mut kustomization: Kustomization = serde_json::from_value(json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": metadata,
                "spec": { "interval": "1m", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "r" } },
                "status": { "inventory": { "entries": [{ "id": applied, "v": "v1" }] } },
            }))
            .unwrap();
            kustomization.metadata.name = Some(name.to_owned());
            kustomization.metadata.namespace = Some("team".to_owned());
            (name.to_owned(), Arc::new(kustomization))
        };
        let applied_by = |owner: &str| json!({ "labels": { OWNER_NAME: owner, OWNER_NAMESPACE: "team" } });
        let by_surface = |group: &str| json!({ "ownerReferences": [{ "apiVersion": format!("{group}/v1alpha1"), "kind": "Surface", "name": "s", "uid": "s1" }] });
        let find = |own: &str, group: &str, surface: &str| {
            let all = BTreeMap::from([
                make(
                    "a",
                    by_surface(group),
                    "team_b_kustomize.toolkit.fluxcd.io_Kustomization",
                ),
                make("b", applied_by("a"), "team_c_kustomize.toolkit.fluxcd.io_Kustomization"),
                make("c", applied_by("b"), surface),
            ]);
            let found = find_owner_cycle(&all[own], |_, name| all.get(name).cloned());
            found.into_iter().map(|id| id.name).collect::<Vec<_>>()
        };
        let surface = "team_s_tenure.dev_Surface";
        assert_eq!(find("c", "tenure.dev", surface), ["a", "b", "s"]);
        // The others don't know who applies the Surface.
        assert!(find("a", "tenure.dev", surface).is_empty());
        assert!(find("b", "tenure.dev", surface).is_empty());
        // The controls: another Surface, and another kind of owner.
        assert!(find("c", "tenure.dev", "team_other_tenure.dev_Surface").is_empty());
        assert!(find("c", "example.com", surface).is_empty());
    }

    #[test]
    fn a_long_chain_is_followed_to_its_limit_alone() {
        let names: Vec<String> = (0..=OWNERS_FOLLOWED).map(|number| format!("n{number}")).collect();
        let chain = |length: usize| {
            let owners = (0..length).map(|number| (names[number].as_str(), names[(number + 1) % length].as_str()));
            find("n0", &owners.collect::<Vec<_>>()).len()
        };
        assert_eq!(chain(OWNERS_FOLLOWED), OWNERS_FOLLOWED - 1);
        assert_eq!(chain(OWNERS_FOLLOWED + 1), 0);
    }
}
