//! Labels of a tenant's namespaces, written by an owner: what the Tenant allows, in its own namespaces only.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::world::{Cluster, Controllers};

fn tenant(name: &str, owner: &str) -> Value {
    json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": name },
        "spec": {
            "owners": [{ "kind": "User", "name": owner }],
            "nodeSelector": { "pool": name },
            "namespaceOptions": { "forbiddenLabels": { "deniedRegex": "^secret-.*" } }
        }
    })
}

fn is_ready(found: &Value) -> bool {
    let conditions = found["status"]["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        let mut ready = conditions.iter().filter(|condition| condition["type"] == "Ready");
        ready.any(|ready| ready["status"] == "True")
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_labels_its_own_namespaces_and_no_others() {
    let cluster = Cluster::start_own_with("--policies", "applied ClusterRole tenure-policies").await;
    let _controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &["--policies"]);
    cluster.wait_until_in_force().await;
    for tenant in [tenant("labels-blue", "alice"), tenant("labels-red", "rita")] {
        cluster.admin.apply(tenant.clone()).await;
        cluster.admin.wait_for(tenant, is_ready).await;
    }
    let alice = cluster.become_user("alice", &[]).await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace" });
    let write = async |name: &str, metadata: Value, is_apply: bool| {
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
        let (patch, parameters) = match is_apply {
            true => (Patch::Apply(body), PatchParams::apply("kubectl").force()),
            false => (Patch::Merge(body), PatchParams::default()),
        };
        let written = alice.api(&namespace).patch(name, &parameters, &patch).await;
        written.map_err(|error| error.to_string())
    };
    for is_apply in [false, true] {
        let labels = json!({ "labels": { "team": "payments" }, "annotations": { "example.org/contact": "alice" } });
        // The owner's RoleBindings come once the policies know the namespace.
        let written = eventually(SOON, || write("labels-blue", labels.clone(), is_apply)).await;
        let written = written.expect("allowed");
        assert_eq!(written.metadata.labels.unwrap()["team"], "payments");
        for (name, metadata, reason) in [
            (
                "labels-blue",
                json!({ "labels": { "secret-plan": "x" } }),
                "doesn't allow",
            ),
            (
                "labels-blue",
                json!({ "labels": { "capsule.clastix.io/tenant": "labels-red" } }),
                "may not change the tenant",
            ),
            (
                "labels-blue",
                json!({ "labels": { "pod-security.kubernetes.io/enforce": "privileged" } }),
                "pod-security.kubernetes.io",
            ),
            (
                "labels-blue",
                json!({ "annotations": { "scheduler.alpha.kubernetes.io/node-selector": "pool=platform" } }),
                "node-selector",
            ),
            (
                "labels-blue",
                json!({ "finalizers": ["example.org/never"] }),
                "finalizer",
            ),
            ("labels-red", json!({ "labels": { "team": "payments" } }), "forbidden"),
            ("kube-system", json!({ "labels": { "team": "payments" } }), "forbidden"),
            (
                "tenure-system",
                json!({ "labels": { "team": "payments" } }),
                "forbidden",
            ),
            (
                "labels-blue-new",
                json!({ "labels": { "team": "payments" } }),
                "forbidden",
            ),
        ] {
            let refused = write(name, metadata.clone(), is_apply)
                .await
                .expect_err(&format!("{name} {metadata}"));
            assert!(refused.contains(reason), "{name} {metadata}: {refused}");
        }
    }
}
