//! Capsule's own controller reconciles Tenants, and Tenure beside it uses Capsule's records: they decide the tenant of a namespace, and Tenure writes no object of
//! Capsule's. The tests need `TENURE_BESIDE`, a folder that holds `capsule` (0.14), and its definitions in `capsule-crds`.
//!
//! On a real control plane Tenure reconciles. On the embedded one it also admits writes.

use std::path::{Path, PathBuf};
use std::process::Child;

use base64::Engine as _;
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options, Repository};
use tenure_test_ports::reserve_port;
use tenure_testkit::eventually;

use crate::process::make_command;
use crate::world::{Admin, Cluster, Controllers, manifest, name_object, prepare_shop, wait_for_greeting};

/// The group of Capsule's users.
const CAPSULE_USERS: &str = "projectcapsule.dev";
/// Capsule answers probes at one fixed port, so only one test runs it at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
/// Flags for all controllers except that of Tenants.
const LEFT: [&str; 2] = ["--controllers", "*,-tenant"];

/// Returns the program and its definitions, if they are given.
fn find_capsule() -> Option<PathBuf> {
    let given = std::env::var_os("TENURE_BESIDE").map(PathBuf::from);
    let is_whole = |folder: &PathBuf| folder.join("capsule").exists() && folder.join("capsule-crds").exists();
    let found = given.filter(is_whole);
    if found.is_none() {
        println!("skipped: TENURE_BESIDE names no folder with capsule, and its definitions in capsule-crds");
    }
    found
}

/// Capsule's controller, which ends when the value is dropped.
struct Capsule {
    child: Child,
    log: PathBuf,
}

impl Capsule {
    /// Starts Capsule as an installation does: its kinds, its account, which is cluster-admin, and the group of its users.
    async fn start(cluster: &Cluster, beside: &Path) -> Self {
        let admin = &cluster.admin;
        let mut definitions = Vec::new();
        for file in std::fs::read_dir(beside.join("capsule-crds")).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let found = kustomize::read_manifests("definition", &text, &kustomize::Limits::default()).unwrap();
            definitions.extend(found.into_iter().map(|manifest| manifest.object));
        }
        for definition in &definitions {
            admin.apply(definition.clone()).await;
        }
        for definition in definitions {
            admin
                .wait_for(definition, |found| is_condition(found, "Established", "True"))
                .await;
        }
        admin.apply(name_object("v1", "Namespace", "", "capsule-system")).await;
        admin
            .apply(name_object("v1", "ServiceAccount", "capsule-system", "capsule"))
            .await;
        admin
            .apply(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "capsule"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "capsule", "namespace": "capsule-system"}]}))
            .await;
        let certificates = cluster.data("capsule-certificates");
        std::fs::create_dir(&certificates).unwrap();
        let port = reserve_port();
        admin
            .apply(write_configuration(port, &make_certificate(&certificates)))
            .await;
        let kubeconfig = cluster.write_kubeconfig_as("system:serviceaccount:capsule-system:capsule", &[]);
        let log = cluster.data("capsule.log");
        let written = std::fs::File::create(&log).unwrap();
        let child = make_command(&beside.join("capsule"))
            .arg(format!("--webhook-port={port}"))
            .arg(format!("--webhook-cert-path={}", certificates.display()))
            .arg("--metrics-addr=0")
            .env("KUBECONFIG", kubeconfig)
            .env("NAMESPACE", "capsule-system")
            .env("SERVICE_ACCOUNT", "capsule")
            .stdout(written.try_clone().unwrap())
            .stderr(written)
            .spawn()
            .unwrap();
        Self { child, log }
    }
}

impl Drop for Capsule {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let from = log.len().saturating_sub(8_000);
            eprintln!("capsule: {}", log.get(from..).unwrap_or(&log));
        }
    }
}

/// Makes a self-signed certificate for this machine in a folder.
fn make_certificate(folder: &Path) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    std::fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
    std::fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
    certificate.pem()
}

/// Returns the configuration from which Capsule makes its webhooks for namespaces.
fn write_configuration(port: u16, authority: &str) -> Value {
    let asked = |name: &str, path: &str| {
        let bundle = base64::engine::general_purpose::STANDARD.encode(authority);
        json!({"name": format!("capsule-{name}"), "client": {"url": format!("https://127.0.0.1:{port}"), "caBundle": bundle},
            "webhooks": [{"name": format!("namespaces.{name}.projectcapsule.dev"), "path": path, "opts": {}, "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail", "sideEffects": "NoneOnDryRun", "timeoutSeconds": 10,
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["namespaces"], "scope": "*"}]}]})
    };
    json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "CapsuleConfiguration", "metadata": {"name": "default"},
        "spec": {"enableTLSReconciler": false, "users": [{"kind": "Group", "name": CAPSULE_USERS}],
            "admission": {"mutating": asked("mutating", "/namespaces/mutating"), "validating": asked("validating", "/namespaces/validating")}}})
}

