//! `tenure attest` without admission, with policies, and with webhooks: it reports which attacks are stopped, and leaves nothing behind.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_inspection::attestation::LEFT_BY_POLICIES;
use tenure_test_ports::reserve_port;

use crate::world::{Cluster, Controllers, list_webhook_flags, wait_for_probe};

#[tokio::test]
async fn without_admission_the_attestation_fails() {
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
        ("hand-edit", "not-held"),
        ("hand-edit-of-replicas", "not-held"),
        ("neighbours-secrets", "held"),
        ("cluster-admin-bound", "held"),
        ("cluster-admin-bound-at-home", "held"),
        ("masters-by-impersonation", "held"),
        ("webhook-made", "held"),
        // These policies are a part of every installation.
        ("controller-binds-in-kube-system", "held"),
        ("controller-binds-a-stranger", "held"),
        ("controller-labels-kube-system", "held"),
        ("controller-owns-kube-system", "held"),
        ("controller-deletes-a-namespace", "held"),
        ("controller-records-kube-system", "held"),
        ("lane-writes-a-secret", "held"),
        ("lane-creates-a-pod", "held"),
        ("secret-writer-bound-to-another-role", "held"),
        ("platform-accounts-bound", "held"),
        ("all-accounts-bound", "held"),
        // RBAC alone stops this attack: the role has a verb that owners lack.
        ("secret-writer-bound", "held"),
        ("secret-writer-bound-by-account", "held"),
        // No grant counts on this cluster, since its writer is unknown.
        ("approval-by-token", "not-held"),
        ("approval-of-its-own-request", "not-held"),
    ] {
        assert_eq!(outcome(name), expected, "{name}: {report:#}");
    }
    // The attempts were dry runs, and the created objects are being deleted. Without a namespace controller, the namespaces stay terminating.
    let kube_system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
    let labels = &cluster.admin.find(&kube_system).await.expect("kube-system")["metadata"]["labels"];
    assert!(labels["capsule.clastix.io/tenant"].is_null(), "{labels}");
    let tenant = json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": {"name": "none"}});
    let tenants = cluster.admin.api(&tenant).list(&Default::default()).await;
    let stays = |tenant: &kube::core::DynamicObject| tenant.metadata.deletion_timestamp.is_none();
    let tenants = tenants.expect("Tenants");
    assert!(!tenants.iter().any(stays), "{tenants:?}");
}

/// Runs the attestation, and returns the result and the text of each attack by its name.
fn attest(cluster: &Cluster) -> (Option<i32>, BTreeMap<String, (String, String)>) {
    let output = cluster.run(&["attest", "--yes", "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let results = report["results"].as_array().expect("results").iter();
    let text = |result: &Value, field: &str| result[field].as_str().unwrap_or_default().to_owned();
    let outcomes = results.map(|result| {
        let came_of_it = (text(result, "outcome"), text(result, "said"));
        (text(result, "name"), came_of_it)
    });
    (output.status.code(), outcomes.collect())
}

/// Returns the results of hand edits of Git-managed fields: whether they were stopped, and the rule.
fn list_edits(outcomes: &BTreeMap<String, (String, String)>) -> Vec<(&str, bool)> {
    let edits = outcomes.iter().filter(|(name, _)| name.starts_with("hand-edit"));
    edits
        .map(|(name, (outcome, message))| (name.as_str(), outcome == "held" && message.ends_with("(git-managed)")))
        .collect()
}

/// The result if every hand edit is stopped.
const EDITS: [(&str, bool); 7] = [
    ("hand-edit", true),
    ("hand-edit-as-gits-manager", true),
    ("hand-edit-as-no-writer", true),
    ("hand-edit-by-replacement", true),
    ("hand-edit-of-replicas", true),
    ("hand-edit-without-managers", true),
    ("hand-edit-without-mark", true),
];

/// Returns the attacks that were not tried.
fn list_untried(outcomes: &BTreeMap<String, (String, String)>) -> Vec<&str> {
    let untried = outcomes.iter().filter(|(_, (outcome, _))| outcome == "not-tried");
    untried.map(|(name, _)| name.as_str()).collect()
}

/// The attack whose result with policies alone depends on the time: the last one in the order of names.
const LATE: &str = "quota-by-dry-run";

/// The attacks that need a kind which an installation serves only with `--packages`.
const UNSERVED: [&str; 6] = [
    "chart-of-a-neighbour",
    "chart-of-the-platform",
    "release-as-another-account",
    "release-into-a-neighbour",
    "release-records-of-the-platform",
    "release-with-a-forged-package",
];

/// Returns the attacks that were not stopped.
fn list_unheld(outcomes: &BTreeMap<String, (String, String)>) -> Vec<&str> {
    let unheld = outcomes.iter().filter(|(_, (outcome, _))| outcome == "not-held");
    unheld.map(|(name, _)| name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attestation_holds_under_policies_where_they_decide() {
    let cluster = Cluster::start_own_with("--policies", "applied ClusterRole tenure-policies").await;
    let _controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &["--policies"]);
    cluster.wait_until_in_force().await;
    let (code, outcomes) = attest(&cluster);
    // Expressions can't know sums, other objects, or fields of a Tenant that are not on the namespace. A namespace without the prefix is no exception: with policies
    // alone, an owner creates only namespaces that are named after the Tenant.
    let mut unheld = list_unheld(&outcomes);
    // The controllers end the right to create namespaces a moment after the quota is reached: a late dry run is refused.
    if !unheld.contains(&LATE) {
        unheld.push(LATE);
    }
    assert_eq!((code, unheld), (Some(1), LEFT_BY_POLICIES.to_vec()), "{outcomes:#?}");
    assert_eq!(list_untried(&outcomes), UNSERVED, "{outcomes:#?}");
    assert_eq!(list_edits(&outcomes), EDITS, "{outcomes:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attestation_holds_under_webhooks() {
    let cluster = Cluster::start_own_with("--admission", "applied ClusterRole tenure-admission").await;
    let port = reserve_port();
    let health = reserve_port();
    let flags = list_webhook_flags(port, health);
    let flags = flags.each_ref().map(String::as_str);
    let _controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &flags);
    wait_for_probe(health, "/readyz", 200).await;
    cluster.wait_until_in_force().await;
    let (code, outcomes) = attest(&cluster);
    assert_eq!((code, list_unheld(&outcomes)), (Some(0), Vec::new()), "{outcomes:#?}");
    assert_eq!(list_untried(&outcomes), UNSERVED, "{outcomes:#?}");
    assert_eq!(list_edits(&outcomes), EDITS, "{outcomes:#?}");
}
