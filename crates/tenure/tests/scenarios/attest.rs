//! `tenure attest` where nobody judges what is written: it says what RBAC alone keeps and what it doesn't, and leaves nothing.

use serde_json::{Value, json};

use crate::world::{Cluster, Controllers};

#[tokio::test]
async fn where_nobody_judges_it_is_said_that_it_does_not_hold() {
    let cluster = Cluster::start_installed().await;
    let _controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &[]);
    let output = cluster.run(&["attest", "--yes", "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    let outcome = |name: &str| {
        let results = report["results"].as_array().expect("results").iter();
        let mut found = results.filter(|result| result["name"] == name);
        found.next().unwrap_or_else(|| panic!("{name}: {report:#}"))["outcome"].clone()
    };
    for (name, expected) in [
        ("node-port", "not-held"),
        ("foreign-hostname", "not-held"),
        ("account-by-token-request", "not-held"),
        ("source-of-a-neighbour", "not-held"),
        ("label-changed", "not-held"),
        ("kube-system-given-away", "not-held"),
        ("cordoned-write", "not-held"),
        ("deletion-of-what-is-to-stay", "not-held"),
        ("neighbours-secrets", "held"),
        ("cluster-admin-bound", "held"),
        ("cluster-admin-bound-at-home", "held"),
        ("masters-by-impersonation", "held"),
        ("webhook-made", "held"),
    ] {
        assert_eq!(outcome(name), expected, "{name}: {report:#}");
    }
    // What it tried were dry runs, and what it made is on its way: where no controller takes namespaces away, it
    // gets no further.
    let kube_system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
    let labels = &cluster.admin.find(&kube_system).await.expect("kube-system")["metadata"]["labels"];
    assert!(labels["capsule.clastix.io/tenant"].is_null(), "{labels}");
    let tenant = json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": {"name": "none"}});
    let tenants = cluster.admin.api(&tenant).list(&Default::default()).await;
    let stays = |tenant: &kube::core::DynamicObject| tenant.metadata.deletion_timestamp.is_none();
    let tenants = tenants.expect("Tenants");
    assert!(!tenants.iter().any(stays), "{tenants:?}");
}