fn tenant(name: &str) -> Value {
    name_object("capsule.clastix.io/v1beta2", "Tenant", "", name)
}

fn namespace(name: &str) -> Value {
    name_object("v1", "Namespace", "", name)
}

/// Returns a namespace that claims to belong to a tenant, without an ownerReference.
fn claim(name: &str) -> Value {
    let mut object = namespace(name);
    object["metadata"]["labels"] = json!({"capsule.clastix.io/tenant": "oil"});
    object
}

fn kustomization(namespace: &str, name: &str, more: &Value) -> Value {
    let mut object = name_object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", namespace, name);
    object["spec"] = json!({"interval": "1h", "retryInterval": "1s", "prune": true, "path": "./",
        "sourceRef": {"kind": "GitRepository", "name": "app"}});
    for (key, value) in more.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

fn find_condition<'a>(found: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = found["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == kind)
}

fn is_condition(found: &Value, kind: &str, status: &str) -> bool {
    find_condition(found, kind).is_some_and(|condition| condition["status"] == status)
}

/// Whether the object isn't ready, with these words as the reason.
fn is_refused(found: &Value, words: &str) -> bool {
    let ready = find_condition(found, "Ready");
    ready.is_some_and(|ready| {
        ready["status"] == "False" && ready["message"].as_str().is_some_and(|message| message.contains(words))
    })
}

/// Waits until an object is as expected, and returns it.
async fn see(admin: &Admin, object: Value, expected: impl Fn(&Value) -> bool) -> Value {
    admin.wait_for(object.clone(), expected).await;
    admin.find(&object).await.unwrap()
}

/// Makes two tenants, each with a namespace that its owner creates through Capsule's webhook.
async fn make_tenants(cluster: &Cluster) {
    let admin = &cluster.admin;
    for name in ["mutating", "validating"] {
        let kind = if name == "mutating" {
            "MutatingWebhookConfiguration"
        } else {
            "ValidatingWebhookConfiguration"
        };
        let object = name_object("admissionregistration.k8s.io/v1", kind, "", &format!("capsule-{name}"));
        admin.wait_for(object, |found| found["webhooks"].is_array()).await;
    }
    for (name, owner) in [("oil", "alice"), ("gas", "gina")] {
        let mut object = tenant(name);
        object["spec"] = json!({"owners": [{"kind": "User", "name": owner}], "namespaceOptions": {"quota": 3},
            "resourceQuotas": {"scope": "Namespace", "items": [{"hard": {"count/configmaps": "20"}}]}});
        admin.apply(object).await;
        admin
            .wait_for(tenant(name), |found| is_condition(found, "Ready", "True"))
            .await;
        // Capsule binds its users to the right to create namespaces, and listens, a moment after its start.
        let owner = cluster.become_user(owner, &[CAPSULE_USERS]).await;
        let own = namespace(&format!("{name}-dev"));
        let made = eventually(crate::world::PATIENCE, || owner.create(&own)).await;
        made.unwrap();
    }
}

/// Returns a tenant's objects in Capsule, after they have settled.
async fn see_kept(admin: &Admin, name: &str) -> Vec<Value> {
    let place = format!("{name}-dev");
    let space = see(admin, namespace(&place), |found| {
        found["metadata"]["ownerReferences"]
            .as_array()
            .is_some_and(|all| all.len() == 1)
    })
    .await;
    assert_eq!(
        space["metadata"]["labels"]["capsule.clastix.io/tenant"], name,
        "{space:#}"
    );
    let uid = space["metadata"]["uid"].clone();
    let kept = see(admin, tenant(name), |found| {
        let spaces = found["status"]["spaces"].as_array();
        spaces.is_some_and(|all| all.iter().any(|one| one["uid"] == uid)) && is_condition(found, "Ready", "True")
    })
    .await;
    let quota = name_object("v1", "ResourceQuota", &place, &format!("capsule-{name}-0"));
    let quota = see(admin, quota, |found| {
        found["spec"]["hard"]["count/configmaps"].is_string()
    })
    .await;
    vec![space, kept, quota]
}

/// Returns the namespaces of a Tenant, with their uids.
fn list_spaces(kept: &Value) -> Vec<[&Value; 2]> {
    let spaces = kept["status"]["spaces"].as_array().into_iter().flatten();
    spaces.map(|space| [&space["name"], &space["uid"]]).collect()
}

