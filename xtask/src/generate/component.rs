//! Lanes in Pods for users that install with a kustomization: a component on top of a kustomization that sets the image. It adds to `deploy/` what `tenure install
//! --lanes deployment` installs in addition. Its patches test their places. Over a changed Deployment or policy, the build fails.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tenure_api::metadata::CONTROLLER_SERVICE_ACCOUNT;
use tenure_api::workload::{self, Workload};

use super::{HEADER, POLICY, describe_workload, file_name, list_lanes, write_document};

/// The folder of the component.
pub(super) const FOLDER: &str = "deploy/lane-pods";
/// The arguments of the only container, and its ports.
const ARGUMENTS: &str = "/spec/template/spec/containers/0/args";
const PORTS: &str = "/spec/template/spec/containers/0/ports";
const IMAGE_ARGUMENT: &str = "--lane-image=";

/// Writes the files.
pub(super) fn write_component() -> Result<BTreeMap<PathBuf, String>> {
    let folder = Path::new(FOLDER);
    let plain = workload::objects(&describe_workload());
    let chosen = workload::objects(&Workload {
        lanes: true,
        ..describe_workload()
    });
    let mut files = BTreeMap::new();
    let mut resources = Vec::new();
    let is_new = |object: &&Value| !plain.iter().any(|other| is_same(other, object));
    let lanes = list_lanes(&describe_workload());
    for object in lanes.iter().chain(chosen.iter().filter(is_new)) {
        let path = file_name(object)?;
        let (_, name) = path.split_once('/').unwrap_or(("", &path));
        resources.push(json!(name));
        files.insert(folder.join(name), write_document(object));
    }
    let mut patches = Vec::new();
    for (without, with) in plain.iter().filter_map(|plain| {
        let changed = chosen.iter().find(|object| is_same(object, plain) && *object != plain);
        changed.map(|changed| (plain, changed))
    }) {
        let (kind, name) = (read_text(with, "/kind"), read_text(with, "/metadata/name"));
        let path = format!("patch-{}.yaml", kind.to_lowercase());
        files.insert(folder.join(&path), write_document(&describe_change(without, with)));
        patches.push(json!({"path": path, "target": {"kind": kind, "name": name}}));
    }
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component",
        "resources": resources, "patches": patches, "replacements": [copy_image(&chosen, &lanes)?]
    });
    let head = "# A kustomization of yours adds it, on top of the one that names the image, which lanes run, too:\n\
                #   resources: [that one]\n\
                #   components: [this folder]\n";
    let text = write_document(&kustomization).replacen(HEADER, &format!("{HEADER}{head}"), 1);
    files.insert(folder.join("kustomization.yaml"), text);
    Ok(files)
}

fn read_text<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn is_same(object: &Value, other: &Value) -> bool {
    let has_same = |path: &str| read_text(object, path) == read_text(other, path);
    has_same("/kind") && has_same("/metadata/name")
}

/// Copies the image of the controllers to the lanes, and to the policies that limit the image of lanes.
fn copy_image(objects: &[Value], lanes: &[Value]) -> Result<Value> {
    let deployment = objects.iter().find(|object| read_text(object, "/kind") == "Deployment");
    let list = deployment
        .map(|deployment| read_list(deployment, ARGUMENTS))
        .unwrap_or_default();
    let is_image = |argument: &Value| argument.as_str().is_some_and(|text| text.starts_with(IMAGE_ARGUMENT));
    let place = list.iter().position(is_image);
    let place = place.context("the controllers have no flag for the image of lanes")?;
    let select = json!({"kind": "Deployment", "name": CONTROLLER_SERVICE_ACCOUNT});
    let policy = lanes.iter().find(|object| read_text(object, "/kind") == POLICY);
    let policy = policy.context("nothing bounds what lanes run")?;
    Ok(json!({
        "source": {"kind": "Deployment", "name": CONTROLLER_SERVICE_ACCOUNT, "fieldPath": "spec.template.spec.containers.0.image"},
        "targets": [{
            "select": select, "fieldPaths": [format!("spec.template.spec.containers.0.args.{place}")],
            "options": {"delimiter": "=", "index": 1}
        }, {
            "select": {"kind": POLICY, "name": read_text(policy, "/metadata/name")},
            "fieldPaths": ["spec.variables.[name=image].expression"],
            "options": {"delimiter": "'", "index": 1}
        }]
    }))
}

