//! An interrupted installation, and installations of one version after another on the same cluster, up and down. From every state, `tenure install` produces this
//! version's installation, and `tenure uninstall` removes it.
//!
//! The tests run on real control planes of their own, because definitions that other tests use come and go.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use kube::api::{Patch, PatchParams};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tenure_api::metadata::{
    AUTHOR_CLUSTER_ROLE, HELM_AUTHOR_CLUSTER_ROLE, HOME_OWNER_CLUSTER_ROLE, NAMESPACE_DELETER_CLUSTER_ROLE,
    NAMESPACE_EDITOR_CLUSTER_ROLE, TENANT_GITOPS_CLUSTER_ROLE, TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE,
    TENANT_GITOPS_HOME_CLUSTER_ROLE, VIEW_CLUSTER_ROLE, VIEWER_CLUSTER_ROLE,
};
use tenure_testkit::eventually;

use crate::process::{run, tenure};
use crate::world::{Admin, Cluster, Controllers, PATIENCE, describe, name_object};

const IMAGE: &str =
    "registry.example/tenure:0.1.0@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// The arguments for everything that this version can install.
const INSTALL: [&str; 5] = ["install", "--image", IMAGE, "--policies", "--admission"];

const POLICY_GROUP: &str = "admissionregistration.k8s.io/v1";
const RIGHTS_GROUP: &str = "rbac.authorization.k8s.io/v1";

/// Returns the objects of that installation.
fn list_installed() -> Vec<Value> {
    let exported = run(&[&INSTALL[..], &["--export"]].concat());
    assert!(exported.status.success(), "{}", describe(&exported));
    let text = String::from_utf8(exported.stdout).unwrap();
    let built = kustomize::read_manifests("exported", &text, &kustomize::Limits::default()).unwrap();
    let mut objects: Vec<Value> = Vec::new();
    for object in built.into_iter().map(|built| built.object) {
        // The last one of duplicate objects counts.
        objects.retain(|other| {
            (&other["kind"], &other["metadata"]["name"]) != (&object["kind"], &object["metadata"]["name"])
        });
        objects.push(object);
    }
    objects
}

/// Applies as the installer does, so omitted fields are removed.
async fn install_other(admin: &Admin, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let parameters = PatchParams::apply("tenure").force();
    let applied = admin.api(object).patch(name, &parameters, &Patch::Apply(object)).await;
    applied.unwrap();
}

/// Whether `found` contains all of `wanted`; lists have no further entries.
fn has_all(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| has_all(found.get(name).unwrap_or(&Value::Null), wanted)),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| has_all(found, wanted))
        }
        // A server omits empty values, and writes numbers in its own way.
        (Value::Null, wanted) => [json!({}), json!([]), json!(""), json!(false), Value::Null].contains(wanted),
        (Value::Number(found), Value::Number(wanted)) => found.as_f64() == wanted.as_f64(),
        (found, wanted) => found == wanted,
    }
}

/// Expects all objects as this version installs them.
async fn expect_installed(admin: &Admin, objects: &[Value]) {
    for object in objects {
        let found = admin.find(object).await;
        let name = (&object["kind"], &object["metadata"]["name"]);
        let found = found.unwrap_or_else(|| panic!("{name:?} is not there"));
        // Fields that no manager applies: an API server's own defaults inside of lists.
        for field in ["rules", "roleRef", "subjects", "data"] {
            assert!(has_all(&found[field], &object[field]), "{name:?}: {field}");
        }
        let containers = "/spec/template/spec/containers/0";
        for field in ["image", "args"] {
            let pointer = format!("{containers}/{field}");
            assert_eq!(found.pointer(&pointer), object.pointer(&pointer), "{name:?}: {field}");
        }
        let versions = object["spec"]["versions"].as_array();
        for (index, version) in versions.into_iter().flatten().enumerate() {
            let properties = "/schema/openAPIV3Schema/properties/spec/properties";
            let list = |object: &Value| {
                let properties = object.pointer(properties).and_then(Value::as_object);
                properties.map(|properties| properties.keys().cloned().collect::<Vec<_>>())
            };
            assert_eq!(list(&found["spec"]["versions"][index]), list(version), "{name:?}");
        }
    }
}

/// Expects that the controllers can work with the installed objects.
async fn expect_work(cluster: &Cluster, data: &str) {
    let mut controllers = Controllers::start(&cluster.kubeconfig, &cluster.data(data), &["--policies"]);
    cluster.admin.wait_for_leader(&controllers.candidate).await;
    assert_eq!(controllers.signal(Signal::SIGTERM), Some(0));
}

/// Kills the program after it has reported this many objects.
fn cut_off_after(cluster: &Cluster, objects: usize) {
    let mut installing = tenure(&INSTALL)
        .env("KUBECONFIG", &cluster.kubeconfig)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(installing.stdout.take().unwrap()).lines();
    let reported = lines.take(objects).filter(|line| line.is_ok()).count();
    assert_eq!(reported, objects, "it ended before it was cut off");
    installing.kill().unwrap();
    assert!(!installing.wait().unwrap().success());
}

/// Whether an object is removed with the controllers. Kinds stay, and the roles of people and tenants.
fn goes(object: &Value) -> bool {
    let held = [
        TENANT_GITOPS_CLUSTER_ROLE,
        TENANT_GITOPS_HOME_CLUSTER_ROLE,
        TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE,
        HELM_AUTHOR_CLUSTER_ROLE,
        HOME_OWNER_CLUSTER_ROLE,
        NAMESPACE_DELETER_CLUSTER_ROLE,
        NAMESPACE_EDITOR_CLUSTER_ROLE,
        VIEW_CLUSTER_ROLE,
        AUTHOR_CLUSTER_ROLE,
        VIEWER_CLUSTER_ROLE,
    ];
    let is_held = held.iter().any(|name| object["metadata"]["name"] == *name);
    object["kind"] != "CustomResourceDefinition" && !is_held
}