/// Checks that no account of Tenure's has written these objects, and that Capsule's fields are unchanged.
fn check_left(before: &[Value], after: &[Value]) {
    for (before, after) in before.iter().zip(after) {
        let metadata = &after["metadata"];
        let managers = metadata["managedFields"].as_array().unwrap();
        let is_own = |entry: &&Value| {
            let manager = entry["manager"].as_str().unwrap_or_default();
            manager.starts_with("tenure") || manager.starts_with("kustomize")
        };
        assert_eq!(managers.iter().find(is_own), None, "{after:#}");
        let finalizers = metadata["finalizers"].to_string();
        assert!(!finalizers.contains("tenure"), "{after:#}");
        for path in [
            "/metadata/uid",
            "/metadata/generation",
            "/metadata/labels",
            "/metadata/annotations",
            "/metadata/finalizers",
            "/metadata/ownerReferences",
            "/spec",
        ] {
            assert_eq!(after.pointer(path), before.pointer(path), "{path}");
        }
        assert_eq!(list_spaces(after), list_spaces(before));
    }
}

/// Allows a user this action in the whole cluster.
async fn allow(admin: &Admin, user: &str, name: &str, rule: &Value) {
    let group = "rbac.authorization.k8s.io";
    let of_kind = |kind: &str| name_object(&format!("{group}/v1"), kind, "", name);
    let (mut role, mut binding) = (of_kind("ClusterRole"), of_kind("ClusterRoleBinding"));
    role["rules"] = json!([rule]);
    binding["roleRef"] = json!({"apiGroup": group, "kind": "ClusterRole", "name": name});
    binding["subjects"] = json!([{"apiGroup": group, "kind": "User", "name": user}]);
    admin.apply(role).await;
    admin.apply(binding).await;
}

/// Creates a repository, a source in each of the namespaces, and a binding that lets `default` of the first apply the content.
async fn prepare(admin: &Admin, git: &GitServer, places: &[&str]) -> Repository {
    let repository = git.create("app").await.unwrap();
    repository
        .commit([("app.yaml", manifest(1))], "the beginning")
        .await
        .unwrap();
    for place in places {
        let mut source = name_object("source.toolkit.fluxcd.io/v1", "GitRepository", place, "app");
        source["spec"] = json!({"interval": "1s", "url": git.http_url("app"), "ref": {"branch": "main"}});
        admin.apply(source).await;
        for (kind, more) in [
            (
                "Role",
                json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]}),
            ),
            (
                "RoleBinding",
                json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "applier"},
                    "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": places[0]}]}),
            ),
        ] {
            let mut object = name_object("rbac.authorization.k8s.io/v1", kind, place, "applier");
            for (key, value) in more.as_object().unwrap() {
                object[key] = value.clone();
            }
            admin.apply(object).await;
        }
    }
    repository
}

/// Checks the decisions beside Capsule. `refusal` are the words with which a claim of a namespace is denied, by Capsule or Tenure.
async fn check_decisions(cluster: &Cluster, git: &GitServer, refusal: &str) {
    let admin = &cluster.admin;
    let before = [see_kept(admin, "oil").await, see_kept(admin, "gas").await].concat();
    // A user that may create namespaces labels one as the tenant's, and neither Capsule nor Tenure assigns it.
    let rule = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]});
    allow(admin, "mallory", "makes-namespaces", &rule).await;
    let mallory = cluster.become_user("mallory", &[]).await;
    let refused = mallory.create(&claim("stolen")).await.unwrap_err();
    assert!(refused.ends_with(refusal), "{refused}");
    mallory.create(&namespace("mallorys")).await.unwrap();
    let is_forged = admin.find(&namespace("forged")).await.is_some();
    let mut places = vec!["oil-dev", "gas-dev"];
    places.extend(is_forged.then_some("forged"));
    let repository = prepare(admin, git, &places).await;

    // Namespaces that Capsule assigned belong to the tenant. RBAC would let the tenant's account write in the other namespace, too.
    admin
        .apply(kustomization("oil-dev", "own", &json!({"targetNamespace": "oil-dev"})))
        .await;
    admin
        .apply(kustomization(
            "oil-dev",
            "foreign",
            &json!({"targetNamespace": "gas-dev"}),
        ))
        .await;
    let reference = json!({"targetNamespace": "oil-dev", "sourceRef": {"kind": "GitRepository", "name": "app", "namespace": "gas-dev"}});
    admin.apply(kustomization("oil-dev", "reference", &reference)).await;
    let greeting = |place: &str| name_object("v1", "ConfigMap", place, "greeting");
    admin
        .wait_for(greeting("oil-dev"), |found| found["data"]["number"] == "1")
        .await;
    let asked = |name: &str| kustomization("oil-dev", name, &json!({}));
    let outside = "does not belong to tenant oil, whose namespaces are oil-dev";
    admin
        .wait_for(asked("foreign"), |found| is_refused(found, outside))
        .await;
    admin
        .wait_for(asked("reference"), |found| {
            is_refused(found, "cross-namespace references have been blocked")
        })
        .await;
    if is_forged {
        let object = kustomization("forged", "own", &json!({"targetNamespace": "forged"}));
        admin.apply(object.clone()).await;
        admin
            .wait_for(object, |found| is_refused(found, "no identity may act here"))
            .await;
    }
    repository
        .commit([("app.yaml", manifest(2))], "a change")
        .await
        .unwrap();
    admin
        .wait_for(greeting("oil-dev"), |found| found["data"]["number"] == "2")
        .await;
    assert_eq!(admin.find(&greeting("gas-dev")).await, None);
    let after = [see_kept(admin, "oil").await, see_kept(admin, "gas").await].concat();
    check_left(&before, &after);
}

