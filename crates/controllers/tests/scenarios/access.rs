//! Access to a Git host, from an entry in an agent's configuration to a Secret that clones, and to its end. The host gives out deploy tokens as
//! GitLab does, with a real git server behind it.

mod apps;
mod bed;
mod by_hand;
mod clusters;
mod crash;
mod groups;
mod images;
mod keys;
mod notices;
mod outside;
mod rotations;
mod widening;

use serde_json::json;
use tenure_testkit::{Canary, SOON, eventually};

use self::bed::{Bed, GRANT, PLATFORM, PROJECT, PROVIDER_KIND, REQUEST, STAGING, VERSION, decode, grant, ledger};
use crate::deploy_keys::{ROLE, ROLE_BINDING, SECRET};
use crate::stage::{GIT_REPOSITORY, condition};
use crate::tenants::surface_ready;

const ACCESS: (&str, &str) = (VERSION, "FluxAccess");
const TARGET: (&str, &str) = (VERSION, "FluxAccessTarget");
const NAMESPACE: (&str, &str) = ("v1", "Namespace");

/// An entry of an agent is requested, approved and delivered, and its Secret clones. Deleting the grant revokes the credential.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entry_has_credential_from_approval_until_grant_ends() {
    let bed = Bed::new(&["acc-a"], "namespaces: [acc-a], service_accounts: [flux]").await;
    let mut canary = Canary::plant(bed.admin(), &[]).await.unwrap();
    canary.listen_for(PLATFORM, &bed.authoriser);
    bed.source("acc-a").await;
    let request = bed.pending().await;
    assert_eq!(request["spec"]["requestedBy"], "agent:work/prod");
    bed.request("says where it goes to", |request| {
        request["status"]["receivers"] == json!(["acc-a"])
    })
    .await;
    let target = bed.stage.get(TARGET, ("", &bed.target())).await.unwrap();
    assert_eq!(target["spec"]["id"], json!(bed.project));
    assert!(bed.secret("acc-a").await.is_none() && bed.live().is_empty());
    bed.stage
        .ready(GIT_REPOSITORY, ("acc-a", "app"), "False", "AuthenticationFailed")
        .await;

    // No user can answer in another user's name, or without the right.
    let mallory = bed.admin().impersonating("mallory").unwrap();
    for by in ["alice", "mallory"] {
        let forged = grant(&request, &bed.target(), by, "Approved");
        assert!(mallory.create(forged).await.is_err(), "{by}");
    }
    bed.answer(&request, "Approved").await;
    let request = bed.wait_for_delivery().await;
    let secret = bed.secret("acc-a").await.unwrap();
    let password = decode(&secret, "password");
    canary.listen_for("acc-a", &password);
    assert_eq!(decode(&secret, "username"), "prod", "the name of the agent");
    assert_eq!(
        secret["metadata"]["labels"]["tenure.dev/access-request"],
        request["metadata"]["name"]
    );
    bed.stage
        .ready(GIT_REPOSITORY, ("acc-a", "app"), "True", "Succeeded")
        .await;
    let [live] = &bed.live()[..] else {
        panic!("{:?}", bed.live())
    };
    assert!(!live.may_write && live.last_used_at.is_some());
    assert_eq!(ledger(&request)["current"]["name"], json!(live.name));
    assert!(live.name.starts_with("fa/"), "{live:?}");
    // The source's account and the entry's account may read that one Secret, and this Role grants nothing else.
    let role = bed.stage.get(ROLE, ("acc-a", "gitlab-flux-token")).await.unwrap();
    assert_eq!(role["rules"][0]["resourceNames"], json!(["gitlab-flux-token"]));
    let binding = bed
        .stage
        .get(ROLE_BINDING, ("acc-a", "gitlab-flux-token"))
        .await
        .unwrap();
    let readers: Vec<&str> = binding["subjects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|who| who["name"].as_str().unwrap())
        .collect();
    assert_eq!(readers, ["default", "flux"]);
    // The staging Secret is empty, and no other object has the value.
    let staging = bed.stage.get(SECRET, (PLATFORM, STAGING)).await.unwrap();
    assert!(
        staging["data"].as_object().is_none_or(serde_json::Map::is_empty),
        "{staging:#?}"
    );
    let metrics = bed.stage.metrics();
    assert!(
        metrics.contains("tenure_access_credentials{provider=\"work\"} 1"),
        "{metrics}"
    );
    canary.check(bed.admin(), &[("metrics", &metrics)], &[]).await.unwrap();
    for reason in ["CredentialMinted", "CredentialVerified"] {
        bed.stage
            .wait_for_event(PLATFORM, |event| event["reason"] == reason)
            .await;
    }
    let history = request["status"]["history"].to_string();
    assert!(
        history.contains("\"alice\"") && history.contains("Distributed"),
        "{history}"
    );

    // Deleting the grant revokes the credential.
    bed.revoke("acc-a", "gitlab-flux-token").await;
    for kind in [ROLE, ROLE_BINDING] {
        bed.stage
            .wait_for(kind, ("acc-a", "gitlab-flux-token"), |object| object.is_none())
            .await;
    }
    bed.request("is revoked", |request| {
        request["status"]["state"] == "Revoked" && request["status"]["credentials"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
    bed.stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaked_credential_is_revoked_once_successor_is_used() {
    let mut bed = Bed::new(&["acc-b"], "namespaces: [acc-b]").await;
    bed.source("acc-b").await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    bed.wait_for_delivery().await;
    let first = bed.live()[0].id;
    bed.replace(true).await;
    let request = bed
        .request("has one credential", |request| {
            ledger(request)["retiring"].as_array().is_none_or(Vec::is_empty)
        })
        .await;
    let [second] = &bed.live()[..] else {
        panic!("{:?}", bed.live())
    };
    assert!(second.id != first && ledger(&request)["current"]["id"] == json!(second.id));
    bed.stage
        .ready(GIT_REPOSITORY, ("acc-b", "app"), "True", "Succeeded")
        .await;
    bed.stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_credential_lives_on_unless_it_leaked() {
    let mut bed = Bed::new(&["acc-i"], "namespaces: [acc-i]").await;
    bed.source("acc-i").await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    bed.wait_for_delivery().await;
    let first = bed.live()[0].id;
    let request = bed.replace(false).await;
    let live: Vec<u64> = bed.live().iter().map(|live| live.id).collect();
    assert!(live.len() >= 2 && live.contains(&first), "{live:?}");
    let retiring = ledger(&request)["retiring"].as_array().unwrap();
    let first = retiring.iter().find(|retiring| retiring["id"] == json!(first));
    assert!(first.unwrap()["retireAt"].is_string(), "{retiring:?}");
    bed.stage
        .ready(GIT_REPOSITORY, ("acc-i", "app"), "True", "Succeeded")
        .await;
    bed.stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_secret_stays_and_deleted_namespace_revokes_token() {
    let bed = Bed::new(&["acc-c", "acc-d"], "namespaces: [acc-c, acc-d]").await;
    let foreign = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "gitlab-flux-token", "namespace": "acc-d" },
        "stringData": { "password": "mine" }
    });
    bed.admin().apply(foreign).await.unwrap();
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    let request = bed
        .request("tells of the foreign Secret", |request| {
            condition(request, "Ready").is_some_and(|ready| ready["reason"] == "ForeignSecret") && bed.live().len() == 1
        })
        .await;
    let message = condition(&request, "Ready").unwrap()["message"].as_str().unwrap();
    assert!(
        message.contains("acc-d") && message.contains("it is not touched"),
        "{message}"
    );
    assert_eq!(decode(&bed.secret("acc-d").await.unwrap(), "password"), "mine");
    bed.stage
        .wait_for(SECRET, ("acc-c", "gitlab-flux-token"), |object| object.is_some())
        .await;
    bed.admin().delete(NAMESPACE, ("", "acc-c")).await.unwrap();
    bed.until_none_lives().await;
    bed.stage.shut_down().await;
}

/// The request reports the credentials that live on at the host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_deleted_although_authoriser_is_revoked() {
    let bed = Bed::new(&["acc-e"], "namespaces: [acc-e]").await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    bed.wait_for_delivery().await;
    let id = bed.live()[0].id;
    bed.forge.revoke_authoriser(&bed.authoriser);
    bed.admin().delete(GRANT, (PLATFORM, "alice-approved")).await.unwrap();
    bed.stage
        .wait_for(SECRET, ("acc-e", "gitlab-flux-token"), |object| object.is_none())
        .await;
    let request = bed
        .request("tells what lives on", |request| condition(request, "LivesOn").is_some())
        .await;
    let message = condition(&request, "LivesOn").unwrap()["message"].as_str().unwrap();
    assert!(message.contains(&id.to_string()), "{message}");
    // The namespace can still be deleted.
    bed.admin().delete(NAMESPACE, ("", "acc-e")).await.unwrap();
    bed.stage
        .wait_for(NAMESPACE, ("", "acc-e"), |object| object.is_none())
        .await;
    bed.stage.shut_down().await;
}

/// A Surface whose source is the approved project deploys with no further edit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn surface_of_approved_project_deploys_without_edit() {
    let bed = Bed::new(&["acc-s"], "namespaces: [tenant-s]").await;
    bed.deploy("tenant-s", &bed.forge.git().http_url(PROJECT)).await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    surface_ready(&bed.stage, ("tenant-s", "shop")).await;
    let source = bed.stage.get(GIT_REPOSITORY, ("tenant-s", "shop-app")).await.unwrap();
    assert_eq!(source["spec"]["secretRef"]["name"], "gitlab-flux-token");
    bed.stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_provider_removes_its_credentials_and_requests() {
    let bed = Bed::new(&["acc-f"], "namespaces: [acc-f]").await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    bed.wait_for_delivery().await;
    bed.admin().delete(PROVIDER_KIND, (PLATFORM, "work")).await.unwrap();
    bed.until_none_lives().await;
    bed.stage
        .wait_for(SECRET, ("acc-f", "gitlab-flux-token"), |object| object.is_none())
        .await;
    bed.stage
        .wait_for(PROVIDER_KIND, (PLATFORM, "work"), |object| object.is_none())
        .await;
    assert!(bed.admin().list(REQUEST, PLATFORM).await.unwrap().is_empty());
    bed.stage
        .wait_for(TARGET, ("", &bed.target()), |object| object.is_none())
        .await;
    bed.stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denial_is_reported_and_fluxaccess_stays_in_namespace() {
    let bed = Bed::new(&["acc-g", "acc-h"], "namespaces: [acc-g]").await;
    let request = bed.pending().await;
    bed.answer(&request, "Denied").await;
    bed.request("is denied", |request| request["status"]["state"] == "Denied")
        .await;
    assert!(bed.live().is_empty());
    // A FluxAccess in a namespace without a tenant reaches only this namespace.
    let access = |by: &str| {
        json!({
            "apiVersion": VERSION, "kind": "FluxAccess",
            "metadata": { "name": "apps", "namespace": "acc-h", "annotations": { "tenure.dev/requested-by": by } },
            "spec": { "provider": "work", "role": "read_repository", "projects": [{ "id": PROJECT, "namespaces": ["acc-g"] }] }
        })
    };
    let bob = bed.asker("acc-h", "bob").await;
    // No user can request in another user's name, once a server has applied the policies and his rights.
    let refused = eventually(SOON, || async {
        match bob.create(access("alice")).await {
            Err(error) if error.to_string().contains("(access)") => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(_) => {
                let deleted = bed.admin().delete(ACCESS, ("acc-h", "apps")).await;
                Err(format!("it was taken, and taken away again: {deleted:?}"))
            }
        }
    });
    refused.await.unwrap();
    eventually(SOON, || bob.create(access("bob"))).await.unwrap();
    let access = bed
        .stage
        .wait_for(ACCESS, ("acc-h", "apps"), |access| {
            access.is_some_and(|access| condition(access, "Ready").is_some())
        })
        .await
        .unwrap();
    let problem = access["status"]["problems"][0]["message"].as_str().unwrap();
    assert!(problem.contains("namespace acc-g is not acc-h"), "{access:#?}");
    bed.stage.shut_down().await;
}
