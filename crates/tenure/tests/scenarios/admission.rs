//! Admission webhooks of `tenure run`, on a cluster with existing tenants: their installation, their checks, writes while the controllers are down, and their removal.
//! `docs/howto/admission-webhooks.md` shows the same as commands.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tenure_test_ports::reserve_port;

use crate::world::{Admin, Cluster, Controllers, PATIENCE, ask_probe, list_webhook_flags, wait_for_probe};

fn configuration(kind: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "tenure"}})
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Creates the object until the result is as expected.
async fn create_until(who: &Admin, object: &Value, expected: impl Fn(&Result<Value, String>) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let result = who.create(object).await;
        if expected(&result) {
            return result.unwrap_or_default();
        }
        assert!(started.elapsed() < PATIENCE, "{object}: {result:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn webhooks_are_installed_and_removed_beside_existing_tenants() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let tenant = |name: &str, owner: &str| {
        json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": {"name": name},
            "spec": {"owners": [{"kind": "User", "name": owner}]}})
    };
    admin.apply(tenant("orchard", "alice")).await;
    admin.apply(tenant("quarry", "bob")).await;
    let port = reserve_port();
    let health = reserve_port();
    let flags = list_webhook_flags(port, health);
    let flags = flags.each_ref().map(String::as_str);
    // Before the installation no webhook exists, and an owner can't create namespaces.
    let old = Controllers::start(&cluster.kubeconfig, &cluster.data("before"), &[]);
    admin.wait_for_leader(&old.candidate).await;
    admin
        .wait_for(namespace("orchard"), |found| found["metadata"]["uid"].is_string())
        .await;
    let alice = cluster.become_user("alice", &[]).await;
    let refused = alice.create(&namespace("orchard-dev")).await.unwrap_err();
    assert!(refused.contains("cannot create resource \"namespaces\""), "{refused}");
    let mut old = old;
    assert_eq!(old.signal(Signal::SIGTERM), Some(0));

    // The rights are installed first, and then the controllers that answer.
    cluster.check(
        &["install", "--without-deployment", "--admission"],
        0,
        &["applied ClusterRole tenure-admission"],
    );
    let mut controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &flags);
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        admin
            .wait_for(configuration(kind), |found| {
                found["webhooks"].as_array().is_some_and(|all| all.len() > 3)
            })
            .await;
    }
    wait_for_probe(health, "/readyz", 200).await;
    // Owners create namespaces, which belong to their tenants.
    let made = create_until(&alice, &namespace("orchard-dev"), |result| result.is_ok()).await;
    assert_eq!(made["metadata"]["labels"]["capsule.clastix.io/tenant"], "orchard");
    // The garbage collector deletes by an ownerReference.
    assert!(made["metadata"]["ownerReferences"].is_null(), "{made}");
    // Owners can get their Tenant, without a right to list.
    let view = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "tenure:orchard:view"}});
    admin.wait_for(view, |found| found["subjects"].is_array()).await;
    let output = cluster.check_as("alice", &["get", "tenants"], 0, &["orchard", "NAME"]);
    assert!(!output.contains("quarry"), "{output}");
    let mut foreign = namespace("quarry-dev");
    foreign["metadata"]["labels"] = json!({"capsule.clastix.io/tenant": "quarry"});
    let refused = alice.create(&foreign).await.unwrap_err();
    assert!(
        refused
            .contains("admission webhook \"namespaces.admission.tenure.dev\" denied the request: alice may not create"),
        "{refused}"
    );
    assert!(refused.ends_with("(namespace-membership)"), "{refused}");
    // The webhooks check writes of administrators, too.
    let mut system = tenant("third", "carol");
    system["metadata"]["annotations"] = json!({"tenure.dev/home-namespace": "kube-system"});
    let refused = admin.create(&system).await.unwrap_err();
    assert!(refused.ends_with("(tenant)"), "{refused}");

    // Controllers without webhooks must not replace controllers with them.
    let digest = "a".repeat(64);
    let image = format!("registry.example/tenure:0.1.0@sha256:{digest}");
    cluster.check(
        &["install", "--image", &image, "--without-admission"],
        2,
        &["wouldn't answer it", "--admission"],
    );

    // The controllers are down. Writes that only Tenure checks are denied; administrators' and all other writes succeed.
    controllers.signal(Signal::SIGKILL);
    assert_eq!(ask_probe(health, "/livez"), None);
    let refused = alice.create(&namespace("orchard-late")).await.unwrap_err();
    assert!(refused.contains("failed calling webhook"), "{refused}");
    admin.create(&namespace("by-admin")).await.unwrap();
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "by-owner", "namespace": "orchard-dev"}});
    create_until(&alice, &config, |result| {
        result.is_ok() || result.as_ref().is_err_and(|why| why.contains("forbidden"))
    })
    .await;
    admin.create(&config).await.ok();
    // The controllers return with the same certificate, and continue.
    let mut again = Controllers::start(&cluster.kubeconfig, &cluster.data("again"), &flags);
    create_until(&alice, &namespace("orchard-late"), |result| result.is_ok()).await;

    // The webhooks are removed first, even while controllers run that would restore them.
    cluster.check(
        &["uninstall", "--dry-run"],
        0,
        &[
            "ClusterRoleBinding tenure-admission: deleted",
            "ValidatingWebhookConfiguration tenure: deleted",
        ],
    );
    cluster.check(&["uninstall", "--yes", "--wait=1"], 3, &["leads"]);
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        admin.wait_until_gone(&configuration(kind)).await;
    }
    let refused = alice.create(&namespace("orchard-more")).await.unwrap_err();
    assert!(refused.contains("cannot create resource \"namespaces\""), "{refused}");
    assert_eq!(again.signal(Signal::SIGTERM), Some(0));
    cluster.check(&["uninstall", "--yes"], 0, &["Namespace tenure-system: deleted"]);
    let platform = namespace("tenure-system");
    cluster.wait_until_settled(&platform).await;
    for name in ["orchard", "orchard-dev", "orchard-late", "quarry", "by-admin"] {
        admin.delete(&namespace(name)).await;
    }
}

