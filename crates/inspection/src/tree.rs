//! The results of an object: the inventory of a Kustomization or HelmRelease, the objects that a Surface or Package generated, and so on downwards.
//!
//! The module decides which objects those are, and how each is shown. Objects of another cluster are not looked up in this one. An inventory alone is no proof: an
//! object whose labels don't name this Kustomization or HelmRelease is shown as doubtful.

use std::collections::{BTreeSet, VecDeque};

use serde::Serialize;
use serde_json::Value;
use tenure_api::{ObjectId, ObjectView, Surface};
use tenure_tenancy::{inventory, owner};

use crate::object_facts::{
    DescribedState, Findings, HELM_GROUP, KUSTOMIZE_GROUP, RECONCILED_GROUPS, SOURCE_GROUP, State, find_other_cluster,
    is_helm_release, is_kustomization, is_package, is_surface,
};
use tenure_planner::cycle::describe_cycle;
use tenure_planner::surface::{name_kustomizations, name_repository};

/// The deepest request: the output is nested as deep.
pub const DEEPEST: usize = 32;

/// The extent of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The number of steps downwards; [`DEEPEST`] at most.
    pub depth: usize,
    /// The number of objects.
    pub objects: usize,
    /// Whether only objects with reconcilers are shown: sources, Kustomizations, Surfaces, HelmReleases.
    pub compact: bool,
}

/// An object with its results.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// `Kind/namespace/name`; of an entry that is no object, the entry.
    pub object: String,
    /// Namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Kind.
    pub kind: String,
    /// The state of the object.
    #[serde(flatten)]
    pub object_state: DescribedState,
    /// Further remarks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The results of the object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Node>,
    /// The number of further results that were not read.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Node {
    /// Counts the objects of the tree that the user may not read.
    #[must_use]
    pub fn count_forbidden(&self) -> usize {
        let own = usize::from(self.object_state.state == State::Forbidden);
        own + self.children.iter().map(Self::count_forbidden).sum::<usize>()
    }
}

/// A node in the flat list from which the tree is nested: the index of its parent in place of its children.
struct FlatNode {
    id: Option<ObjectId>,
    above: Option<usize>,
    depth: usize,
    node: Node,
}

/// A result of an object, as the object's status or inventory names it.
struct Child {
    id: Result<ObjectId, String>,
    /// The cluster of the object, if it is another one.
    elsewhere: Option<String>,
    proof: ParentProof,
}

/// The metadata with which a child confirms that its parent applied or generated it.
enum ParentProof {
    /// The labels name the Kustomization that applied the child.
    Applied { namespace: String, name: String },
    /// The labels name the HelmRelease that installed the child.
    Installed { namespace: String, name: String },
    /// An ownerReference has the uid of the Surface.
    Generated { uid: String },
    /// The status of the Package has the uid of the child; none while the record is older than the child.
    Recorded { uid: String },
}

/// Checks whether objects of this kind can have results.
#[must_use]
pub fn has_children(id: &ObjectId) -> bool {
    is_kustomization(id) || is_surface(id) || is_helm_release(id) || is_package(id)
}

