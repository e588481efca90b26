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
                (!is_own).then(|| "it is not the one that the Package created".to_owned())
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
mod tests {
    use serde_json::json;

    use super::*;
    use tenure_planner::answer::Live;
    use tenure_planner::object::Object;
    use tenure_planner::refusal::{Failure, Reason};

    const EXTENT: Extent = Extent {
        depth: 10,
        objects: 100,
        compact: false,
    };

    fn id(text: &str) -> ObjectId {
        text.parse().expect("an id")
    }

    fn kustomization(name: &str, by: &str, entries: &[&str]) -> (ObjectId, Live) {
        let entries: Vec<Value> = entries.iter().map(|entry| json!({"id": entry, "v": "v1"})).collect();
        let object = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name, "namespace": "a", "labels": labels(by)}, "spec": {},
            "status": {"inventory": {"entries": entries}, "conditions": [{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "Applied"}]}});
        let id = id(&format!("a_{name}_kustomize.toolkit.fluxcd.io_Kustomization"));
        (id, Live::Present(Object(object)))
    }

    fn labels(by: &str) -> Value {
        json!({"kustomize.toolkit.fluxcd.io/name": by, "kustomize.toolkit.fluxcd.io/namespace": "a"})
    }

    fn make_config_map(name: &str, by: &str) -> (ObjectId, Live) {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a", "labels": labels(by)}});
        (id(&format!("a_{name}__ConfigMap")), Live::Present(Object(object)))
    }

    /// Grows the tree from requested looks; the number of rounds is part of the result.
    fn build_stepwise(root: &str, all: &[(ObjectId, Live)], extent: &Extent) -> (Node, usize) {
        let mut found = Findings::default();
        for rounds in 0.. {
            match build_tree(&id(root), &found, extent) {
                Ok(node) => return (node, rounds),
                Err(wanted) => {
                    for id in wanted {
                        assert!(!found.objects.contains_key(&id), "{id} is asked for twice");
                        let live = all.iter().find(|(known, _)| *known == id);
                        let live = live.map_or(Live::Absent, |(_, live)| live.clone());
                        found.objects.insert(id, live);
                    }
                }
            }
        }
        unreachable!("the rounds have no end");
    }

    /// Writes subject, state and notes of every object, indented.
    fn write(node: &Node, depth: usize, lines: &mut Vec<String>) {
        let mut line = format!(
            "{}{} {}",
            "  ".repeat(depth),
            node.object,
            node.object_state.state.as_str()
        );
        node.notes.iter().for_each(|note| line.push_str(&format!("; {note}")));
        if node.more > 0 {
            line.push_str(&format!("; {} more", node.more));
        }
        lines.push(line);
        node.children.iter().for_each(|child| write(child, depth + 1, lines));
    }

    fn describe_tree(root: &str, all: &[(ObjectId, Live)], extent: &Extent) -> Vec<String> {
        let mut lines = Vec::new();
        write(&build_stepwise(root, all, extent).0, 0, &mut lines);
        lines
    }

    #[test]
    fn tree_of_package_shows_its_releases_and_their_objects() {
        let release = |name: &str, uid: &str| json!({"component": name, "namespace": "a", "name": name, "uid": uid});
        let helm_release = |name: &str, uid: &str, entries: Value| {
            let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
                "metadata": {"name": name, "namespace": "a", "uid": uid}, "spec": {},
                "status": {"inventory": {"entries": entries}, "conditions": [{"type": "Ready", "status": "True", "reason": "InstallSucceeded", "message": ""}]}});
            (
                id(&format!("a_{name}_helm.toolkit.fluxcd.io_HelmRelease")),
                Live::Present(Object(object)),
            )
        };
        let installed = |name: &str, by: &str| {
            let labels = json!({"helm.toolkit.fluxcd.io/name": by, "helm.toolkit.fluxcd.io/namespace": "a"});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a", "labels": labels}});
            (id(&format!("a_{name}__ConfigMap")), Live::Present(Object(object)))
        };
        let package = json!({"apiVersion": "cozystack.io/v1alpha1", "kind": "Package", "metadata": {"name": "p"}, "spec": {},
            "status": {"releases": [release("one", "1"), release("two", "2"), release("gone", "")],
                       "conditions": [{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": ""}]}});
        let all = [
            (id("_p_cozystack.io_Package"), Live::Present(Object(package))),
            helm_release(
                "one",
                "1",
                json!([{"id": "a_own__ConfigMap", "v": "v1"}, {"id": "a_other__ConfigMap", "v": "v1"}]),
            ),
            helm_release("two", "3", json!([])),
            installed("own", "one"),
            installed("other", "two"),
        ];
        assert_eq!(
            describe_tree("_p_cozystack.io_Package", &all, &EXTENT),
            [
                "Package/p Ready",
                "  HelmRelease/a/one Ready",
                "    ConfigMap/a/own Ready",
                "    ConfigMap/a/other Ready; its labels don't say that this HelmRelease installed it",
                "  HelmRelease/a/two Ready; it is not the one that the Package created",
                "  HelmRelease/a/gone Absent",
            ]
        );
    }

    const TOP: &str = "a_top_kustomize.toolkit.fluxcd.io_Kustomization";
    const APPS: &str = "a_apps_kustomize.toolkit.fluxcd.io_Kustomization";

    #[test]
    fn tree_follows_nested_kustomizations_and_shows_every_state() {
        let forbidden = Failure {
            code: 403,
            reason: Reason::Forbidden,
            message: "you may not".to_owned(),
            ..Failure::default()
        };
        let all = [
            kustomization(
                "top",
                "nobody",
                &[APPS, "a_first__ConfigMap", "a_gone__ConfigMap", "no id"],
            ),
            kustomization("apps", "top", &["a_hidden__Secret", "a_taken__ConfigMap"]),
            make_config_map("first", "top"),
            make_config_map("taken", "other"),
            (id("a_hidden__Secret"), Live::Failed(forbidden)),
        ];
        assert_eq!(
            describe_tree(TOP, &all, &EXTENT),
            [
                "Kustomization/a/top Ready",
                "  Kustomization/a/apps Ready",
                "    Secret/a/hidden Forbidden",
                "    ConfigMap/a/taken Ready; its labels say that Kustomization a/other applied it",
                "  ConfigMap/a/first Ready",
                "  ConfigMap/a/gone Absent",
                "  no id Unknown",
            ]
        );
        let (node, rounds) = build_stepwise(TOP, &all, &EXTENT);
        assert_eq!((node.count_forbidden(), rounds), (1, 3));
        let compact = Extent {
            compact: true,
            ..EXTENT
        };
        assert_eq!(
            describe_tree(TOP, &all, &compact),
            ["Kustomization/a/top Ready", "  Kustomization/a/apps Ready"]
        );
    }

    #[test]
    fn tree_names_cycles_and_follows_shared_kustomization_once() {
        let all = [
            kustomization("top", "top", &[APPS, TOP]),
            kustomization("apps", "top", &[TOP, "a_first__ConfigMap"]),
            make_config_map("first", "apps"),
        ];
        assert_eq!(
            describe_tree(TOP, &all, &EXTENT),
            [
                "Kustomization/a/top Ready",
                "  Kustomization/a/apps Ready",
                "    Kustomization/a/top Ready; its labels say that Kustomization a/top applied it; it is part of a cycle: Kustomization/a/top -> Kustomization/a/apps -> Kustomization/a/top",
                "    ConfigMap/a/first Ready",
                "  Kustomization/a/top Ready; it is part of a cycle: Kustomization/a/top -> Kustomization/a/top",
            ]
        );
        let left = "a_left_kustomize.toolkit.fluxcd.io_Kustomization";
        let all = [
            kustomization("top", "top", &[APPS, left]),
            kustomization("left", "top", &[APPS]),
            kustomization("apps", "top", &["a_first__ConfigMap"]),
            make_config_map("first", "apps"),
        ];
        let lines = describe_tree(TOP, &all, &EXTENT);
        assert_eq!(
            lines.iter().filter(|line| line.contains("first")).count(),
            1,
            "{lines:#?}"
        );
        assert!(
            lines.iter().any(|line| line.contains("shown elsewhere in this tree")),
            "{lines:#?}"
        );
    }

    #[test]
    fn depth_and_numbers_have_a_bound() {
        // Each has the same hundred, which have the same hundred: a hundred to the hundredth, were they followed.
        let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
        let entries: Vec<String> = names
            .iter()
            .map(|name| format!("a_{name}_kustomize.toolkit.fluxcd.io_Kustomization"))
            .collect();
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        let all: Vec<_> = names.iter().map(|name| kustomization(name, "n0", &entries)).collect();
        let extent = Extent {
            objects: 1_000,
            ..EXTENT
        };
        let lines = describe_tree(entries[0], &all, &extent);
        assert_eq!(lines.len(), 1_000);
        assert!(lines.iter().any(|line| line.ends_with("; 100 more")), "{lines:#?}");

        // A chain without an end.
        let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
        let all: Vec<_> = names
            .windows(2)
            .map(|pair| {
                let next = format!("a_{}_kustomize.toolkit.fluxcd.io_Kustomization", pair[1]);
                kustomization(&pair[0], "x", &[&next])
            })
            .collect();
        let extent = Extent { depth: 1_000, ..EXTENT };
        let lines = describe_tree("a_n0_kustomize.toolkit.fluxcd.io_Kustomization", &all, &extent);
        assert_eq!(lines.len(), DEEPEST + 1, "{lines:#?}");
    }

    #[test]
    fn objects_in_another_cluster_are_not_read_here() {
        let (root, live) = kustomization("top", "x", &["a_first__ConfigMap", APPS]);
        let Live::Present(Object(mut object)) = live else {
            unreachable!("it is there")
        };
        object["spec"]["kubeConfig"] = json!({"secretRef": {"name": "x"}});
        let check = |object: &Value, word: &str| {
            let all = [(root.clone(), Live::Present(Object(object.clone())))];
            let (node, rounds) = build_stepwise(TOP, &all, &EXTENT);
            assert_eq!((node.children.len(), rounds), (2, 1));
            for child in &node.children {
                assert_eq!(child.object_state.state, State::Elsewhere);
                assert!(
                    child.object_state.message.contains(word),
                    "{}",
                    child.object_state.message
                );
            }
        };
        check(&object, "spec.kubeConfig");
        let conditions = object["status"]["conditions"].as_array_mut().expect("a list");
        conditions.push(json!({"type": "AppliedElsewhere", "status": "True", "message": "abc123 is the cluster that"}));
        check(&object, "abc123");
        // A user who removes the field has not moved the objects into this cluster.
        object["spec"] = json!({});
        check(&object, "abc123");
    }

    #[test]
    fn a_surface_has_what_it_generated() {
        let surface = json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": {"name": "shop", "namespace": "a", "uid": "u"},
            "spec": {"sources": [{"name": "web", "url": "https://x", "paths": [{"name": "one", "path": "1"}, {"name": "two", "path": "2"}]}]}});
        let child = |kind: &str, group: &str, name: &str, uid: &str| {
            let object = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name, "namespace": "a",
                "ownerReferences": [{"uid": uid}]}});
            (id(&format!("a_{name}_{group}_{kind}")), Live::Present(Object(object)))
        };
        let all = [
            (id("a_shop_tenure.dev_Surface"), Live::Present(Object(surface))),
            child("GitRepository", SOURCE_GROUP, "shop-web", "u"),
            child("Kustomization", KUSTOMIZE_GROUP, "shop-web-one", "u"),
            child("Kustomization", KUSTOMIZE_GROUP, "shop-web-two", "another"),
        ];
        let lines = describe_tree("a_shop_tenure.dev_Surface", &all, &EXTENT);
        let expected = [
            "Surface/a/shop Unknown",
            "  GitRepository/a/shop-web Unknown",
            "  Kustomization/a/shop-web-one Unknown",
            "  Kustomization/a/shop-web-two Unknown; it doesn't say that this Surface generated it",
        ];
        assert_eq!(lines, expected);
    }
}
