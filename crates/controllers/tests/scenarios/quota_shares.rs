//! Quotas for all namespaces of a Tenant together, without an admission check of the sum: Kubernetes enforces each namespace's share.

use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::stage::{Stage, condition};
use crate::tenants::{TENANT, adopt};

const QUOTA: (&str, &str) = ("v1", "ResourceQuota");
const SERVICE: (&str, &str) = ("v1", "Service");
/// The quota of the Tenant.
const MOST: usize = 12;

const NAMESPACES: [&str; 3] = ["shares", "shares-a", "shares-b"];

async fn count(stage: &Stage) -> usize {
    let mut sum = 0;
    for namespace in NAMESPACES {
        sum += stage.admin.list(SERVICE, namespace).await.unwrap().len();
    }
    sum
}

/// Creates one more object, and returns whether it was allowed. A refusal must name the quota.
async fn make(stage: &Stage, namespace: &str, name: &str) -> bool {
    let service = json!({
        "apiVersion": SERVICE.0, "kind": SERVICE.1, "metadata": { "name": name, "namespace": namespace },
        "spec": { "ports": [{ "port": 80 }] }
    });
    match stage.admin.create(service).await {
        Ok(_) => true,
        Err(error) => {
            let error = error.to_string();
            let is_quotas = error.contains("exceeded quota: capsule-shares-0") || error.contains("status unknown");
            assert!(is_quotas, "{error}");
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_together_use_whole_quota_and_no_more() {
    let stage = Stage::set("shares-outside").await;
    // Kubernetes enforces each namespace's quota, and no component checks the sum.
    stage.send_guard_away();
    let tenant = json!({
        "apiVersion": TENANT.0, "kind": TENANT.1, "metadata": { "name": "shares" },
        "spec": {
            "owners": [{ "kind": "User", "name": "shares-owner" }],
            "resourceQuotas": { "items": [{ "hard": { "services": MOST.to_string() } }] }
        }
    });
    stage.admin.apply(tenant).await.unwrap();
    for namespace in &NAMESPACES[1..] {
        adopt(&stage, "shares", namespace).await;
    }
    for namespace in NAMESPACES {
        stage
            .wait_for(QUOTA, (namespace, "capsule-shares-0"), |quota| quota.is_some())
            .await;
        stage
            .admin
            .wait_for_quota((namespace, "capsule-shares-0"))
            .await
            .unwrap();
    }
    let is_ready = |tenant: Option<&Value>| {
        let ready = tenant.and_then(|tenant| condition(tenant, "Ready"));
        ready.is_some_and(|ready| ready["status"] == "True" && ready["message"] == "3 namespaces")
    };
    stage.wait_for(TENANT, ("", "shares"), is_ready).await;

    // Many concurrent writes in all namespaces, until the quota is used, and some more.
    let attempt = |round: usize| {
        let stage = &stage;
        let all = NAMESPACES.iter().flat_map(move |namespace| {
            (0..4).map(move |number| async move { make(stage, namespace, &format!("s-{round}-{number}")).await })
        });
        futures::future::join_all(all)
    };
    let round = std::sync::atomic::AtomicUsize::new(0);
    let next = || round.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    eventually(SOON, || async {
        attempt(next()).await;
        let sum = count(&stage).await;
        assert!(sum <= MOST, "{sum}");
        if sum == MOST {
            Ok(())
        } else {
            Err(format!("{sum} of {MOST}"))
        }
    })
    .await
    .unwrap();
    for _ in 0..5 {
        let made = attempt(next()).await;
        assert!(!made.contains(&true), "{made:?}");
    }

    // Unused shares go to other namespaces: the largest has at least a third, and each has some.
    let mut most = Vec::new();
    for namespace in NAMESPACES {
        let services = stage.admin.list(SERVICE, namespace).await.unwrap();
        if services.len() >= most.len() {
            most = services;
        }
    }
    let text = |service: &Value, field: &str| service["metadata"][field].as_str().unwrap().to_owned();
    let leaving = text(&most[0], "namespace");
    for service in &most {
        let target = (leaving.as_str(), text(service, "name"));
        stage.admin.delete(SERVICE, (target.0, &target.1)).await.unwrap();
    }
    for namespace in NAMESPACES.into_iter().filter(|namespace| *namespace != leaving) {
        eventually(SOON, || async {
            let is_made = make(&stage, namespace, &format!("again-{}", next())).await;
            if is_made { Ok(()) } else { Err("refused") }
        })
        .await
        .unwrap();
    }
    assert!(count(&stage).await <= MOST);
    stage.shut_down().await;
}
