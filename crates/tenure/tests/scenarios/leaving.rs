//! The dry run of `tenure uninstall` lists exactly the removed objects. Objects that protect tenants from each other stay, unless an option removes them, too. The test
//! compares all objects of the cluster before and after.

use std::collections::BTreeSet;
use std::time::Instant;

use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{Discovery, verbs};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::world::{Admin, Cluster, Controllers, PATIENCE, name_object};

/// Kinds whose objects appear and disappear without the uninstallation.
const PASSING: [&str; 2] = ["Event", "Lease"];

/// Lists every object of a cluster, as `KIND NAMESPACE/NAME`.
async fn list_everything(admin: &Admin) -> BTreeSet<String> {
    let discovery = Discovery::new(admin.0.clone()).run().await.unwrap();
    let mut all = BTreeSet::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.resources_by_stability() {
            if !capabilities.supports_operation(verbs::LIST) || PASSING.contains(&resource.kind.as_str()) {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(admin.0.clone(), &resource);
            // The kind was just removed.
            let Ok(found) = api.list_metadata(&ListParams::default()).await else {
                continue;
            };
            all.extend(found.items.iter().map(|object| {
                let name = object.metadata.name.clone().unwrap_or_default();
                match &object.metadata.namespace {
                    Some(namespace) => format!("{} {namespace}/{name}", resource.kind),
                    None => format!("{} {name}", resource.kind),
                }
            }));
        }
    }
    all
}

async fn set_up(cluster: &Cluster, more: &[&str]) {
    let admin = &cluster.admin;
    let mut leader = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), more);
    admin.wait_for_leader(&leader.candidate).await;
    let mut tenant = name_object("capsule.clastix.io/v1beta2", "Tenant", "", "leaving");
    tenant["spec"] = json!({
        "owners": [{ "kind": "User", "name": "leaving-owner" }],
        "limitRanges": { "items": [{ "limits": [{ "type": "Container", "max": { "cpu": "2" } }] }] },
        "networkPolicies": { "items": [{ "podSelector": {}, "policyTypes": ["Ingress"] }] },
        "resourceQuotas": { "scope": "Namespace", "items": [{ "hard": { "pods": "10" } }] },
    });
    admin.apply(tenant).await;
    for (version, kind, name) in [
        ("networking.k8s.io/v1", "NetworkPolicy", "capsule-leaving-0"),
        ("v1", "ResourceQuota", "capsule-leaving-0"),
        ("v1", "LimitRange", "capsule-leaving-0"),
        ("v1", "ServiceAccount", "leaving-gitops"),
    ] {
        admin
            .wait_for(name_object(version, kind, "leaving", name), |_| true)
            .await;
    }
    let mut surface = name_object("tenure.dev/v1alpha1", "Surface", "leaving", "apps");
    surface["spec"] = json!({ "sources": [{ "name": "app", "url": "https://git.invalid/app", "ref": { "branch": "main" }, "interval": "1h" }] });
    admin.apply(surface).await;
    let source = name_object("source.toolkit.fluxcd.io/v1", "GitRepository", "leaving", "apps-app");
    admin.wait_for(source, |_| true).await;
    // Other objects of a tenant and of the platform.
    for object in [
        name_object("v1", "ConfigMap", "leaving", "own"),
        name_object("v1", "Secret", "tenure-system", "platforms-own"),
    ] {
        admin.apply(object).await;
    }
    assert_eq!(leader.signal(Signal::SIGTERM), Some(0));
}