/// Describes the change of a Deployment or a NetworkPolicy as a JSON patch: added arguments and ingress, and removed egress, with a test of the removed part.
fn describe_change(without: &Value, with: &Value) -> Value {
    let mut changes = Vec::new();
    for path in [ARGUMENTS, PORTS] {
        let known = read_list(without, path);
        for (index, item) in read_list(with, path).iter().enumerate() {
            if !known.contains(item) {
                changes.push(json!({"op": "add", "path": format!("{path}/{index}"), "value": item}));
            }
        }
    }
    let kept = read_list(with, "/spec/egress");
    for (index, rule) in read_list(without, "/spec/egress").iter().enumerate().rev() {
        if !kept.contains(rule) {
            let path = format!("/spec/egress/{index}");
            changes.push(json!({"op": "test", "path": path, "value": rule}));
            changes.push(json!({"op": "remove", "path": path}));
        }
    }
    if let Some(ingress) = with.pointer("/spec/ingress") {
        changes.push(json!({"op": "add", "path": "/spec/ingress", "value": ingress}));
    }
    Value::Array(changes)
}

fn read_list<'v>(object: &'v Value, path: &str) -> &'v [Value] {
    let found = object.pointer(path).and_then(Value::as_array);
    found.map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kustomize::{MapTree, Options};

    use super::*;

    type TestResult = Result<()>;

    /// An image as a user names it.
    const OTHER: &str =
        "registry.example/tenure@sha256:0000000000000000000000000000000000000000000000000000000000000000";

    /// Builds a folder, beside the generated files.
    fn build(folder: &str, more: &[(&str, &str)]) -> Result<Vec<String>> {
        let mut tree = MapTree::new();
        for (path, text) in super::super::generate_files()? {
            tree.insert(&path.display().to_string(), text);
        }
        for (path, text) in more {
            tree.insert(path, *text);
        }
        let built = kustomize::build(&tree, folder, &Options::default())?;
        let mut objects: Vec<String> = built
            .resources
            .iter()
            .map(|built| super::super::write_plainly(&built.object))
            .collect();
        objects.sort();
        Ok(objects)
    }

    fn expect(built: &[String], objects: &[Value]) {
        let mut expected: Vec<String> = objects.iter().map(super::super::write_plainly).collect();
        expected.sort();
        assert!(
            built == expected,
            "the kustomization holds other objects than are installed"
        );
    }

    /// The files build to the objects of the installation, by themselves and with the component on top of a chosen image.
    #[test]
    fn the_kustomization_is_the_objects_of_the_installation() -> TestResult {
        expect(&build("deploy", &[])?, &super::super::list_objects()?);
        let image = "resources: [../deploy]\n\
                     images: [{name: tenure, newName: registry.example/tenure, digest: \"sha256:0000000000000000000000000000000000000000000000000000000000000000\"}]\n";
        let lanes = "resources: [../image]\ncomponents: [../deploy/lane-pods]\n";
        let built = build(
            "lanes",
            &[("image/kustomization.yaml", image), ("lanes/kustomization.yaml", lanes)],
        )?;
        let mut objects = super::super::list_installed()?;
        super::super::add_enforcement(&mut objects, true, true);
        let chosen = Workload {
            image: OTHER.to_owned(),
            lanes: true,
            ..describe_workload()
        };
        objects.extend(list_lanes(&chosen));
        objects.extend(workload::objects(&chosen));
        expect(&built, &objects);
        Ok(())
    }

    /// If the controllers' policy differs from the expected one, no rule is removed by its index.
    #[test]
    fn another_policy_is_not_taken_for_this_one() {
        let other = "resources: [../deploy]\npatches:\n- target: {kind: NetworkPolicy, name: tenure-controller}\n  patch: |-\n    \
                     - {op: add, path: /spec/egress/0, value: {ports: [{port: 22, protocol: TCP}]}}\n";
        let lanes = "resources: [../other]\ncomponents: [../deploy/lane-pods]\n";
        let built = build(
            "lanes",
            &[("other/kustomization.yaml", other), ("lanes/kustomization.yaml", lanes)],
        );
        let problem = built.expect_err("the rule is another one").to_string();
        assert!(problem.contains("/spec/egress/1"), "{problem}");
    }
}