/// Builds the tree below an object, or returns the objects to read first, in the order of the output.
///
/// # Errors
/// The objects to read first.
pub fn build_tree(root: &ObjectId, found: &Findings, extent: &Extent) -> Result<Node, Vec<ObjectId>> {
    let mut placed = vec![make_placed(Ok(root.clone()), None, 0)];
    let mut queue = VecDeque::from([(0, None::<ParentProof>)]);
    let mut expanded: BTreeSet<ObjectId> = BTreeSet::new();
    let mut wanted = Vec::new();
    // The walk goes level by level: so the shown objects are read first, even with a small bound.
    while let Some((index, proof)) = queue.pop_front() {
        let Some(current) = placed.get(index) else { continue };
        let (Some(id), depth) = (current.id.clone(), current.depth) else {
            continue;
        };
        let Some(live) = found.objects.get(&id) else {
            wanted.push(id);
            continue;
        };
        let ring = find_ring(&placed, index);
        let object = live.object();
        let mut notes = Vec::new();
        if let (Some(object), Some(proof)) = (object, &proof) {
            notes.extend(proof.find_doubt(object));
        }
        let children = object.map_or_else(Vec::new, |object| list_children(&id, object, extent.compact));
        let (mut shown, mut more) = (Vec::new(), 0);
        if let Some(ring) = ring {
            notes.push(format!("it is part of a cycle: {ring}"));
        } else if !children.is_empty() && !expanded.insert(id) {
            notes.push("its results are shown elsewhere in this tree".to_owned());
        } else if depth >= extent.depth.min(DEEPEST) {
            more = children.len();
        } else {
            shown = children;
        }
        for child in shown {
            if placed.len() >= extent.objects {
                more += 1;
                continue;
            }
            let mut new = make_placed(child.id, Some(index), depth + 1);
            match child.elsewhere {
                Some(where_) => new.node.object_state = DescribedState::new(State::Elsewhere, where_),
                None if new.id.is_some() => queue.push_back((placed.len(), Some(child.proof))),
                None => {}
            }
            placed.push(new);
        }
        if let Some(current) = placed.get_mut(index) {
            current.node.object_state = DescribedState::describe(live);
            current.node.notes = notes;
            current.node.more = more;
        }
    }
    if !wanted.is_empty() {
        wanted.sort();
        wanted.dedup();
        return Err(wanted);
    }
    Ok(nest_children(placed))
}

fn make_placed(id: Result<ObjectId, String>, above: Option<usize>, depth: usize) -> FlatNode {
    let (id, object, object_state) = match id {
        Ok(id) => (Some(id.clone()), id.subject(), DescribedState::new(State::Unknown, "")),
        Err(entry) => {
            let object_state = DescribedState::new(State::Unknown, "this entry of the inventory names no object");
            (None, entry, object_state)
        }
    };
    let part = |read: fn(&ObjectId) -> &String| id.as_ref().map(read).cloned().unwrap_or_default();
    let node = Node {
        object,
        namespace: part(|id| &id.namespace),
        name: part(|id| &id.name),
        group: part(|id| &id.group),
        kind: part(|id| &id.kind),
        object_state,
        notes: Vec::new(),
        children: Vec::new(),
        more: 0,
    };
    FlatNode { id, above, depth, node }
}

/// Finds the path from an object back to itself, if it is its own ancestor.
fn find_ring(placed: &[FlatNode], index: usize) -> Option<String> {
    let start = placed.get(index)?;
    let id = start.id.as_ref()?;
    let mut way = vec![id.subject()];
    let mut above = start.above;
    while let Some(at) = above.and_then(|above| placed.get(above)) {
        way.push(at.node.object.clone());
        if at.id.as_ref() == Some(id) {
            way.reverse();
            return Some(describe_cycle(&way));
        }
        above = at.above;
    }
    None
}

/// Puts each node below its parent. Children stand behind their parents in the list.
fn nest_children(mut placed: Vec<FlatNode>) -> Node {
    let root = loop {
        match placed.pop() {
            Some(mut last) => {
                // The children were added from the last to the first.
                last.node.children.reverse();
                match last.above.and_then(|above| placed.get_mut(above)) {
                    Some(above) => above.node.children.push(last.node),
                    None => break Some(last.node),
                }
            }
            None => break None,
        }
    };
    root.unwrap_or_else(|| make_placed(Err(String::new()), None, 0).node)
}

