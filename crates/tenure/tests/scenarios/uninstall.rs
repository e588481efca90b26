//! `tenure uninstall`: everything is removed except running workloads. A real cluster also has its namespace controller and garbage collector, which delete everything
//! that isn't protected from them.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options};

use crate::world::{Admin, Cluster, Controllers, lease, name_object, prepare_shop, wait_for_greeting};

const IMAGE: &str =
    "registry.example/tenure:0.1.0@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const FINALIZER: &str = "finalizers.fluxcd.io";

fn kustomization(namespace: &str, name: &str) -> Value {
    let mut object = name_object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", namespace, name);
    object["spec"] = json!({"interval": "1h", "prune": true, "path": "./", "targetNamespace": "shop",
        "serviceAccountName": "deployer", "sourceRef": {"kind": "GitRepository", "name": name}});
    object
}

fn definition(name: &str) -> Value {
    name_object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name)
}

fn greeting() -> Value {
    name_object("v1", "ConfigMap", "shop", "greeting")
}

fn has_finalizer(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == FINALIZER))
}

/// Expects an object to be gone. A terminating namespace counts as gone on a server without a namespace controller.
async fn expect_gone(cluster: &Cluster, object: &Value) {
    let found = cluster.admin.find(object).await;
    let going = found.is_none_or(|found| found["metadata"]["deletionTimestamp"].is_string());
    assert!(going, "{object} is there");
    cluster.wait_until_settled(object).await;
}

async fn take_finalizers_off(admin: &Admin, object: &Value) {
    let off = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let name = object["metadata"]["name"].as_str().unwrap();
    let api = admin.api(object);
    api.patch(name, &PatchParams::default(), &off).await.unwrap();
}

#[tokio::test]
async fn uninstallation_leaves_applied_objects() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let install = ["install", "--image", IMAGE, "--without-admission", "--without-policies"];
    cluster.check(&install, 0, &["applied Deployment"]);
    let git_folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
    prepare_shop(admin, &git).await;
    let allowed = format!("http://{}", git.http_address());
    let mut leader = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &["--allow-source", &allowed]);
    admin.wait_for_leader(&leader.candidate).await;
    wait_for_greeting(admin, 1).await;
    let applied = admin.find(&greeting()).await.unwrap();
    let shop = kustomization("shop", "shop");
    admin.wait_for(shop.clone(), has_finalizer).await;

    // Neither a dry run nor a run without confirmation changes the cluster.
    cluster.check(
        &["uninstall", "--dry-run"],
        0,
        &[
            "stop the controllers",
            "Deployment tenure-system/tenure-controller: deleted",
            "Kustomization shop/shop: without the controllers' finalizer",
            "ClusterRoleBinding tenure-controller: deleted",
            "kept: kind Kustomization (1 object)",
        ],
    );
    cluster.check(&["uninstall"], 2, &["--yes"]);
    assert!(has_finalizer(&admin.find(&shop).await.unwrap()));
    let deployment = name_object("apps/v1", "Deployment", "tenure-system", "tenure-controller");
    assert!(admin.find(&deployment).await.is_some());

    // The command waits for running controllers, and removes nothing beside them.
    cluster.check(
        &["uninstall", "--yes", "--wait=3"],
        3,
        &["still leads", &leader.candidate],
    );
    assert!(has_finalizer(&admin.find(&shop).await.unwrap()));
    assert_eq!(leader.signal(Signal::SIGTERM), Some(0));

    cluster.check(&["uninstall", "--yes"], 0, &["Namespace tenure-system: deleted"]);
    let left = admin.find(&shop).await.unwrap();
    assert!(
        !has_finalizer(&left) && left["metadata"]["deletionTimestamp"].is_null(),
        "{left}"
    );
    assert_ne!(left["spec"]["suspend"], true, "Flux would go on with it");
    for gone in [
        deployment,
        name_object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "tenure-controller"),
        name_object(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            "",
            "tenure-controller",
        ),
        name_object("v1", "Namespace", "", "tenure-system"),
        definition("surfaces.tenure.dev"),
    ] {
        expect_gone(&cluster, &gone).await;
    }
    for stays in [
        "kustomizations.kustomize.toolkit.fluxcd.io",
        "tenants.capsule.clastix.io",
    ] {
        assert!(admin.find(&definition(stays)).await.is_some(), "{stays}");
    }

    // The Tenant can be deleted now, without its namespaces.
    admin.delete(&shop).await;
    admin.wait_until_gone(&shop).await;
    let found = admin.find(&greeting()).await.expect("what was applied");
    assert_eq!(found["metadata"]["uid"], applied["metadata"]["uid"]);
    cluster.check(&["uninstall", "--yes"], 0, &["nothing is installed here"]);
}