/// Capsule deletes its objects, and Tenure releases them.
async fn check_deletion(admin: &Admin) {
    admin.delete(&tenant("oil")).await;
    admin.wait_until_gone(&namespace("oil-dev")).await;
    admin.wait_until_gone(&tenant("oil")).await;
    // The neighbour's objects stay.
    see_kept(admin, "gas").await;
}

#[tokio::test]
async fn tenants_that_capsule_keeps_are_left_to_it() {
    let Some(beside) = find_capsule() else { return };
    let _one_at_a_time = ALONE.lock().await;
    let Some(cluster) = Cluster::start_real_bare(&[]).await else {
        return;
    };
    let admin = &cluster.admin;
    // An object from before the webhook existed.
    admin.apply(claim("forged")).await;
    let _capsule = Capsule::start(&cluster, &beside).await;
    // The definition of Capsule's objects stays as Capsule installed it.
    let definition = name_object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "",
        "tenants.capsule.clastix.io",
    );
    let before = admin.find(&definition).await.unwrap();
    let installed = cluster.check(
        &["install", "--without-deployment", LEFT[0], LEFT[1]],
        0,
        &["tenants.capsule.clastix.io exists, and Tenants are left to another controller: it stays as it is"],
    );
    assert!(
        !installed.contains("applied CustomResourceDefinition tenants."),
        "{installed}"
    );
    let after = admin.find(&definition).await.unwrap();
    assert_eq!(after["spec"], before["spec"]);
    let folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(folder.path(), Options::default()).await.unwrap();
    let allowed = format!("http://{}", git.http_address());
    let flags = [LEFT[0], LEFT[1], "--allow-source", &allowed];
    let controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &flags);
    admin.wait_for_leader(&controllers.candidate).await;
    make_tenants(&cluster).await;
    let refusal = "namespace has tenant label \"oil\" but no Tenant ownerReference";
    check_decisions(&cluster, &git, refusal).await;
    check_deletion(admin).await;
}

#[tokio::test]
async fn capsule_records_decide_admission_of_writes() {
    let Some(beside) = find_capsule() else { return };
    let _one_at_a_time = ALONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(folder.path(), Options::default()).await.unwrap();
    let allowed = format!("http://{}", git.http_address());
    let cluster = Cluster::start_up(&[LEFT[0], LEFT[1], "--allow-source", &allowed]).await;
    let admin = &cluster.admin;
    let _capsule = Capsule::start(&cluster, &beside).await;
    make_tenants(&cluster).await;
    check_decisions(&cluster, &git, "(namespace-membership)").await;

    // The owner may write Flux's kinds there. Admission denies objects that exceed the tenant's rights.
    let rule =
        json!({"apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": ["create"]});
    allow(admin, "alice", "writes-kustomizations", &rule).await;
    let alice = cluster.become_user("alice", &[CAPSULE_USERS]).await;
    let foreign = json!({"sourceRef": {"kind": "GitRepository", "name": "app", "namespace": "gas-dev"}});
    let refused = alice
        .create(&kustomization("oil-dev", "by-owner", &foreign))
        .await
        .unwrap_err();
    assert!(refused.ends_with("(flux-references)"), "{refused}");
    let another = json!({"serviceAccountName": "somebody"});
    let refused = alice
        .create(&kustomization("oil-dev", "by-owner", &another))
        .await
        .unwrap_err();
    assert!(refused.ends_with("(flux-account)"), "{refused}");
    let made = alice
        .create(&kustomization("oil-dev", "by-owner", &json!({})))
        .await
        .unwrap();
    assert_eq!(made["spec"]["serviceAccountName"], "default");
    check_deletion(admin).await;
}

/// Even if another controller reconciles Tenants, Tenure reconciles namespaces without a tenant where its admission checks writes.
#[tokio::test]
async fn namespaces_without_tenant_are_reconciled_beside_another_controller() {
    let folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(folder.path(), Options::default()).await.unwrap();
    let allowed = format!("http://{}", git.http_address());
    let cluster = Cluster::start_up(&[LEFT[0], LEFT[1], "--allow-source", &allowed]).await;
    let _repository = prepare_shop(&cluster.admin, &git).await;
    wait_for_greeting(&cluster.admin, 1).await;
}