/// Waits until the garbage collector has processed all earlier deletions.
async fn wait_for_garbage_collector(admin: &Admin) {
    let mut owner = name_object("v1", "ConfigMap", "default", "canary-owner");
    owner["data"] = json!({});
    admin.apply(owner.clone()).await;
    let uid = admin.find(&owner).await.unwrap()["metadata"]["uid"].clone();
    let mut canary = name_object("v1", "ConfigMap", "default", "canary");
    canary["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "canary-owner", "uid": uid }]);
    admin.apply(canary.clone()).await;
    admin.delete(&owner).await;
    admin.wait_until_gone(&canary).await;
}

async fn compare(cluster: &Cluster, flags: &[&str]) -> BTreeSet<String> {
    let admin = &cluster.admin;
    let before = list_everything(admin).await;
    let plan = cluster.check(&[&["uninstall", "--dry-run"], flags].concat(), 0, &["goes: "]);
    let listed: BTreeSet<String> = plan
        .lines()
        .filter_map(|line| line.strip_prefix("goes: "))
        .filter(|line| !PASSING.iter().any(|kind| line.starts_with(&format!("{kind} "))))
        .map(str::to_owned)
        .collect();
    assert_eq!(list_everything(admin).await, before, "looking changes nothing");
    cluster.check(&[&["uninstall", "--yes", "--wait=60"], flags].concat(), 0, &[]);
    let started = Instant::now();
    loop {
        wait_for_garbage_collector(admin).await;
        let after = list_everything(admin).await;
        let gone: BTreeSet<String> = before.difference(&after).cloned().collect();
        if gone == listed {
            let new: Vec<&String> = after.difference(&before).collect();
            assert!(new.is_empty(), "{new:?}");
            return gone;
        }
        let unlisted: Vec<&String> = gone.difference(&listed).collect();
        assert!(unlisted.is_empty(), "{flags:?}: not listed: {unlisted:?}");
        let left: Vec<&String> = listed.difference(&gone).collect();
        assert!(started.elapsed() < PATIENCE, "{flags:?}: still there: {left:?}");
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    }
}

const PROTECTION: [&str; 3] = [
    "NetworkPolicy leaving/capsule-leaving-0",
    "ResourceQuota leaving/capsule-leaving-0",
    "LimitRange leaving/capsule-leaving-0",
];

async fn is_protected(admin: &Admin) -> bool {
    let policy = name_object("networking.k8s.io/v1", "NetworkPolicy", "leaving", "capsule-leaving-0");
    let is_owned = |found: Value| found["metadata"]["ownerReferences"].is_array();
    admin.find(&policy).await.is_some_and(|found| !is_owned(found))
}

/// Compares the default, the removal of kinds, and the removal of all protection.
async fn compare_all(start: impl AsyncFn() -> Option<Cluster>, more: &[&str]) {
    let Some(cluster) = start().await else { return };
    set_up(&cluster, more).await;
    let gone = compare(&cluster, &[]).await;
    assert!(PROTECTION.iter().all(|name| !gone.contains(*name)), "{gone:?}");
    drop(cluster);

    let Some(cluster) = start().await else { return };
    set_up(&cluster, more).await;
    let gone = compare(&cluster, &["--delete-kinds"]).await;
    assert!(PROTECTION.iter().all(|name| !gone.contains(*name)), "{gone:?}");
    assert!(gone.contains("Tenant leaving"), "{gone:?}");
    // The rights of the controllers are removed; those of owners and accounts stay.
    let is_kept = |line: &&String| {
        let is_right = line.starts_with("RoleBinding leaving/") && !line.starts_with("RoleBinding leaving/tenure:");
        is_right || line.starts_with("ValidatingAdmissionPolicy")
    };
    let lost: Vec<&String> = gone.iter().filter(is_kept).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(is_protected(&cluster.admin).await);
    drop(cluster);

    let Some(cluster) = start().await else { return };
    set_up(&cluster, more).await;
    let gone = compare(&cluster, &["--delete-kinds", "--with-protection"]).await;
    assert!(PROTECTION.iter().all(|name| gone.contains(*name)), "{gone:?}");
    assert!(
        !gone.contains("Namespace leaving") && !gone.contains("ConfigMap leaving/own"),
        "{gone:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_run_lists_deletions() {
    compare_all(async || Some(Cluster::start_collecting().await), &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_run_lists_deletions_on_real_api_server() {
    let start = async || Cluster::start_real(&["--policies"]).await;
    compare_all(start, &["--policies"]).await;
}
