//! Labels of a tenant's namespaces, written by an owner: what the Tenant allows, in its own namespaces only.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tenure_test_ports::reserve_port;
use tenure_testkit::{SOON, eventually};

use crate::world::{Admin, Cluster, Controllers, list_webhook_flags, wait_for_probe};

/// A namespace without a tenant.
const UNASSIGNED: &str = "labels-unassigned";
/// The refusal of an owner's change outside the tenant.
const APPLIES_NEW: &str = "an owner may apply new namespaces, and change those of its own Tenant";

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

/// Writes metadata of a namespace as an owner.
async fn write(owner: &Admin, name: &str, metadata: &Value, is_apply: bool) -> Result<Value, String> {
    let mut body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
    body["metadata"]["name"] = json!(name);
    let (patch, parameters) = match is_apply {
        true => (Patch::Apply(&body), PatchParams::apply("kubectl").force()),
        false => (Patch::Merge(&body), PatchParams::default()),
    };
    let written = owner.api(&body).patch(name, &parameters, &patch).await;
    let written = written.map_err(|error| error.to_string())?;
    Ok(serde_json::to_value(written).unwrap())
}

async fn make_tenants(cluster: &Cluster) {
    let unassigned = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": UNASSIGNED } });
    cluster.admin.apply(unassigned).await;
    for tenant in [tenant("labels-blue", "alice"), tenant("labels-red", "rita")] {
        cluster.admin.apply(tenant.clone()).await;
        cluster.admin.wait_for(tenant, is_ready).await;
    }
}

/// An owner sets what the Tenant allows, in its own namespaces only.
async fn check_writes(alice: &Admin) {
    // An owner applies a new namespace, and the label makes it the tenant's. The right for it comes once admission is in force.
    let of_blue = json!({ "labels": { "capsule.clastix.io/tenant": "labels-blue", "team": "payments" } });
    let applied = eventually(SOON, || write(alice, "labels-blue-applied", &of_blue, true)).await;
    assert_eq!(applied.expect("allowed")["metadata"]["labels"]["team"], "payments");
    let of_red = json!({ "labels": { "capsule.clastix.io/tenant": "labels-red" } });
    for (name, metadata, reasons) in [
        (
            "labels-red-applied",
            &of_red,
            [
                "no Tenant of this name has it as an owner",
                "the name belongs to Tenant",
            ],
        ),
        (
            "kube-applied",
            &of_blue,
            ["belongs to Kubernetes or the platform", "names of namespaces of Tenant"],
        ),
    ] {
        let refused = write(alice, name, metadata, true).await.expect_err(name);
        assert!(
            reasons.iter().any(|reason| refused.contains(reason)),
            "{name}: {refused}"
        );
    }
    for is_apply in [false, true] {
        let labels = json!({ "labels": { "team": "payments" }, "annotations": { "example.org/contact": "alice" } });
        // The owner's RoleBindings come once admission knows the namespace.
        let written = eventually(SOON, || write(alice, "labels-blue", &labels, is_apply)).await;
        assert_eq!(written.expect("allowed")["metadata"]["labels"]["team"], "payments");
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
            // The right to apply new namespaces is one to patch all. A patch that changes nothing shows the object, so it is refused, too.
            ("labels-red", json!({ "labels": { "team": "payments" } }), APPLIES_NEW),
            ("kube-system", json!({ "labels": { "team": "payments" } }), APPLIES_NEW),
            ("kube-system", json!({}), APPLIES_NEW),
            (UNASSIGNED, json!({ "labels": { "team": "payments" } }), APPLIES_NEW),
            (
                UNASSIGNED,
                json!({ "labels": { "capsule.clastix.io/tenant": "labels-blue" } }),
                "namespace",
            ),
            (
                "tenure-system",
                json!({ "labels": { "team": "payments" } }),
                APPLIES_NEW,
            ),
        ] {
            let written = write(alice, name, &metadata, is_apply).await;
            let refused = written.expect_err(&format!("{name} {metadata}"));
            assert!(refused.contains(reason), "{name} {metadata}: {refused}");
        }
    }
    // A merge patch can also remove the label that makes the namespace the tenant's.
    let removed = json!({ "labels": { "capsule.clastix.io/tenant": null } });
    let refused = write(alice, "labels-blue", &removed, false)
        .await
        .expect_err("no owner leaves its Tenant");
    assert!(refused.contains("may not change the tenant"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_labels_its_own_namespaces_and_no_others() {
    let cluster = Cluster::start_own_with("--policies", "applied ClusterRole tenure-policies").await;
    let _controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &["--policies"]);
    cluster.wait_until_in_force().await;
    make_tenants(&cluster).await;
    check_writes(&cluster.become_user("alice", &[]).await).await;
}

/// With webhooks alone the same holds, and while no webhook answers an owner changes no namespace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_guard_labels_of_namespaces_and_fail_closed() {
    let cluster = Cluster::start_own_with("--admission", "applied ClusterRole tenure-admission").await;
    let (port, health) = (reserve_port(), reserve_port());
    let flags = list_webhook_flags(port, health);
    let mut controllers = Controllers::start(
        &cluster.kubeconfig,
        &cluster.data("run"),
        &flags.each_ref().map(String::as_str),
    );
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let configuration =
            json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": "tenure" } });
        let is_whole = |found: &Value| found["webhooks"].as_array().is_some_and(|all| all.len() > 3);
        cluster.admin.wait_for(configuration, is_whole).await;
    }
    wait_for_probe(health, "/readyz", 200).await;
    make_tenants(&cluster).await;
    let alice = cluster.become_user("alice", &[]).await;
    check_writes(&alice).await;
    controllers.child.kill().unwrap();
    controllers.child.wait().unwrap();
    for metadata in [
        json!({ "labels": { "team": "other" } }),
        json!({ "labels": { "capsule.clastix.io/tenant": null } }),
        json!({ "labels": { "pod-security.kubernetes.io/enforce": "privileged" } }),
    ] {
        let refused = write(&alice, "labels-blue", &metadata, false)
            .await
            .expect_err(&metadata.to_string());
        assert!(refused.contains("failed calling webhook"), "{metadata}: {refused}");
    }
    // Nor does the right to apply new namespaces reach others then.
    let labels = json!({ "labels": { "team": "other" } });
    for name in [
        "labels-red",
        "kube-system",
        "tenure-system",
        UNASSIGNED,
        "labels-blue-late",
    ] {
        for is_apply in [false, true] {
            let Err(refused) = write(&alice, name, &labels, is_apply).await else {
                panic!("{name} was written");
            };
            let is_missing = name == "labels-blue-late" && !is_apply && refused.contains("not found");
            assert!(
                is_missing || refused.contains("failed calling webhook"),
                "{name}: {refused}"
            );
        }
    }
}