/// An ownerReference to a Tenant would delete the namespace together with the kind.
#[tokio::test]
async fn the_namespaces_of_tenants_outlive_their_kind() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let mut tenant = name_object("capsule.clastix.io/v1beta2", "Tenant", "", "left-behind");
    tenant["spec"] = json!({"owners": [{"kind": "User", "name": "olive"}]});
    let namespace = name_object("v1", "Namespace", "", "left-behind");
    admin.apply(tenant.clone()).await;
    let mut leader = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &[]);
    let is_owned = |found: &Value| found["metadata"]["ownerReferences"].is_array();
    let is_labelled = |found: &Value| found["metadata"]["labels"]["capsule.clastix.io/tenant"] == "left-behind";
    admin.wait_for(namespace.clone(), is_labelled).await;
    assert!(!is_owned(&admin.find(&namespace).await.unwrap()));
    let account = name_object("v1", "ServiceAccount", "left-behind", "left-behind-gitops");
    admin.wait_for(account.clone(), is_owned).await;
    // The controllers are dead, and their finalizer on the Tenant would keep its kind forever.
    let finalizers = admin.find(&tenant).await.unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["tenure.dev/finalizer"]));
    assert_eq!(leader.signal(Signal::SIGKILL), None);

    cluster.check(
        &["uninstall", "--delete-kinds", "--yes", "--wait=60"],
        0,
        &["Tenant left-behind: without the controllers' finalizer"],
    );
    for kind in [
        "tenants.capsule.clastix.io",
        "kustomizations.kustomize.toolkit.fluxcd.io",
    ] {
        expect_gone(&cluster, &definition(kind)).await;
    }
    for stays in [&namespace, &account] {
        let found = admin.find(stays).await.expect("it stays");
        assert!(found["metadata"]["deletionTimestamp"].is_null(), "{found}");
        assert!(!is_owned(&found), "{found}");
    }
    expect_gone(&cluster, &name_object("v1", "Namespace", "", "tenure-system")).await;
}

/// The lane's rights are removed last from a terminating namespace, and no controller runs that could do it.
#[tokio::test]
async fn reconciled_namespace_can_be_deleted_after_uninstallation() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let namespace = name_object("v1", "Namespace", "", "afterwards");
    admin.apply(namespace.clone()).await;
    admin.apply(kustomization("afterwards", "app")).await;
    let mut leader = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &[]);
    let binding = name_object(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "afterwards",
        "tenure:lane",
    );
    let has_rights = |found: &Value| found["metadata"]["finalizers"].is_array();
    admin.wait_for(binding.clone(), has_rights).await;
    assert_eq!(leader.signal(Signal::SIGTERM), Some(0));

    cluster.check(
        &["uninstall", "--yes"],
        0,
        &["RoleBinding afterwards/tenure:lane: without its lane's finalizer"],
    );
    expect_gone(&cluster, &binding).await;
    // On a cluster with a namespace controller, the namespace ends.
    admin.delete(&namespace).await;
    expect_gone(&cluster, &namespace).await;
}

/// Many objects are read page by page, and a namespace with applied objects is not deleted.
#[tokio::test]
async fn uninstallation_releases_objects_of_every_page() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    admin.apply(name_object("v1", "Namespace", "", "many")).await;
    for number in 0..205 {
        let mut object = kustomization("many", &format!("k{number}"));
        object["metadata"]["finalizers"] = json!([FINALIZER, "example.com/kept"]);
        admin.apply(object).await;
    }
    let mut applied = name_object("v1", "ConfigMap", "tenure-system", "applied");
    applied["metadata"]["labels"] = json!({"kustomize.toolkit.fluxcd.io/name": "platform"});
    admin.apply(applied.clone()).await;
    let output = cluster.check(
        &["uninstall", "--yes", "--keep-kinds"],
        0,
        &["kept: Namespace tenure-system"],
    );
    assert_eq!(
        output.matches("without the controllers' finalizer\n").count(),
        205 + 15,
        "those that were shown before, too"
    );
    for number in [0, 199, 200, 204] {
        let mut object = kustomization("many", &format!("k{number}"));
        let found = admin.find(&object).await.unwrap();
        assert_eq!(found["metadata"]["finalizers"], json!(["example.com/kept"]));
        object["metadata"]["finalizers"] = json!([]);
        admin.apply(object).await;
    }
    assert!(admin.find(&applied).await.is_some());
    assert!(admin.find(&definition("surfaces.tenure.dev")).await.is_some());
    let account = name_object("v1", "ServiceAccount", "tenure-system", "tenure-controller");
    assert!(admin.find(&account).await.is_none());
    admin.delete(&applied).await;
    for number in 0..205 {
        let object = name_object(
            "kustomize.toolkit.fluxcd.io/v1",
            "Kustomization",
            "many",
            &format!("k{number}"),
        );
        let off = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let name = format!("k{number}");
        admin
            .api(&object)
            .patch(&name, &PatchParams::default(), &off)
            .await
            .unwrap();
    }
    admin.delete(&name_object("v1", "Namespace", "", "many")).await;
}

