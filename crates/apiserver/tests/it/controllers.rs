//! The controllers on an open server. Tests wait for the controllers' effects, and never sleep for a fixed time.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cluster::{Cluster, make_named, make_owned, uid};

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
async fn every_namespace_has_its_account_and_the_ca() {
    let cluster = Cluster::with_namespace(false).await;
    for namespace in ["default", "kube-system", "shop"] {
        cluster
            .wait_for("the account is there", |cluster| {
                cluster.get("", "serviceaccounts", Some(namespace), "default")
            })
            .await;
        let bundle = cluster
            .wait_for("the CA is there", |cluster| {
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
        .wait_for("the account is back", |cluster| {
            cluster.get("", "serviceaccounts", Some("shop"), "default")
        })
        .await;
    assert_ne!(uid(&before), uid(&after));
    let mut spoilt = (*cluster.config_map("kube-root-ca.crt").unwrap()).clone();
    spoilt["data"]["ca.crt"] = json!("spoilt");
    cluster.update("", "configmaps", Some("shop"), spoilt).await;
    cluster
        .wait_for("the CA is put right", |cluster| {
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
            .create("", "configmaps", Some("shop"), make_named(&format!("c{index}")))
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
        .wait_for("the condition names what is left", |cluster| {
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
async fn token_secret_is_filled_and_deleted_with_its_account() {
    let cluster = Cluster::with_namespace(false).await;
    cluster
        .create("", "serviceaccounts", Some("shop"), make_named("bot"))
        .await;
    let secret = json!({
        "type": "kubernetes.io/service-account-token",
        "metadata": { "name": "bot-token", "annotations": { "kubernetes.io/service-account.name": "bot" } },
    });
    cluster.create("", "secrets", Some("shop"), secret).await;
    cluster
        .wait_for("the token is there", |cluster| {
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
            .wait_for(&format!("{role} has the rule"), |cluster| has(cluster, role))
            .await;
    }
    cluster
        .delete(group, "clusterroles", None, "gizmo-viewer", "Background")
        .await;
    cluster
        .wait_for("admin has lost the rule", |cluster| {
            has(cluster, "admin").is_none().then_some(())
        })
        .await;
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
        .wait_for("the first generation is reported", |cluster| observed(cluster, 1))
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
        .wait_for("the second generation is reported", |cluster| observed(cluster, 2))
        .await;
    assert_eq!(second["status"]["readyReplicas"], 5);
}

/// Returns the ReplicaSets of the namespace `shop`, by revision: image, replicas, and ready replicas.
fn replica_sets(cluster: &Cluster) -> Vec<(String, i64, i64)> {
    let mut sets = cluster.list("apps", "replicasets", Some("shop"));
    let revision = |set: &Value| set["metadata"]["annotations"]["deployment.kubernetes.io/revision"].to_string();
    sets.sort_by_key(revision);
    sets.iter()
        .map(|set| {
            let image = set["spec"]["template"]["spec"]["containers"][0]["image"]
                .as_str()
                .unwrap();
            let ready = set["status"]["readyReplicas"].as_i64().unwrap_or(0);
            (image.to_owned(), set["spec"]["replicas"].as_i64().unwrap(), ready)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_has_its_replica_sets() {
    let cluster = Cluster::with_namespace(true).await;
    cluster.create("apps", "deployments", Some("shop"), deployment(2)).await;
    let reach = async |generation: i64, expected: &[(&str, i64, i64)]| {
        cluster
            .wait_for("the ReplicaSets are as expected", |cluster| {
                let found = replica_sets(cluster);
                let found: Vec<(&str, i64, i64)> = found
                    .iter()
                    .map(|(image, wanted, ready)| (image.as_str(), *wanted, *ready))
                    .collect();
                let deployment = cluster.get("apps", "deployments", Some("shop"), "web")?;
                (found == expected && deployment["status"]["observedGeneration"] == generation).then_some(deployment)
            })
            .await
    };
    let first = reach(1, &[("registry.example/web:1", 2, 2)]).await;
    let mut changed = (*first).clone();
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.example/web:2");
    cluster.update("apps", "deployments", Some("shop"), changed).await;
    let both = [("registry.example/web:1", 0, 0), ("registry.example/web:2", 2, 2)];
    let second = reach(2, &both).await;
    assert_eq!(
        second["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "2"
    );
    // A deleted ReplicaSet is created again, and all are deleted with their Deployment.
    let newest = cluster.list("apps", "replicasets", Some("shop"));
    let newest = newest.iter().find(|set| set["spec"]["replicas"] == 2).unwrap();
    let before = newest["metadata"]["uid"].clone();
    cluster
        .delete(
            "apps",
            "replicasets",
            Some("shop"),
            newest["metadata"]["name"].as_str().unwrap(),
            "Background",
        )
        .await;
    cluster
        .wait_for("it is made again", |cluster| {
            let sets = cluster.list("apps", "replicasets", Some("shop"));
            sets.iter()
                .any(|set| set["spec"]["replicas"] == 2 && set["metadata"]["uid"] != before)
                .then_some(())
        })
        .await;
    cluster
        .delete("apps", "deployments", Some("shop"), "web", "Background")
        .await;
    cluster
        .wait_for("they are gone", |cluster| {
            replica_sets(cluster).is_empty().then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_says_that_its_replica_set_is_refused() {
    let cluster = Cluster::with_namespace(true).await;
    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "count/replicasets.apps": "0" } } });
    cluster.create("", "resourcequotas", Some("shop"), quota).await;
    cluster
        .wait_for("the quota is counted", |cluster| {
            let quota = cluster.get("", "resourcequotas", Some("shop"), "none")?;
            quota.pointer("/status/hard").map(|_| ())
        })
        .await;
    cluster.create("apps", "deployments", Some("shop"), deployment(2)).await;
    let progressing = |cluster: &Cluster, reason: &str| {
        let deployment = cluster.get("apps", "deployments", Some("shop"), "web")?;
        let conditions = deployment.pointer("/status/conditions")?.as_array()?;
        let found = conditions.iter().find(|condition| condition["type"] == "Progressing")?;
        (found["reason"] == reason).then(|| (found.clone(), deployment.clone()))
    };
    let (condition, refused) = cluster
        .wait_for("it is refused", |cluster| progressing(cluster, "ReplicaSetCreateError"))
        .await;
    assert_eq!(condition["status"], "False");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("exceeded quota: none"), "{message}");
    assert_eq!(refused.pointer("/status/observedGeneration"), None);
    cluster
        .delete("", "resourcequotas", Some("shop"), "none", "Background")
        .await;
    let (condition, taken) = cluster
        .wait_for("it is taken", |cluster| progressing(cluster, "NewReplicaSetAvailable"))
        .await;
    assert_eq!(condition["status"], "True");
    assert_eq!(taken["status"]["observedGeneration"], 1);
    let expected = [("registry.example/web:1".to_owned(), 2, 2)];
    cluster
        .wait_for("the ReplicaSet is ready", |cluster| {
            (replica_sets(cluster) == expected).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_gets_an_address() {
    let cluster = Cluster::with_namespace(true).await;
    let service = json!({
        "metadata": { "name": "web" },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }], "selector": { "app": "web" } },
    });
    cluster.create("", "services", Some("shop"), service).await;
    cluster
        .wait_for("it has an address", |cluster| {
            let service = cluster.get("", "services", Some("shop"), "web")?;
            let address = service.pointer("/status/loadBalancer/ingress/0/ip")?;
            (*address == service["spec"]["clusterIP"]).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_have_no_status_without_the_switch() {
    let cluster = Cluster::with_namespace(false).await;
    cluster.create("apps", "deployments", Some("shop"), deployment(2)).await;
    cluster.wait_until_settled().await;
    let deployment = cluster.get("apps", "deployments", Some("shop"), "web").unwrap();
    assert_eq!(deployment.pointer("/status/observedGeneration"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_writes_nothing() {
    let cluster = Cluster::with_namespace(true).await;
    cluster.create("apps", "deployments", Some("shop"), deployment(2)).await;
    cluster
        .wait_for("the rollout is reported", |cluster| {
            let deployment = cluster.get("apps", "deployments", Some("shop"), "web")?;
            deployment.pointer("/status/observedGeneration").map(|_| ())
        })
        .await;
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease", "shop"] {
        cluster
            .wait_for("the namespace is furnished", |cluster| {
                cluster.get("", "serviceaccounts", Some(namespace), "default")?;
                cluster.get("", "configmaps", Some(namespace), "kube-root-ca.crt")
            })
            .await;
    }
    cluster.wait_until_settled().await;
    let before = cluster.server.registry().view().revision();
    cluster.wait_until_settled().await;
    // Only the second settling's own four writes.
    assert_eq!(cluster.server.registry().view().revision(), before + 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_controllers_finish_pending_deletions() {
    let directory = tempfile::tempdir().unwrap();
    let first = Cluster::open_in(&directory, false).await;
    first.create("", "namespaces", None, make_named("shop")).await;
    first.create("", "namespaces", None, make_named("other")).await;
    let owner = first.create("", "configmaps", Some("shop"), make_named("owner")).await;
    let child = make_owned("child", &[("ConfigMap", "owner", uid(&owner), false)]);
    first.create("", "configmaps", Some("shop"), child).await;
    first
        .create("", "configmaps", Some("other"), make_named("content"))
        .await;
    // The controllers are stopping, so they may or may not see the next writes.
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

/// A range is allocated up to its last address, each address once, also to concurrent requests. An address in an
/// annotation is not allocated.
#[tokio::test(flavor = "multi_thread")]
async fn a_range_is_given_out_to_its_last_address() {
    let cluster = Cluster::with_addresses("10.9.0.0/28").await;
    let service = |name: &str| {
        let mentions: Vec<String> = (0..16).map(|last| format!("10.9.0.{last}")).collect();
        json!({
            "metadata": { "name": name, "annotations": { "mentions": mentions.join(" "), "one": "10.9.0.9" } },
            "spec": { "ports": [{ "port": 80 }], "selector": { "app": "web" } },
        })
    };
    // The first and the last of the sixteen are never allocated.
    let mut given = BTreeSet::new();
    for number in 0..14 {
        let made = cluster
            .create("", "services", Some("shop"), service(&format!("web-{number}")))
            .await;
        let address = made["spec"]["clusterIP"].as_str().unwrap().to_owned();
        assert!(given.insert(address.clone()), "{address} is given out twice: {given:?}");
    }
    let mut named = service("named");
    named["spec"]["clusterIP"] = json!("10.9.0.9");
    let message = cluster.refuse("", "services", Some("shop"), named).await;
    assert!(message.contains("provided IP is already allocated"), "{message}");
    let message = cluster.refuse("", "services", Some("shop"), service("late")).await;
    assert!(
        message.contains("no free address is left in the service range"),
        "{message}"
    );
}
