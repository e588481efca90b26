//! Trees of Kustomizations, Surfaces and Packages, from objects as data.

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
            "  HelmRelease/a/two Ready; the Package created another one of this name",
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