/// The controllers are dead, and their webhooks still deny writes. This must not block the uninstallation.
#[tokio::test]
async fn uninstallation_removes_webhooks_of_dead_controllers() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    admin
        .apply(
            json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": {"name": "grove"},
            "spec": {"owners": [{"kind": "User", "name": "gwen"}]}}),
        )
        .await;
    cluster.check(
        &["install", "--without-deployment", "--admission"],
        0,
        &["applied ClusterRole tenure-admission"],
    );
    let (port, health) = (reserve_port(), reserve_port());
    let flags = list_webhook_flags(port, health);
    let flags = flags.each_ref().map(String::as_str);
    let mut controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &flags);
    let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
    for kind in kinds {
        let hangs = |found: &Value| found["webhooks"].as_array().is_some_and(|all| all.len() > 3);
        admin.wait_for(configuration(kind), hangs).await;
    }
    wait_for_probe(health, "/readyz", 200).await;
    let gwen = cluster.become_user("gwen", &[]).await;
    create_until(&gwen, &namespace("grove-dev"), |result| result.is_ok()).await;

    controllers.signal(Signal::SIGKILL);
    let refused = gwen.create(&namespace("grove-late")).await.unwrap_err();
    assert!(refused.contains("failed calling webhook"), "{refused}");
    for kind in kinds {
        let found = admin
            .find(&configuration(kind))
            .await
            .expect("it outlives the controllers");
        let webhooks = found["webhooks"].as_array().expect("webhooks");
        assert!(
            webhooks.iter().any(|webhook| webhook["failurePolicy"] == "Fail"),
            "{found}"
        );
    }
    cluster.check(
        &["uninstall", "--delete-kinds", "--yes", "--wait=60"],
        0,
        &[
            "ClusterRoleBinding tenure-admission: deleted",
            "MutatingWebhookConfiguration tenure: deleted",
            "ValidatingWebhookConfiguration tenure: deleted",
            "Tenant grove: without the controllers' finalizer",
            "Namespace tenure-system: deleted",
        ],
    );
    for kind in kinds {
        admin.wait_until_gone(&configuration(kind)).await;
    }
    // Blocked writes succeed again, and running workloads stay.
    admin.create(&namespace("grove-after")).await.unwrap();
    let found = admin.find(&namespace("grove-dev")).await.expect("it stays");
    assert!(found["metadata"]["deletionTimestamp"].is_null(), "{found}");
    cluster.wait_until_settled(&namespace("tenure-system")).await;
    for name in ["grove", "grove-dev", "grove-after"] {
        admin.delete(&namespace(name)).await;
    }
}
