//! The controllers on an open server: what they do is awaited, never slept for.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_apiserver::authentication::{Lookup as _, UserInfo};
use tenure_apiserver::{Config, DeleteOptions, Operation, Server};
use tokio::time::Instant;

/// Longer than anything here takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(30);

struct Cluster {
    server: Server,
    _directory: Option<tempfile::TempDir>,
}

impl Cluster {
    async fn open(workload_status: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut cluster = Self::open_in(&directory, workload_status).await;
        cluster._directory = Some(directory);
        cluster
    }

    /// A server on this directory, as soon as the one before it has let go of it.
    async fn open_in(directory: &tempfile::TempDir, workload_status: bool) -> Self {
        let mut config = Config::new(directory.path());
        config.workload_status = workload_status;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Server::open(config.clone()).await {
                Ok(server) => {
                    return Self {
                        server,
                        _directory: None,
                    };
                }
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn with_namespace(workload_status: bool) -> Self {
        let cluster = Self::open(workload_status).await;
        cluster
            .create("", "namespaces", None, json!({ "metadata": { "name": "shop" } }))
            .await;
        cluster
    }

    fn operation(&self, group: &str, plural: &str, namespace: Option<&str>) -> Operation {
        let catalog = self.server.registry().catalog();
        let resource = catalog.find_any_version(group, plural).unwrap().clone();
        Operation::new(resource, namespace.map(str::to_owned), UserInfo::loopback(), "test")
    }

    async fn create(&self, group: &str, plural: &str, namespace: Option<&str>, mut object: Value) -> Value {
        let operation = self.operation(group, plural, namespace);
        object["apiVersion"] = json!(operation.resource.api_version());
        object["kind"] = json!(operation.resource.kind);
        self.server.registry().create(&operation, object).await.unwrap().object
    }

    async fn update(&self, group: &str, plural: &str, namespace: Option<&str>, object: Value) {
        let operation = self.operation(group, plural, namespace);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.server.registry().update(&operation, &name, object).await.unwrap();
    }

    async fn delete(&self, group: &str, plural: &str, namespace: Option<&str>, name: &str, propagation: &str) {
        let options = DeleteOptions {
            propagation_policy: Some(propagation.to_owned()),
            ..DeleteOptions::default()
        };
        let operation = self.operation(group, plural, namespace);
        self.server.registry().delete(&operation, name, &options).await.unwrap();
    }

    fn get(&self, group: &str, plural: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        self.server.registry().view().get(group, plural, namespace, name)
    }

    fn config_map(&self, name: &str) -> Option<Arc<Value>> {
        self.get("", "configmaps", Some("shop"), name)
    }

    /// Waits until `found` finds something.
    async fn until<T>(&self, what: &str, mut found: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "waited in vain until {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn until_gone(&self, group: &str, plural: &str, namespace: Option<&str>, name: &str) {
        self.until(&format!("{plural} {name} is gone"), |cluster| {
            cluster.get(group, plural, namespace, name).is_none().then_some(())
        })
        .await;
    }

    /// Gives the controllers the time that they need for what was written before: until they have acted twice on what
    /// was written after it.
    async fn settle(&self) {
        for round in 0..2 {
            let name = format!("marker-{round}");
            self.create(
                "",
                "configmaps",
                Some("shop"),
                owned(&name, &[("ConfigMap", "nobody", "no-uid", false)]),
            )
            .await;
            self.until_gone("", "configmaps", Some("shop"), &name).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.server.shutdown();
    }
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

/// A ConfigMap with owners: kind, name, uid, whether it blocks.
fn owned(name: &str, owners: &[(&str, &str, &str, bool)]) -> Value {
    let references: Vec<Value> = owners
        .iter()
        .map(|(kind, name, uid, blocks)| {
            json!({ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": blocks })
        })
        .collect();
    json!({ "metadata": { "name": name, "ownerReferences": references } })
}

fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_namespace_has_its_account_and_the_ca() {
    let cluster = Cluster::with_namespace(false).await;
    for namespace in ["default", "kube-system", "shop"] {
        cluster
            .until("the account is there", |cluster| {
                cluster.get("", "serviceaccounts", Some(namespace), "default")
            })
            .await;
        let bundle = cluster
            .until("the CA is there", |cluster| {
                cluster.get("", "configmaps", Some(namespace), "kube-root-ca.crt")
            })
            .await;
        assert_eq!(bundle["data"]["ca.crt"], cluster.server.ca_pem());
    }
    let before = cluster.get("", "serviceaccounts", Some("shop"), "default").unwrap();
    cluster
        .delete("", "serviceaccounts", Some("shop"), "default", "Background")
        .await;
    let after = cluster
        .until("the account is back", |cluster| {
            cluster.get("", "serviceaccounts", Some("shop"), "default")
        })
        .await;
    assert_ne!(uid(&before), uid(&after));
    let mut spoilt = (*cluster.config_map("kube-root-ca.crt").unwrap()).clone();
    spoilt["data"]["ca.crt"] = json!("spoilt");
    cluster.update("", "configmaps", Some("shop"), spoilt).await;
    cluster
        .until("the CA is put right", |cluster| {
            let bundle = cluster.config_map("kube-root-ca.crt")?;
            (bundle["data"]["ca.crt"] == cluster.server.ca_pem()).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_goes_with_its_content() {
    let cluster = Cluster::with_namespace(false).await;
    for index in 0..20 {
        cluster
            .create("", "configmaps", Some("shop"), named(&format!("c{index}")))
            .await;
    }
    cluster.delete("", "namespaces", None, "shop", "Background").await;
    cluster.until_gone("", "namespaces", None, "shop").await;
    assert_eq!(
        cluster
            .server
            .registry()
            .view()
            .list("", "configmaps", Some("shop"))
            .len(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_waits_for_finalizers_and_says_so() {
    let cluster = Cluster::with_namespace(false).await;
    let held = json!({ "metadata": { "name": "held", "finalizers": ["acme.io/keep"] } });
    cluster.create("", "configmaps", Some("shop"), held).await;
    cluster.delete("", "namespaces", None, "shop", "Background").await;
    let message = |cluster: &Cluster, kind: &str| {
        let namespace = cluster.get("", "namespaces", None, "shop")?;
        let conditions = namespace["status"]["conditions"].as_array()?.clone();
        let condition = conditions.into_iter().find(|condition| condition["type"] == kind)?;
        condition["message"].as_str().map(str::to_owned)
    };
    let content = "Some resources are remaining: configmaps. has 1 resource instances";
    cluster
        .until("the condition names what is left", |cluster| {
            (message(cluster, "NamespaceContentRemaining")? == content).then_some(())
        })
        .await;
    assert_eq!(
        message(&cluster, "NamespaceFinalizersRemaining").as_deref(),
        Some("Some content in the namespace has finalizers remaining: acme.io/keep in 1 resource instances")
    );
    assert_eq!(
        cluster.get("", "namespaces", None, "shop").unwrap()["status"]["phase"],
        "Terminating"
    );
    let mut released = (*cluster.config_map("held").unwrap()).clone();
    released["metadata"]["finalizers"] = json!([]);
    cluster.update("", "configmaps", Some("shop"), released).await;
    cluster.until_gone("", "namespaces", None, "shop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dependents_go_after_their_last_owner() {
    let cluster = Cluster::with_namespace(false).await;
    let one = cluster.create("", "configmaps", Some("shop"), named("one")).await;
    let two = cluster.create("", "configmaps", Some("shop"), named("two")).await;
    let (first, second) = (
        ("ConfigMap", "one", uid(&one), false),
        ("ConfigMap", "two", uid(&two), false),
    );
    cluster
        .create("", "configmaps", Some("shop"), owned("child", &[first]))
        .await;
    let child = cluster.config_map("child").unwrap();
    cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            owned("grandchild", &[("ConfigMap", "child", uid(&child), false)]),
        )
        .await;
    cluster
        .create("", "configmaps", Some("shop"), owned("both", &[first, second]))
        .await;
    cluster
        .delete("", "configmaps", Some("shop"), "one", "Background")
        .await;
    cluster.until_gone("", "configmaps", Some("shop"), "child").await;
    cluster.until_gone("", "configmaps", Some("shop"), "grandchild").await;
    cluster
        .until("the reference to the owner that is gone is removed", |cluster| {
            let both = cluster.config_map("both")?;
            (both["metadata"]["ownerReferences"].as_array()?.len() == 1).then_some(())
        })
        .await;
    cluster
        .delete("", "configmaps", Some("shop"), "two", "Background")
        .await;
    cluster.until_gone("", "configmaps", Some("shop"), "both").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_very_owner_counts() {
    let cluster = Cluster::with_namespace(false).await;
    let owner = cluster.create("", "configmaps", Some("shop"), named("owner")).await;
    let namespace = cluster.get("", "namespaces", None, "shop").unwrap();
    // An owner of another uid, in another namespace, or not there: gone.
    cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            owned("wrong-uid", &[("ConfigMap", "owner", "other", false)]),
        )
        .await;
    cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            owned("absent", &[("ConfigMap", "nobody", "x", false)]),
        )
        .await;
    cluster
        .create(
            "",
            "configmaps",
            Some("default"),
            owned("elsewhere", &[("ConfigMap", "owner", uid(&owner), false)]),
        )
        .await;
    // An owner of the cluster, or of a kind that nobody knows: kept.
    cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            owned("of-namespace", &[("Namespace", "shop", uid(&namespace), false)]),
        )
        .await;
    cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            owned("of-unknown", &[("Gizmo", "g", "x", false)]),
        )
        .await;
    // An object of the cluster can't have an owner in a namespace: never collected.
    cluster
        .create("rbac.authorization.k8s.io", "clusterroles", None, {
            let mut role = owned("cluster-wide", &[("ConfigMap", "nobody", "x", false)]);
            role["rules"] = json!([]);
            role
        })
        .await;
    cluster.until_gone("", "configmaps", Some("shop"), "wrong-uid").await;
    cluster.until_gone("", "configmaps", Some("shop"), "absent").await;
    cluster.until_gone("", "configmaps", Some("default"), "elsewhere").await;
    cluster.settle().await;
    assert!(cluster.config_map("of-namespace").is_some());
    assert!(cluster.config_map("of-unknown").is_some());
    assert!(
        cluster
            .get("rbac.authorization.k8s.io", "clusterroles", None, "cluster-wide")
            .is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_foreground_dependents_go_first() {
    let cluster = Cluster::with_namespace(false).await;
    let owner = cluster.create("", "configmaps", Some("shop"), named("owner")).await;
    let mut held = owned("held", &[("ConfigMap", "owner", uid(&owner), true)]);
    held["metadata"]["finalizers"] = json!(["acme.io/keep"]);
    cluster.create("", "configmaps", Some("shop"), held).await;
    cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            owned("free", &[("ConfigMap", "owner", uid(&owner), true)]),
        )
        .await;
    cluster
        .delete("", "configmaps", Some("shop"), "owner", "Foreground")
        .await;
    cluster.until_gone("", "configmaps", Some("shop"), "free").await;
    let held = cluster
        .until("the dependent that is held is being deleted", |cluster| {
            cluster
                .config_map("held")
                .filter(|held| !held["metadata"]["deletionTimestamp"].is_null())
        })
        .await;
    cluster.settle().await;
    assert!(cluster.config_map("owner").is_some());
    let mut released = (*held).clone();
    released["metadata"]["finalizers"] = json!([]);
    cluster.update("", "configmaps", Some("shop"), released).await;
    cluster.until_gone("", "configmaps", Some("shop"), "owner").await;
    assert!(cluster.config_map("held").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_in_the_foreground_goes_from_its_end() {
    let cluster = Cluster::with_namespace(false).await;
    let mut last = cluster.create("", "configmaps", Some("shop"), named("link-0")).await;
    for index in 1..6 {
        let name = format!("link-{index}");
        let owner = format!("link-{}", index - 1);
        last = cluster
            .create(
                "",
                "configmaps",
                Some("shop"),
                owned(&name, &[("ConfigMap", &owner, uid(&last), true)]),
            )
            .await;
    }
    cluster
        .delete("", "configmaps", Some("shop"), "link-0", "Foreground")
        .await;
    for index in (0..6).rev() {
        cluster
            .until_gone("", "configmaps", Some("shop"), &format!("link-{index}"))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_stay_without_their_owner() {
    let cluster = Cluster::with_namespace(false).await;
    let owner = cluster.create("", "configmaps", Some("shop"), named("owner")).await;
    let child = cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            owned("child", &[("ConfigMap", "owner", uid(&owner), true)]),
        )
        .await;
    cluster.delete("", "configmaps", Some("shop"), "owner", "Orphan").await;
    cluster.until_gone("", "configmaps", Some("shop"), "owner").await;
    cluster.settle().await;
    let orphan = cluster.config_map("child").unwrap();
    assert_eq!(uid(&orphan), uid(&child));
    assert!(orphan["metadata"].get("ownerReferences").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_gets_its_accounts_token_and_goes_with_it() {
    let cluster = Cluster::with_namespace(false).await;
    cluster.create("", "serviceaccounts", Some("shop"), named("bot")).await;
    let secret = json!({
        "type": "kubernetes.io/service-account-token",
        "metadata": { "name": "bot-token", "annotations": { "kubernetes.io/service-account.name": "bot" } },
    });
    cluster.create("", "secrets", Some("shop"), secret).await;
    cluster
        .until("the token is there", |cluster| {
            let secret = cluster.get("", "secrets", Some("shop"), "bot-token")?;
            secret.pointer("/data/token").map(|_| ())
        })
        .await;
    cluster
        .delete("", "serviceaccounts", Some("shop"), "bot", "Background")
        .await;
    cluster.until_gone("", "secrets", Some("shop"), "bot-token").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_roles_gather_new_rules() {
    let cluster = Cluster::open(false).await;
    let group = "rbac.authorization.k8s.io";
    let rule = json!({ "apiGroups": ["acme.io"], "resources": ["gizmos"], "verbs": ["get"] });
    let has = |cluster: &Cluster, role: &str| {
        let role = cluster.get(group, "clusterroles", None, role)?;
        role["rules"].as_array()?.contains(&rule).then_some(())
    };
    cluster
        .create(group, "clusterroles", None, json!({
            "metadata": { "name": "gizmo-viewer", "labels": { "rbac.authorization.k8s.io/aggregate-to-view": "true" } },
            "rules": [rule],
        }))
        .await;
    for role in ["view", "edit", "admin"] {
        cluster
            .until(&format!("{role} has the rule"), |cluster| has(cluster, role))
            .await;
    }
    cluster
        .delete(group, "clusterroles", None, "gizmo-viewer", "Background")
        .await;
    cluster
        .until("admin has lost the rule", |cluster| {
            has(cluster, "admin").is_none().then_some(())
        })
        .await;
}

fn deployment(replicas: i64) -> Value {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "registry.example/web:1" }] },
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_workloads_are_reported_as_rolled_out() {
    let cluster = Cluster::with_namespace(true).await;
    cluster.create("apps", "deployments", Some("shop"), deployment(2)).await;
    let observed = |cluster: &Cluster, generation: i64| {
        let deployment = cluster.get("apps", "deployments", Some("shop"), "web")?;
        (deployment["status"]["observedGeneration"] == generation).then_some(deployment)
    };
    let first = cluster
        .until("the first generation is reported", |cluster| observed(cluster, 1))
        .await;
    assert_eq!(first["status"]["readyReplicas"], 2);
    let managers: Vec<&str> = first["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["subresource"] == "status")
        .map(|entry| entry["manager"].as_str().unwrap())
        .collect();
    assert_eq!(managers, ["tenure-workload-status"]);
    let mut scaled = (*first).clone();
    scaled["spec"]["replicas"] = json!(5);
    cluster.update("apps", "deployments", Some("shop"), scaled).await;
    let second = cluster
        .until("the second generation is reported", |cluster| observed(cluster, 2))
        .await;
    assert_eq!(second["status"]["readyReplicas"], 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_switch_a_workload_says_nothing() {
    let cluster = Cluster::with_namespace(false).await;
    cluster.create("apps", "deployments", Some("shop"), deployment(2)).await;
    cluster.settle().await;
    let deployment = cluster.get("apps", "deployments", Some("shop"), "web").unwrap();
    assert_eq!(deployment.pointer("/status/observedGeneration"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_writes_nothing() {
    let cluster = Cluster::with_namespace(true).await;
    cluster.create("apps", "deployments", Some("shop"), deployment(2)).await;
    cluster
        .until("the rollout is reported", |cluster| {
            let deployment = cluster.get("apps", "deployments", Some("shop"), "web")?;
            deployment.pointer("/status/observedGeneration").map(|_| ())
        })
        .await;
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease", "shop"] {
        cluster
            .until("the namespace is furnished", |cluster| {
                cluster.get("", "serviceaccounts", Some(namespace), "default")?;
                cluster.get("", "configmaps", Some(namespace), "kube-root-ca.crt")
            })
            .await;
    }
    cluster.settle().await;
    let before = cluster.server.registry().view().revision();
    cluster.settle().await;
    // The second settling's own four writes, and no other.
    assert_eq!(cluster.server.registry().view().revision(), before + 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_undone_is_done_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = Cluster::open_in(&directory, false).await;
    first.create("", "namespaces", None, named("shop")).await;
    first.create("", "namespaces", None, named("other")).await;
    let owner = first.create("", "configmaps", Some("shop"), named("owner")).await;
    let child = owned("child", &[("ConfigMap", "owner", uid(&owner), false)]);
    first.create("", "configmaps", Some("shop"), child).await;
    first.create("", "configmaps", Some("other"), named("content")).await;
    // The controllers are told to end: whether they still see what follows does not matter.
    first.server.shutdown();
    first
        .delete("", "configmaps", Some("shop"), "owner", "Background")
        .await;
    first.delete("", "namespaces", None, "other", "Background").await;
    drop(first);
    let second = Cluster::open_in(&directory, false).await;
    second.until_gone("", "configmaps", Some("shop"), "child").await;
    second.until_gone("", "namespaces", None, "other").await;
}

/// A CustomResourceDefinition of `acme.io/v1` without a schema to speak of.
pub(crate) fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "metadata": { "name": format!("{plural}.acme.io") },
        "spec": {
            "group": "acme.io",
            "scope": "Namespaced",
            "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn new_kinds_are_collected_and_emptied_like_old_ones() {
    let cluster = Cluster::with_namespace(false).await;
    let definitions = ("apiextensions.k8s.io", "customresourcedefinitions");
    let mut early = owned("early", &[("Widget", "nobody", "x", false)]);
    early["metadata"]["ownerReferences"][0]["apiVersion"] = json!("acme.io/v1");
    cluster.create("", "configmaps", Some("shop"), early).await;
    cluster.settle().await;
    assert!(cluster.config_map("early").is_some(), "its owner's kind is not known");
    cluster
        .create(definitions.0, definitions.1, None, definition("widgets", "Widget"))
        .await;
    cluster.until_gone("", "configmaps", Some("shop"), "early").await;

    cluster
        .until("widgets are served", |cluster| {
            let catalog = cluster.server.registry().catalog();
            catalog.find_any_version("acme.io", "widgets").map(|_| ())
        })
        .await;
    let owner = cluster.create("acme.io", "widgets", Some("shop"), named("owner")).await;
    let mut child = owned("child", &[("Widget", "owner", uid(&owner), true)]);
    child["metadata"]["ownerReferences"][0]["apiVersion"] = json!("acme.io/v1");
    cluster.create("", "configmaps", Some("shop"), child).await;
    cluster
        .delete("acme.io", "widgets", Some("shop"), "owner", "Foreground")
        .await;
    cluster.until_gone("acme.io", "widgets", Some("shop"), "owner").await;
    assert!(cluster.config_map("child").is_none());

    cluster.create("acme.io", "widgets", Some("shop"), named("last")).await;
    cluster.delete("", "namespaces", None, "shop", "Background").await;
    cluster.until_gone("", "namespaces", None, "shop").await;
    assert!(cluster.get("acme.io", "widgets", Some("shop"), "last").is_none());
}