/// Flux's objects and their finalizers stay where Flux reconciles.
#[tokio::test(flavor = "multi_thread")]
async fn uninstallation_leaves_objects_of_flux() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    for namespace in ["flux-system", "theirs"] {
        admin.apply(name_object("v1", "Namespace", "", namespace)).await;
    }
    let mut object = kustomization("theirs", "web");
    object["metadata"]["finalizers"] = json!([FINALIZER]);
    admin.apply(object.clone()).await;
    let renewing = tokio::spawn(renew(Admin(admin.0.clone())));
    let flux = name_object(
        "coordination.k8s.io/v1",
        "Lease",
        "flux-system",
        "kustomize-controller-leader-election",
    );
    admin.wait_for(flux.clone(), |_| true).await;
    cluster.check(
        &["uninstall", "--delete-kinds", "--yes"],
        3,
        &["kustomize-controller-5d8f", "without --delete-kinds"],
    );
    cluster.check(&["uninstall", "--yes"], 0, &["Namespace tenure-system: deleted"]);
    assert!(has_finalizer(&admin.find(&object).await.unwrap()));
    renewing.abort();
    let _aborted = renewing.await;
    admin.delete(&flux).await;
    take_finalizers_off(admin, &object).await;
    expect_gone(&cluster, &name_object("v1", "Namespace", "", "tenure-system")).await;
}