impl ParentProof {
    /// Finds a contradiction to the parent's claim in the child's own metadata.
    fn find_doubt(&self, object: &Value) -> Option<String> {
        let view = ObjectView::new(object);
        match self {
            Self::Applied { namespace, name } if inventory::is_owned(object, namespace, name) => None,
            Self::Applied { .. } => Some(match owner::read_owner_labels(object) {
                Some((namespace, name)) => format!("its labels say that Kustomization {namespace}/{name} applied it"),
                None => "its labels don't say that a Kustomization applied it".to_owned(),
            }),
            Self::Installed { namespace, name } => {
                let label = |key: &str| view.find_label(&format!("{HELM_GROUP}/{key}"));
                let is_own = label("name") == Some(name.as_str()) && label("namespace") == Some(namespace.as_str());
                (!is_own).then(|| "its labels don't say that this HelmRelease installed it".to_owned())
            }
            Self::Recorded { uid } => {
                let is_own = uid.is_empty() || view.read_text("/metadata/uid") == uid;
                (!is_own).then(|| "the Package created another one of this name".to_owned())
            }
            Self::Generated { uid } => {
                let mut owners = view.list_views("/metadata/ownerReferences");
                let is_own = owners.any(|owner| owner.read_text("/uid") == uid && !uid.is_empty());
                (!is_own).then(|| "it doesn't say that this Surface generated it".to_owned())
            }
        }
    }
}

fn list_children(id: &ObjectId, object: &Value, compact: bool) -> Vec<Child> {
    let view = ObjectView::new(object);
    let (namespace, name) = (id.namespace.clone(), id.name.clone());
    let mut children = if is_kustomization(id) {
        list_inventory(view, &|| ParentProof::Applied {
            namespace: namespace.clone(),
            name: name.clone(),
        })
    } else if is_helm_release(id) {
        list_inventory(view, &|| ParentProof::Installed {
            namespace: namespace.clone(),
            name: name.clone(),
        })
    } else if is_surface(id) {
        list_generated(id, object)
    } else if is_package(id) {
        list_releases(view)
    } else {
        Vec::new()
    };
    let is_reconciled = |child: &Child| {
        let id = child.id.as_ref();
        id.is_ok_and(|id| RECONCILED_GROUPS.contains(&id.group.as_str()))
    };
    children.retain(|child| !compact || is_reconciled(child));
    children
}

/// Lists the objects of an inventory, which a Kustomization and a HelmRelease have.
fn list_inventory(object: ObjectView<'_>, proof: &dyn Fn() -> ParentProof) -> Vec<Child> {
    let elsewhere = find_other_cluster(object);
    let entries = object.list_views("/status/inventory/entries");
    entries
        .map(|entry| Child {
            id: entry
                .read_text("/id")
                .parse()
                .map_err(|_| entry.read_text("/id").to_owned()),
            elsewhere: elsewhere.clone(),
            proof: proof(),
        })
        .collect()
}

/// Lists the HelmReleases that the status of a Package records.
fn list_releases(package: ObjectView<'_>) -> Vec<Child> {
    let releases = package.list_views("/status/releases");
    releases
        .map(|release| Child {
            id: Ok(ObjectId {
                namespace: release.read_text("/namespace").to_owned(),
                name: release.read_text("/name").to_owned(),
                group: HELM_GROUP.to_owned(),
                kind: "HelmRelease".to_owned(),
            }),
            elsewhere: None,
            proof: ParentProof::Recorded {
                uid: release.read_text("/uid").to_owned(),
            },
        })
        .collect()
}

fn list_generated(id: &ObjectId, object: &Value) -> Vec<Child> {
    let Ok(surface) = serde_json::from_value::<Surface>(object.clone()) else {
        return Vec::new();
    };
    let uid = surface.metadata.uid.clone().unwrap_or_default();
    let child = |group: &str, kind: &str, name: String| Child {
        id: Ok(ObjectId {
            namespace: id.namespace.clone(),
            name,
            group: group.to_owned(),
            kind: kind.to_owned(),
        }),
        elsewhere: None,
        proof: ParentProof::Generated { uid: uid.clone() },
    };
    let mut children = Vec::new();
    for source in &surface.spec.sources {
        let repository = name_repository(&id.name, &source.name);
        children.push(child(SOURCE_GROUP, "GitRepository", repository));
        let names = name_kustomizations(&id.name, source);
        children.extend(
            names
                .into_iter()
                .map(|name| child(KUSTOMIZE_GROUP, "Kustomization", name)),
        );
    }
    children
}

#[cfg(test)]
mod tests;
