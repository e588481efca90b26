//! `tenure recover` on any API server, as a user with only the documented rights: the plan, the recovery, and the refusals that change nothing. A task stands in for the
//! operator of Packages, since no controllers run.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::process::tenure;
use crate::world::{Admin, Cluster, describe, name_object};

const COZYSTACK: &str = "cozystack.io/v1alpha1";
const RBAC: &str = "rbac.authorization.k8s.io";
const NAME: &str = "example.metallb";
const HIDDEN: &str = "hidden-value";
/// The documented rights on the Package.
const VERBS: [&str; 5] = ["get", "list", "watch", "patch", "override"];

fn package() -> Value {
    name_object(COZYSTACK, "Package", "", NAME)
}

/// Returns the Package as the chart renders it.
fn rendered() -> Value {
    let mut package = package();
    package["metadata"]["annotations"] = json!({ "helm.sh/resource-policy": "keep" });
    package["metadata"]["labels"] =
        json!({ "helm.toolkit.fluxcd.io/name": "platform", "helm.toolkit.fluxcd.io/namespace": "cozy-system" });
    package["spec"] =
        json!({ "variant": "default", "components": { "metallb": { "values": { "controller": { "replicas": 2 } } } } });
    package
}

fn manifest() -> String {
    let secret =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "x" }, "stringData": { "token": HIDDEN } });
    format!("---\n# Source: a\n{secret}\n---\n# Source: b\n{}\n", rendered())
}

/// Writes an object by server-side apply, as a field manager.
async fn apply_as(admin: &Admin, manager: &str, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let parameters = PatchParams::apply(manager).force();
    admin
        .api(object)
        .patch(name, &parameters, &Patch::Apply(object))
        .await
        .unwrap();
}

fn pack(content: &[u8]) -> String {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(content).unwrap();
    STANDARD.encode(packed.finish().unwrap())
}

/// Writes the Secret of a revision, as Helm does.
async fn store_revision(admin: &Admin, revision: u32, status: &str, release: &str) {
    let mut secret = name_object(
        "v1",
        "Secret",
        "cozy-system",
        &format!("sh.helm.release.v1.platform.v{revision}"),
    );
    secret["type"] = json!("helm.sh/release.v1");
    secret["metadata"]["labels"] =
        json!({ "owner": "helm", "name": "platform", "status": status, "version": revision.to_string() });
    secret["stringData"] = json!({ "release": release });
    apply_as(admin, "helm-controller", &secret).await;
}

fn content(revision: u32, manifest: &str) -> String {
    let content = json!({
        "name": "platform", "namespace": "cozy-system", "version": revision, "manifest": manifest,
        "info": { "status": "deployed" }, "config": { "password": HIDDEN }
    });
    pack(content.to_string().as_bytes())
}