/// Renews the Lease of Flux's controller.
async fn renew(admin: Admin) {
    let mut lease = name_object(
        "coordination.k8s.io/v1",
        "Lease",
        "flux-system",
        "kustomize-controller-leader-election",
    );
    for microsecond in 0..1_000_000_u32 {
        let time = format!("2026-01-01T00:00:00.{microsecond:06}Z");
        lease["spec"] =
            json!({"holderIdentity": "kustomize-controller-5d8f", "leaseDurationSeconds": 15, "renewTime": time});
        admin.apply(lease.clone()).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A killed uninstallation leaves a Lease that expires, and the next one continues.
#[tokio::test]
async fn killed_uninstallation_is_finished_by_next() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let mut held = lease();
    held["spec"] = json!({"holderIdentity": "tenure-uninstall_1_1", "leaseDurationSeconds": 2, "renewTime": "2026-01-01T00:00:00.000000Z"});
    admin.apply(held).await;
    let binding = name_object(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "",
        "tenure-controller",
    );
    admin.delete(&binding).await;
    cluster.check(
        &["uninstall", "--yes"],
        0,
        &[
            "ClusterRole tenure-controller: deleted",
            "Namespace tenure-system: deleted",
        ],
    );
    expect_gone(&cluster, &name_object("v1", "Namespace", "", "tenure-system")).await;
}

/// A tenant that restores the finalizer again and again keeps its object, and blocks nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn restored_finalizer_does_not_block_uninstallation() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    admin.apply(name_object("v1", "Namespace", "", "stubborn")).await;
    let mut object = kustomization("stubborn", "web");
    object["metadata"]["finalizers"] = json!([FINALIZER]);
    admin.apply(object.clone()).await;
    let stubborn = tokio::spawn({
        let (admin, object) = (Admin(admin.0.clone()), object.clone());
        async move {
            loop {
                let api = admin.api(&object);
                let back = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
                let _while_it_is_there = api.patch("web", &PatchParams::default(), &back).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    cluster.check(
        &["uninstall", "--yes"],
        0,
        &[
            "ClusterRole tenure-controller: deleted",
            "Namespace tenure-system: deleted",
        ],
    );
    stubborn.abort();
    let _aborted = stubborn.await;
    take_finalizers_off(admin, &object).await;
    expect_gone(&cluster, &name_object("v1", "Namespace", "", "tenure-system")).await;
}

/// Policies bind all users, so they are removed before the facts that they read, and both are removed completely.
#[tokio::test]
async fn policies_are_removed_before_facts_that_they_read() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    // Policies of a version that made more, and of another product.
    let group = "admissionregistration.k8s.io/v1";
    let [left_over, others] = [("tenure-of-tomorrow", "tenure"), ("others", "somebody")].map(|(name, manager)| {
        let mut policy = name_object(group, "ValidatingAdmissionPolicy", "", name);
        policy["metadata"]["labels"] = json!({ "app.kubernetes.io/managed-by": manager });
        policy["spec"] = json!({
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]
            }] },
            "validations": [{ "expression": "true" }]
        });
        policy
    });
    admin.apply(left_over.clone()).await;
    admin.apply(others.clone()).await;
    let installed = [
        "applied ClusterRole tenure-policies",
        "applied Deployment",
        "ValidatingAdmissionPolicy tenure-of-tomorrow: deleted, this version doesn't make it",
    ];
    cluster.check(&["install", "--without-admission", "--image", IMAGE], 0, &installed);
    expect_gone(&cluster, &left_over).await;
    assert!(admin.find(&others).await.is_some());
    admin.delete(&others).await;
    // Controllers without the rights for policies can't be started with `--policies`.
    let arguments = ["install", "--export", "--image", IMAGE, "--", "--policies"];
    cluster.check(&arguments, 2, &["--policies comes before --"]);
    let mut leader = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &["--policies"]);
    admin.wait_for_leader(&leader.candidate).await;
    let mut tenant = name_object("capsule.clastix.io/v1beta2", "Tenant", "", "stated");
    tenant["spec"] = json!({ "owners": [{ "kind": "User", "name": "stated-owner" }] });
    admin.apply(tenant).await;
    let namespace = name_object("v1", "Namespace", "", "stated");
    let account = "/metadata/annotations/facts.tenure.dev~1account";
    admin
        .wait_for(namespace.clone(), |found| {
            found.pointer(account).is_some_and(|account| account == "stated-gitops")
        })
        .await;
    // The Enforcement reports the policies after the API server applies them.
    let enforcement = name_object("tenure.dev/v1alpha1", "Enforcement", "", "tenure");
    let ready = |found: &Value| {
        let conditions = found["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    admin.wait_for(enforcement, ready).await;
    cluster.check(&["get", "enforcements"], 0, &["tenure", "policies are in force"]);
    let kept = [
        name_object(group, "ValidatingAdmissionPolicy", "", "tenure-namespaces"),
        name_object(group, "ValidatingAdmissionPolicyBinding", "", "tenure-namespaces"),
        name_object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "tenure:stated:own"),
        name_object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "tenure:stated:view"),
        name_object(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            "",
            "tenure:stated:view",
        ),
        name_object(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            "",
            "tenure:stated:own",
        ),
    ];
    for object in &kept {
        admin.wait_for(object.clone(), |_| true).await;
    }
    // An owner can get their own Tenant, and may not list Tenants.
    let mut other = name_object("capsule.clastix.io/v1beta2", "Tenant", "", "stated-elsewhere");
    other["spec"] = json!({ "owners": [{ "kind": "User", "name": "somebody" }] });
    admin.apply(other.clone()).await;
    let output = cluster.check_as("stated-owner", &["get", "tenants"], 0, &["stated", "NAME"]);
    assert!(!output.contains("stated-elsewhere"), "{output}");
    cluster.check_as(
        "stated-owner",
        &["get", "tenants", "-o", "name"],
        0,
        &["tenant.capsule.clastix.io/stated"],
    );
    cluster.check_as(
        "nobody",
        &["get", "tenants"],
        3,
        &["you may not list tenants.capsule.clastix.io"],
    );
    admin.delete(&other).await;
    assert_eq!(leader.signal(Signal::SIGTERM), Some(0));
    // The other policies stay, with the facts that they read, unless the protection is removed, too.
    let plan = cluster.check(&["uninstall", "--dry-run"], 0, &["admission policies and bindings"]);
    assert!(!plan.contains("tenure-namespaces"), "{plan}");
    assert!(!plan.contains("without the facts for policies"), "{plan}");
    cluster.check(
        &["uninstall", "--yes", "--with-protection"],
        0,
        &[
            "ValidatingAdmissionPolicyBinding tenure-namespaces: deleted",
            "ValidatingAdmissionPolicy tenure-namespaces: deleted",
            "Namespace stated: without the facts for policies",
            "ClusterRole tenure:stated:own: deleted",
            "ClusterRole tenure-policies: deleted",
        ],
    );
    for object in &kept {
        expect_gone(&cluster, object).await;
    }
    let left = admin.find(&namespace).await.unwrap();
    let annotations = left["metadata"]["annotations"].as_object();
    let facts = annotations
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with("facts.tenure.dev/"));
    assert_eq!(facts.count(), 0, "{left}");
    admin
        .delete(&name_object("capsule.clastix.io/v1beta2", "Tenant", "", "stated"))
        .await;
}
