//! API servers that differ from a current kube-apiserver: with only the older form of discovery, with a group that does not answer, and without kinds
//! that Tenure uses. Each difference stops only what needs the missing part, and the status says so.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tenure_testkit::{DiscoveryForm, Reductions, ServedCluster};

use crate::elsewhere::{NAMESPACE, has_value, in_shop, until_there};
use crate::guards::allow_deletion;
use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, config_map, request_token};
use crate::tenants::{TENANT, tenant};

const JOB: &str = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: once\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n      containers: [{name: c, image: i.example/i:1}]\n";

/// Discovery costs requests where each version has a document of its own: those for the groups that are asked about, not those for all groups.
const MOST_DISCOVERY_REQUESTS: usize = 200;

async fn apply_with_older_discovery(namespace: &str, form: DiscoveryForm) {
    let reductions = Reductions::default();
    reductions.set_discovery(form);
    // An APIService whose server is down.
    reductions.fail_group("/apis/batch/v1");
    let stage = Stage::set_reduced(namespace, &[], &reductions).await;
    stage
        .repository(namespace, "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    stage
        .ready(KUSTOMIZATION, (namespace, "app"), "True", "ReconciliationSucceeded")
        .await;
    stage.repository(namespace, "jobs", &[("job.yaml", JOB)]).await;
    stage.kustomization(namespace, "jobs", "jobs", json!({})).await;
    let refused = stage
        .wait_for(KUSTOMIZATION, (namespace, "jobs"), |object| {
            let ready = object.and_then(|object| crate::stage::condition(object, "Ready"));
            ready.is_some_and(|ready| ready["message"].as_str().unwrap_or_default().contains("batch"))
        })
        .await
        .unwrap();
    assert_ne!(
        crate::stage::condition(&refused, "Ready").unwrap()["status"],
        "True",
        "{refused}"
    );
    // The other group still works.
    stage
        .admin
        .patch(CONFIG_MAP, (namespace, "a"), json!({ "data": { "value": "drifted" } }))
        .await
        .unwrap();
    stage
        .wait_for(CONFIG_MAP, (namespace, "a"), |object| {
            object.is_some_and(|object| object["data"]["value"] == "1")
        })
        .await;
    let asked = reductions.take_discovery_requests();
    println!("{form:?}: {asked} requests for discovery documents");
    assert!(asked < MOST_DISCOVERY_REQUESTS, "{asked}");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_the_older_form_of_discovery_is_reconciled() {
    apply_with_older_discovery("clusters-older", DiscoveryForm::Older).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_refuses_aggregated_discovery_is_reconciled() {
    apply_with_older_discovery("clusters-refused", DiscoveryForm::Refused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfig_reaches_a_server_that_refuses_aggregated_discovery() {
    let namespace = "clusters-elsewhere";
    let there = ServedCluster::start().await.unwrap();
    let reductions = Reductions::default();
    reductions.set_discovery(DiscoveryForm::Refused);
    reductions.fail_group("/apis/batch/v1");
    let front = there.reduce(&reductions).unwrap();
    let stage = Stage::set_allowing(namespace, &[front.endpoint()]).await;
    for object in [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "deployer", "namespace": "default" } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "deployer" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": "deployer", "namespace": "default" }]
        }),
    ] {
        there.admin.apply(object).await.unwrap();
    }
    let token = request_token(&there.admin, "default", "deployer").await.unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "clusters": [{ "name": "c", "cluster": {
            "server": front.endpoint(), "certificate-authority-data": STANDARD.encode(front.authority()),
        } }],
        "users": [{ "name": "u", "user": { "token": token } }],
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "production", "namespace": namespace },
        "stringData": { "value": kubeconfig.to_string() },
    });
    stage.admin.apply(secret).await.unwrap();
    let files = [("ns.yaml", NAMESPACE), ("a.yaml", &in_shop("a", "1"))];
    stage.repository(namespace, "app", &files).await;
    let by_kubeconfig = json!({ "targetNamespace": null, "kubeConfig": { "secretRef": { "name": "production" } } });
    stage.kustomization(namespace, "app", "app", by_kubeconfig).await;
    stage
        .ready(KUSTOMIZATION, (namespace, "app"), "True", "ReconciliationSucceeded")
        .await;
    until_there(&there, "a", has_value("1")).await;
    stage.admin.delete(KUSTOMIZATION, (namespace, "app")).await.unwrap();
    allow_deletion(&stage, (namespace, "app")).await;
    until_there(&there, "a", |object| object.is_none()).await;
    let asked = reductions.take_discovery_requests();
    assert!(asked < MOST_DISCOVERY_REQUESTS, "{asked}");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unserved_kind_stops_only_what_needs_it() {
    let namespace = "clusters-unserved";
    let reductions = Reductions::default();
    for (group, plural) in [
        ("networking.k8s.io", "networkpolicies"),
        ("", "limitranges"),
        ("", "resourcequotas"),
        ("source.toolkit.fluxcd.io", "buckets"),
        ("notification.toolkit.fluxcd.io", "alerts"),
        ("tenure.dev", "fluxaccesstargets"),
    ] {
        reductions.hide(group, plural);
    }
    let stage = Stage::set_reduced(namespace, &[], &reductions).await;
    stage
        .repository(namespace, "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    stage
        .ready(KUSTOMIZATION, (namespace, "app"), "True", "ReconciliationSucceeded")
        .await;
    tenant(&stage, "clusters-plain").await;
    let isolated = json!({
        "apiVersion": TENANT.0, "kind": TENANT.1, "metadata": { "name": "clusters-isolated" },
        "spec": {
            "owners": [{ "kind": "User", "name": "clusters-owner" }],
            "networkPolicies": { "items": [{ "podSelector": {}, "policyTypes": ["Ingress"] }] },
        }
    });
    stage.admin.apply(isolated).await.unwrap();
    let refused = stage
        .wait_for(TENANT, ("", "clusters-isolated"), |object| {
            let ready = object.and_then(|object| crate::stage::condition(object, "Ready"));
            ready.is_some_and(|ready| {
                ready["status"] == "False" && ready["message"].as_str().unwrap_or_default().contains("NetworkPolicy")
            })
        })
        .await
        .unwrap();
    println!("{}", crate::stage::condition(&refused, "Ready").unwrap()["message"]);

    // Once the kind is served, it is used.
    reductions.show_all();
    stage
        .wait_for(
            ("networking.k8s.io/v1", "NetworkPolicy"),
            ("clusters-isolated", "capsule-clusters-isolated-0"),
            |object| object.is_some(),
        )
        .await;
    stage
        .wait_for(TENANT, ("", "clusters-isolated"), |object| {
            let ready = object.and_then(|object| crate::stage::condition(object, "Ready"));
            ready.is_some_and(|ready| ready["status"] == "True")
        })
        .await;
    stage.shut_down().await;
}