#[tokio::test]
async fn next_command_finishes_or_removes_interrupted_installation() {
    let Some(cluster) = Cluster::start_real_bare(&[]).await else {
        return;
    };
    let objects = list_installed();
    // After the kinds, and after nearly all objects.
    for count in [objects.len() / 4, objects.len() - 3] {
        cut_off_after(&cluster, count);
        cluster.check(&["uninstall", "--yes", "--with-protection"], 0, &[]);
        for object in objects.iter().filter(|object| goes(object)) {
            cluster.admin.wait_until_gone(object).await;
        }
        cut_off_after(&cluster, count);
        cluster.check(&INSTALL, 0, &["applied Deployment tenure-controller"]);
        expect_installed(&cluster.admin, &objects).await;
    }
    expect_work(&cluster, "run").await;
    cluster.check(&["uninstall", "--yes"], 0, &["Namespace tenure-system: deleted"]);
    cluster
        .wait_until_settled(&name_object("v1", "Namespace", "", "tenure-system"))
        .await;
}

/// Returns the object of a newer version, with more fields that an API server stores unchanged.
fn write_tomorrow(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut) {
        rules.push(json!({"apiGroups": ["of.tomorrow"], "resources": ["things"], "verbs": ["get"]}));
    }
    if let Some(arguments) = object.pointer_mut("/spec/template/spec/containers/0/args") {
        arguments.as_array_mut().unwrap().push(json!("--of-tomorrow"));
    }
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    if let Some(properties) = object.pointer_mut(properties) {
        properties["ofTomorrow"] = json!({"type": "string"});
    }
    object
}

/// Returns the object of an older version, with fewer fields; `None` if that version had no such object.
fn write_yesterday(object: &Value) -> Option<Value> {
    let name = object["metadata"]["name"].as_str().unwrap();
    if name.starts_with("enforcements.") || name == "tenure-policies" {
        return None;
    }
    let mut object = object.clone();
    if let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut) {
        rules.truncate(1);
    }
    if let Some(container) = object.pointer_mut("/spec/template/spec/containers/0") {
        container["image"] = json!("registry.example/tenure:0.0.1");
        container["args"] = json!(["run"]);
    }
    Some(object)
}

#[tokio::test]
async fn installation_replaces_objects_of_another_version() {
    let Some(cluster) = Cluster::start_real_bare(&[]).await else {
        return;
    };
    let (admin, objects) = (&cluster.admin, list_installed());
    for object in objects.iter().map(write_tomorrow) {
        install_other(admin, &object).await;
    }
    let labels = json!({"app.kubernetes.io/managed-by": "tenure"});
    let mut policy = name_object(POLICY_GROUP, "ValidatingAdmissionPolicy", "", "tenure-of-tomorrow");
    policy["metadata"]["labels"] = labels.clone();
    let nodes = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]});
    policy["spec"] = json!({"matchConstraints": {"resourceRules": [nodes]}, "validations": [{"expression": "true"}]});
    let mut binding = name_object(
        POLICY_GROUP,
        "ValidatingAdmissionPolicyBinding",
        "",
        "tenure-of-tomorrow",
    );
    binding["metadata"]["labels"] = labels;
    binding["spec"] = json!({"policyName": "tenure-of-tomorrow", "validationActions": ["Deny"]});
    install_other(admin, &policy).await;
    install_other(admin, &binding).await;
    // This version reads objects of a newer version, which it doesn't know completely.
    let mut tenant = name_object("capsule.clastix.io/v1beta2", "Tenant", "", "of-two-versions");
    tenant["spec"] = json!({"owners": [{"kind": "User", "name": "olga"}], "ofTomorrow": "kept"});
    let api = admin.api(&tenant);
    let parameters = PatchParams::apply("somebody").force();
    // The definition needs a moment to be served with the field.
    let kept = eventually(PATIENCE, || async {
        match api.patch("of-two-versions", &parameters, &Patch::Apply(&tenant)).await {
            Ok(applied) if applied.data["spec"]["ofTomorrow"] == "kept" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    kept.await.unwrap();

    // Back to this version.
    cluster.check(
        &INSTALL,
        0,
        &[
            "ValidatingAdmissionPolicyBinding tenure-of-tomorrow: deleted, this version doesn't make it",
            "ValidatingAdmissionPolicy tenure-of-tomorrow: deleted, this version doesn't make it",
        ],
    );
    expect_installed(admin, &objects).await;
    assert!(admin.find(&policy).await.is_none() && admin.find(&binding).await.is_none());
    expect_work(&cluster, "after-tomorrow").await;
    cluster.check(&["get", "tenants"], 0, &["of-two-versions"]);

    // Up from an older version.
    cluster.check(&["uninstall", "--yes"], 0, &["Namespace tenure-system: deleted"]);
    admin
        .wait_until_gone(&name_object("v1", "Namespace", "", "tenure-system"))
        .await;
    for object in objects.iter().filter_map(write_yesterday) {
        install_other(admin, &object).await;
    }
    cluster.check(&INSTALL, 0, &["applied Deployment tenure-controller"]);
    expect_installed(admin, &objects).await;
    expect_work(&cluster, "after-yesterday").await;

    admin.delete(&tenant).await;
    cluster.check(&["uninstall", "--yes"], 0, &["Namespace tenure-system: deleted"]);
    cluster
        .wait_until_settled(&name_object("v1", "Namespace", "", "tenure-system"))
        .await;
    assert!(
        admin
            .find(&name_object(RIGHTS_GROUP, "ClusterRole", "", "tenure-policies"))
            .await
            .is_none()
    );
}
