//! The lines of fields in a sample of bases, patches, keyed lists and generators.

use std::collections::BTreeMap;

use kustomize::{MapTree, Options, build};
use serde_json::json;
use tenure_planner::fields::find_differences;

use super::*;

const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  annotations:
    example.org/team: blue
spec:
  replicas: 1
  template:
    spec:
      containers:
      - name: side
        image: side:1
      - name: web
        image: web:1
        args: [a, b]
        ports:
        - containerPort: 80
        - containerPort: 443
          protocol: TCP
";
const PATCH: &str = "apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 3
  paused: true
";
const OVERLAY: &str = "resources: [../base, secret.yaml]
patches:
- path: patch.yaml
- target: {kind: Deployment}
  patch: |-
    - op: add
      path: /metadata/annotations/example.org~1tier
      value: front
images:
- name: side
  newTag: \"2\"
configMapGenerator:
- name: settings
  options: {disableNameSuffixHash: true}
  literals: [color=green]
  files: [motd.txt]
";
const SECRET: &str = "apiVersion: v1
kind: Secret
metadata:
  name: access
stringData:
  user: web
  password: sesame
";

fn sample() -> BTreeMap<String, BuiltResource> {
    let mut tree = MapTree::new();
    for (path, text) in [
        ("base/kustomization.yaml", "resources: [web.yaml]\n"),
        ("base/web.yaml", DEPLOYMENT),
        ("over/kustomization.yaml", OVERLAY),
        ("over/patch.yaml", PATCH),
        ("over/secret.yaml", SECRET),
        ("over/motd.txt", "hello\n"),
    ] {
        tree.insert(path, text);
    }
    let built = build(&tree, "over", &Options::default()).unwrap();
    let name = |resource: &BuiltResource| ObjectView::new(&resource.object).read_text("/kind").to_owned();
    built
        .resources
        .into_iter()
        .map(|resource| (name(&resource), resource))
        .collect()
}

/// Returns the object with another value at a pointer, and `None` for a pointer to an identity that can't change.
fn change(object: &Value, pointer: &str) -> Value {
    let mut changed = object.clone();
    *changed.pointer_mut(pointer).unwrap() = json!("changed");
    changed
}

#[test]
fn diff_and_who_name_one_line_for_each_field() {
    let sample = sample();
    // The field as managedFields name it, which `who` prints, the place in the built object, and the line.
    let rows = [
        (
            "Deployment",
            ".metadata.annotations.example.org/team",
            "/metadata/annotations/example.org~1team",
            "base/web.yaml:6",
        ),
        (
            "Deployment",
            ".metadata.annotations.example.org/tier",
            "/metadata/annotations/example.org~1tier",
            "over/kustomization.yaml:8",
        ),
        ("Deployment", ".spec.replicas", "/spec/replicas", "over/patch.yaml:6"),
        ("Deployment", ".spec.paused", "/spec/paused", "over/patch.yaml:7"),
        (
            "Deployment",
            ".spec.template.spec.containers[name=\"web\"].image",
            "/spec/template/spec/containers/1/image",
            "base/web.yaml:15",
        ),
        (
            "Deployment",
            ".spec.template.spec.containers[name=\"side\"].image",
            "/spec/template/spec/containers/0/image",
            "base/web.yaml:13",
        ),
        (
            "Deployment",
            ".spec.template.spec.containers[name=\"web\"].ports[containerPort=443,protocol=\"TCP\"].protocol",
            "/spec/template/spec/containers/1/ports/1/protocol",
            "base/web.yaml:20",
        ),
        ("ConfigMap", ".data.color", "/data/color", "over/kustomization.yaml:15"),
        ("ConfigMap", ".data.motd.txt", "/data/motd.txt", "over/motd.txt:1"),
        ("Secret", ".data.password", "/stringData/password", "over/secret.yaml:7"),
    ];
    for (kind, field, pointer, line) in rows {
        let built = &sample[kind];
        let path = read_path(field);
        let of_who = locate_field(built, &path).map(|origin| origin.to_string());
        assert_eq!(of_who.as_deref(), Some(line), "{kind} {field}");
        // `diff` compares the live object with the one that the API server would store.
        let live = change(&built.object, pointer);
        let differences = find_differences(&live, &built.object);
        assert_eq!(differences.len(), 1, "{kind} {field}");
        let of_diff = locate_field(built, &differences[0].make_field_path()).map(|origin| origin.to_string());
        assert_eq!(of_diff, of_who, "{kind} {field}, as {}", differences[0].path);
    }
}

/// Reads a path, with dots and slashes in the names of entries.
fn read_path(field: &str) -> FieldPath {
    for holder in [".metadata.annotations.", ".data."] {
        if let Some(entry) = field.strip_prefix(holder) {
            let mut path: FieldPath = holder.trim_end_matches('.').parse().unwrap();
            path.0.push(PathElement::field(entry));
            return path;
        }
    }
    field.parse().unwrap()
}

#[test]
fn every_changed_leaf_has_the_line_of_its_place() {
    for (kind, built) in sample() {
        let mut pointers = Vec::new();
        list_leaves(&built.object, &mut String::new(), &mut pointers);
        assert!(pointers.len() > 3, "{kind}");
        for pointer in pointers {
            // The name of a list item is how the item is found.
            if pointer.ends_with("/name") && pointer.contains("/containers/") {
                continue;
            }
            let expected = built.locate(&pointer).map(|location| location.to_string());
            let differences = find_differences(&change(&built.object, &pointer), &built.object);
            let found = locate_field(&built, &differences[0].make_field_path()).map(|origin| origin.to_string());
            assert_eq!(found, expected, "{kind} {pointer}");
        }
    }
}

fn list_leaves(value: &Value, pointer: &mut String, leaves: &mut Vec<String>) {
    let parts: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| (index.to_string(), item))
            .collect(),
        _ => return leaves.push(pointer.clone()),
    };
    for (part, value) in parts {
        let before = pointer.len();
        pointer.push('/');
        pointer.push_str(&part);
        list_leaves(value, pointer, leaves);
        pointer.truncate(before);
    }
}

#[test]
fn keyed_items_become_indices() {
    let object = json!({
        "spec": { "containers": [{ "name": "a", "image": "1" }, { "name": "b", "image": "2" }],
                  "ports": [{ "port": 80 }, { "port": 80, "protocol": "UDP" }] },
        "metadata": { "labels": { "x/y": "z" }, "finalizers": ["one", "two"] },
    });
    for (path, want) in [
        (".spec.containers[name=\"b\"].image", Some("/spec/containers/1/image")),
        (".spec.containers[name=\"c\"].image", None),
        (".spec.ports[port=80,protocol=\"TCP\"].port", Some("/spec/ports/0/port")),
        (".spec.ports[port=80,protocol=\"UDP\"].port", Some("/spec/ports/1/port")),
        (".spec.ports[port=81,protocol=\"UDP\"].port", None),
        (".metadata.labels['x/y']", Some("/metadata/labels/x~1y")),
        (".metadata.finalizers[=\"two\"]", Some("/metadata/finalizers/1")),
        (".spec.nothing", None),
    ] {
        let path: FieldPath = path.parse().unwrap();
        assert_eq!(find_pointer(&object, &path).as_deref(), want, "{path}");
    }
}
