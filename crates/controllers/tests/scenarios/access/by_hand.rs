//! A host without created credentials: a request is approved, a user writes the Secret, and its age is watched.

use serde_json::json;
use tenure_testkit::{SOON, eventually};

use super::bed::{Bed, GRANT, PLATFORM, PROVIDER_KIND, REQUEST, Setup};
use crate::stage::condition;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_written_secret_is_requested_approved_and_watched() {
    let setup = Setup {
        namespaces: &["acc-o"],
        entries: "namespaces: [acc-o], rotate: 1d",
        provider: |_| json!({ "kind": "static", "authoriser": null }),
        ..Setup::default()
    };
    let bed = Bed::set(setup).await;
    // The target's number follows from its path, and approvers have the verb on that target.
    let request = bed.pending().await;
    let target = format!("work-{}", request["spec"]["target"]["id"]);
    let rights = json!({ "rules": [
        { "apiGroups": ["tenure.dev"], "resources": ["fluxaccesstargets"], "resourceNames": [target], "verbs": ["approve"] },
        { "apiGroups": ["tenure.dev"], "resources": ["fluxaccessgrants"], "verbs": ["create", "delete", "get"] },
    ] });
    let role = ("rbac.authorization.k8s.io/v1", "ClusterRole");
    bed.admin().patch(role, ("", "owners-of-app"), rights).await.unwrap();
    let alice = bed.admin().impersonating("alice").unwrap();
    let grant = super::grant(&request, &target, "alice", "Approved");
    eventually(SOON, || alice.create(grant.clone())).await.unwrap();
    let has = |type_: &'static str, reason: &'static str| {
        move |request: &serde_json::Value| condition(request, type_).is_some_and(|found| found["reason"] == reason)
    };
    let request = bed.request("misses the Secret", has("Ready", "SecretMissing")).await;
    assert_eq!(request["status"]["state"], "Approved");
    assert!(bed.live().is_empty());

    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "gitlab-flux-token", "namespace": "acc-o" },
        "data": { "password": "b2xk" }
    });
    bed.admin().create(secret).await.unwrap();
    bed.look_again(&request).await;
    let request = bed.request("is there", has("Ready", "WrittenByHand")).await;
    assert!(condition(&request, "Expiring").is_none() && condition(&request, "Verified").is_none());

    // The hand-written Secret stays.
    bed.admin().delete(GRANT, (PLATFORM, "alice-approved")).await.unwrap();
    bed.request("is revoked", |request| request["status"]["state"] != "Approved")
        .await;
    assert!(bed.secret("acc-o").await.is_some());
    bed.admin().delete(PROVIDER_KIND, (PLATFORM, "work")).await.unwrap();
    bed.stage
        .wait_for(PROVIDER_KIND, (PLATFORM, "work"), |object| object.is_none())
        .await;
    assert!(bed.admin().list(REQUEST, PLATFORM).await.unwrap().is_empty());
    assert!(bed.secret("acc-o").await.is_some());
    bed.stage.shut_down().await;
}