/// Gives a user these verbs on the Package, and the right to read the release, if wanted.
async fn allow(admin: &Admin, user: &str, verbs: &[&str], reads_release: bool) {
    let mut rules = vec![
        json!({ "apiGroups": ["cozystack.io"], "resources": ["packages"], "resourceNames": [NAME], "verbs": verbs }),
    ];
    if reads_release {
        rules.push(json!({ "apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["cozy-system"], "verbs": ["get"] }));
    }
    let subjects = json!([{ "apiGroup": RBAC, "kind": "User", "name": user }]);
    let bind = |kind: &str, role: &str, namespace: &str| {
        let mut binding = name_object(&format!("{RBAC}/v1"), kind, namespace, user);
        binding["roleRef"] = json!({ "apiGroup": RBAC, "kind": role, "name": user });
        binding["subjects"] = subjects.clone();
        binding
    };
    let mut role = name_object(&format!("{RBAC}/v1"), "ClusterRole", "", user);
    role["rules"] = json!(rules);
    admin.apply(role).await;
    admin.apply(bind("ClusterRoleBinding", "ClusterRole", "")).await;
    if reads_release {
        let mut role = name_object(&format!("{RBAC}/v1"), "Role", "cozy-system", user);
        role["rules"] = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"] }]);
        admin.apply(role).await;
        admin.apply(bind("RoleBinding", "Role", "cozy-system")).await;
    }
}

/// Starts a cluster with a Package of a chart, its release, and a task that reports the Package's state as an operator does.
async fn start() -> (Cluster, tokio::task::JoinHandle<()>) {
    let cluster = Cluster::start_own_with("--packages", "packagevalues.cozystack.io").await;
    let admin = &cluster.admin;
    admin.apply(name_object("v1", "Namespace", "", "cozy-system")).await;
    store_revision(admin, 1, "superseded", &content(1, "---\n")).await;
    store_revision(admin, 2, "deployed", &content(2, &manifest())).await;
    store_revision(admin, 3, "failed", "?").await;
    let mut installed = rendered();
    installed["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("Helm");
    installed["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("platform");
    installed["metadata"]["annotations"]["meta.helm.sh/release-namespace"] = json!("cozy-system");
    apply_as(admin, "helm-controller", &installed).await;
    let operator = Admin(admin.0.clone());
    let operating = tokio::spawn(async move {
        loop {
            report_state(&operator).await;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    (cluster, operating)
}

/// Writes the conditions of the Package, if its spec has changed.
async fn report_state(operator: &Admin) {
    let Some(found) = operator.find(&package()).await else {
        return;
    };
    let generation = &found["metadata"]["generation"];
    if found["status"]["observedGeneration"] == *generation {
        return;
    }
    let (status, reason) = match found["spec"]["variant"].as_str() {
        Some("default") => ("True", "ReconciliationSucceeded"),
        _ => ("False", "VariantNotFound"),
    };
    let condition = json!({
        "type": "Ready", "status": status, "reason": reason, "message": "reported", "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z"
    });
    let status = json!({ "status": { "observedGeneration": generation, "conditions": [condition] } });
    let parameters = PatchParams {
        field_manager: Some("operator".to_owned()),
        ..PatchParams::default()
    };
    // A write that comes too late is made again.
    let _retried = operator
        .api(&package())
        .patch_status(NAME, &parameters, &Patch::Merge(&status))
        .await;
}

async fn take_variant(admin: &Admin) {
    let mut stolen = package();
    stolen["spec"] =
        json!({ "variant": "oidc", "components": { "other": { "enabled": false, "values": { "a": 1 } } } });
    apply_as(admin, "thief", &stolen).await;
}

/// Returns the managers of a field below `spec`.
fn owners(package: &Value, field: &str) -> Vec<String> {
    let entries = package["metadata"]["managedFields"].as_array().unwrap();
    let owning = entries
        .iter()
        .filter(|entry| entry["fieldsV1"]["f:spec"][format!("f:{field}")].is_object());
    owning
        .map(|entry| entry["manager"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taken_fields_return_to_the_chart() {
    let (cluster, operating) = start().await;
    let admin = &cluster.admin;
    allow(admin, "ruth", &VERBS, true).await;
    cluster.check_as(
        "ruth",
        &["recover", NAME],
        0,
        &["nothing is to be recovered", "revision 2"],
    );
    take_variant(admin).await;
    let plan = [
        "revision 2",
        "restore",
        ".spec.variant",
        "\"oidc\"",
        "keep",
        ".spec.components.other.values.a",
        "thief",
        "with --yes",
    ];
    let printed = cluster.check_as("ruth", &["recover", NAME], 1, &plan);
    assert!(!printed.contains(HIDDEN), "{printed}");
    let data = cluster.check_as(
        "ruth",
        &["recover", NAME, "-o", "json"],
        1,
        &["\"needed\": true", "revision 2"],
    );
    assert!(!data.contains(HIDDEN), "{data}");
    let before = admin.find(&package()).await.unwrap();
    assert_eq!(before["spec"]["variant"], "oidc");
    cluster.check_as(
        "ruth",
        &["recover", NAME, "--yes"],
        0,
        &["recovered", "Package/example.metallb: reported"],
    );
    let after = admin.find(&package()).await.unwrap();
    assert_eq!(after["spec"]["variant"], "default");
    assert_eq!(owners(&after, "variant"), ["helm-controller"]);
    assert_eq!(
        after["spec"]["components"]["other"],
        json!({ "enabled": false, "values": { "a": 1 } })
    );
    // A second run finds nothing, and changes nothing.
    cluster.check_as(
        "ruth",
        &["recover", NAME, "--yes"],
        0,
        &["Package/example.metallb: reported"],
    );
    let again = admin.find(&package()).await.unwrap();
    assert_eq!(again["metadata"]["managedFields"], after["metadata"]["managedFields"]);
    // The fields of the other writer go, if its name is given.
    let removal = ["remove", ".spec.components.other.enabled", "recovered"];
    cluster.check_as("ruth", &["recover", NAME, "--manager", "thief", "--yes"], 0, &removal);
    let reset = admin.find(&package()).await.unwrap();
    assert_eq!(reset["spec"], rendered()["spec"]);
    assert_eq!(owners(&reset, "components"), ["helm-controller"]);
    operating.abort();
}

/// The state after a kill between the two writes: the fields that go are the chart's already, and still there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_goes_on_after_a_kill() {
    let (cluster, operating) = start().await;
    let admin = &cluster.admin;
    allow(admin, "ruth", &VERBS, true).await;
    take_variant(admin).await;
    let mut half = admin.find(&package()).await.unwrap();
    for entry in half["metadata"]["managedFields"].as_array_mut().unwrap() {
        let manager = entry["manager"].as_str().unwrap().to_owned();
        let fields = &mut entry["fieldsV1"]["f:spec"];
        match manager.as_str() {
            "thief" => *fields = json!({ "f:variant": {} }),
            "helm-controller" => {
                fields["f:components"]["f:other"] =
                    json!({ ".": {}, "f:enabled": {}, "f:values": { ".": {}, "f:a": {} } });
            }
            _ => continue,
        }
    }
    let patch = json!({ "metadata": { "managedFields": half["metadata"]["managedFields"] } });
    let api = admin.api(&package());
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    cluster.check_as(
        "ruth",
        &["recover", NAME, "--manager", "thief", "--yes"],
        0,
        &["remove", "recovered"],
    );
    let after = admin.find(&package()).await.unwrap();
    assert_eq!(after["spec"], rendered()["spec"]);
    // Two runs at the same time: both succeed, and the Package has the chart's fields once.
    take_variant(admin).await;
    let kubeconfig = cluster.write_kubeconfig_as("ruth", &[]);
    let runs = [(); 2].map(|()| {
        let mut command = tenure(&["recover", NAME, "--all", "--yes"]);
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        command.env("KUBECONFIG", &kubeconfig).spawn().unwrap()
    });
    for run in runs {
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", describe(&output));
    }
    let after = admin.find(&package()).await.unwrap();
    assert_eq!(after["spec"], rendered()["spec"]);
    operating.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_right_is_named_and_changes_nothing() {
    let (cluster, operating) = start().await;
    let admin = &cluster.admin;
    take_variant(admin).await;
    allow(admin, "olga", &["get"], false).await;
    let secrets = ["you may not get namespace cozy-system", "--from FILE"];
    cluster.check_as("olga", &["recover", NAME], 3, &secrets);
    allow(admin, "nils", &["get", "list", "watch", "patch"], true).await;
    let binding = name_object(&format!("{RBAC}/v1"), "RoleBinding", "cozy-system", "nils");
    cluster.check_as(
        "nils",
        &["recover", NAME, "--yes"],
        3,
        &["you may not override packages.cozystack.io/example.metallb"],
    );
    admin.delete(&binding).await;
    let secrets = [
        "you may not list and get Secrets in namespace cozy-system",
        "--from FILE",
    ];
    cluster.check_as("nils", &["recover", NAME], 3, &secrets);
    let file = cluster.data("manifest.yaml");
    std::fs::write(&file, manifest()).unwrap();
    let file = file.to_str().unwrap();
    // Without the right to watch, the user gets the fields back, and the end is unknown.
    cluster.check_as(
        "olga",
        &["recover", NAME, "--from", file],
        1,
        &["restore", ".spec.variant", "manifest.yaml"],
    );
    cluster.check_as(
        "olga",
        &["recover", NAME, "--from", file, "--yes"],
        3,
        &["you may not patch packages.cozystack.io/example.metallb"],
    );
    cluster.check_as("nobody", &["recover", NAME], 3, &["forbidden"]);
    let package = admin.find(&package()).await.unwrap();
    assert_eq!(package["spec"]["variant"], "oidc");
    allow(admin, "olga", &VERBS, false).await;
    cluster.check_as("olga", &["recover", NAME, "--from", file, "--yes"], 0, &["recovered"]);
    operating.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_release_changes_nothing() {
    let (cluster, operating) = start().await;
    let admin = &cluster.admin;
    take_variant(admin).await;
    let fails = |words: &[&str]| {
        let printed = cluster.check(&["recover", NAME], 3, words);
        assert!(!printed.contains(HIDDEN), "{printed}");
    };
    let bomb = pack(&vec![b'x'; 65 << 20]);
    for (release, words) in [
        ("?".to_owned(), "has no release in base64"),
        (
            pack(format!("{{\"manifest\": \"{HIDDEN}\"}}").as_bytes()),
            "has no release of Helm",
        ),
        (bomb, "has more than 64 MiB, unpacked"),
        (
            content(4, &manifest()),
            "has the content of another revision or release",
        ),
        (
            content(5, &format!("{HIDDEN}\n")),
            "the manifest does not contain the Package",
        ),
        (
            content(5, &format!("---\n\t{HIDDEN}: Package {NAME}\n")),
            "can't be read",
        ),
        (
            content(5, &format!("{}{}", manifest(), manifest())),
            "contains the Package more than once",
        ),
    ] {
        store_revision(admin, 5, "deployed", &release).await;
        fails(&[words, "hint:"]);
    }
    for revision in [2, 5] {
        store_revision(admin, revision, "superseded", "").await;
    }
    fails(&["none of its revisions is deployed; the newest is 5"]);
    // Another writer names a release of a tenant's namespace.
    let mut forged = package();
    forged["metadata"]["annotations"] =
        json!({ "meta.helm.sh/release-namespace": "evil", "meta.helm.sh/release-name": "evil" });
    apply_as(admin, "mallory", &forged).await;
    fails(&["is of mallory, and not of Helm", "--release NAMESPACE/NAME"]);
    let mut evil = name_object("v1", "Namespace", "", "evil");
    evil["metadata"]["labels"] = json!({ "capsule.clastix.io/tenant": "evil" });
    admin.apply(evil).await;
    cluster.check(
        &["recover", NAME, "--release", "evil/evil"],
        3,
        &["belongs to Tenant evil"],
    );
    cluster.check(&["recover", NAME, "--release", "evil"], 2, &["write NAMESPACE/NAME"]);
    let mut bare = name_object(COZYSTACK, "Package", "", "cozystack.cozystack-platform");
    bare["spec"] = json!({});
    admin.apply(bare).await;
    cluster.check(
        &["recover", "cozystack.cozystack-platform"],
        3,
        &["no chart renders this Package"],
    );
    cluster.check(&["recover", "example.metalb"], 3, &["did you mean example.metallb?"]);
    let package = admin.find(&package()).await.unwrap();
    assert_eq!(package["spec"]["variant"], "oidc");
    operating.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kustomization_is_suspended_before_the_recovery() {
    let (cluster, operating) = start().await;
    let admin = &cluster.admin;
    allow(admin, "ruth", &VERBS, true).await;
    let mut kustomization = name_object(
        "kustomize.toolkit.fluxcd.io/v1",
        "Kustomization",
        "cozy-system",
        "tuning",
    );
    kustomization["spec"] =
        json!({ "interval": "1h", "prune": false, "sourceRef": { "kind": "GitRepository", "name": "x" } });
    admin.apply(kustomization.clone()).await;
    let mut stolen = package();
    stolen["metadata"]["labels"] =
        json!({ "kustomize.toolkit.fluxcd.io/name": "tuning", "kustomize.toolkit.fluxcd.io/namespace": "cozy-system" });
    stolen["spec"] = json!({ "variant": "oidc" });
    apply_as(admin, "kustomize-controller", &stolen).await;
    let unknown = [
        "you may not get Kustomization/cozy-system/tuning",
        "tenure suspend kustomization/tuning -n cozy-system",
    ];
    cluster.check_as("ruth", &["recover", NAME, "--yes"], 3, &unknown);
    let mut role = name_object(&format!("{RBAC}/v1"), "Role", "cozy-system", "ruth");
    let read = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"] });
    let rule = |verbs: &[&str]| json!({ "apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": verbs });
    role["rules"] = json!([read, rule(&["get"])]);
    admin.apply(role.clone()).await;
    cluster.check_as(
        "ruth",
        &["recover", NAME],
        1,
        &["would apply them again", "--yes --suspend"],
    );
    cluster.check_as(
        "ruth",
        &["recover", NAME, "--yes"],
        1,
        &["would apply the fields again", "--suspend"],
    );
    cluster.check_as(
        "ruth",
        &["recover", NAME, "--yes", "--suspend"],
        3,
        &["you may not patch Kustomization/cozy-system/tuning"],
    );
    assert_eq!(admin.find(&package()).await.unwrap()["spec"]["variant"], "oidc");
    role["rules"] = json!([read, rule(&["get", "patch"])]);
    admin.apply(role).await;
    let done = [
        "suspended",
        "recovered",
        "tenure resume kustomization/tuning -n cozy-system",
    ];
    cluster.check_as("ruth", &["recover", NAME, "--yes", "--suspend"], 0, &done);
    assert_eq!(admin.find(&kustomization).await.unwrap()["spec"]["suspend"], true);
    let after = admin.find(&package()).await.unwrap();
    assert_eq!(
        (&after["spec"]["variant"], owners(&after, "variant")),
        (&json!("default"), vec!["helm-controller".to_owned()])
    );
    operating.abort();
}
