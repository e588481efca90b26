//! Tokens of a GitHub App's installation: they live for one hour, and are replaced at half of it.

use std::process::Command;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_forge_server::{ForgeServer, Kind};
use tenure_testkit::Canary;

use super::bed::{Bed, GRANT, PLATFORM, PROJECT, Setup, decode, ledger};
use crate::deploy_keys::SECRET;
use crate::stage::GIT_REPOSITORY;

const KEY: &str = include_str!("../../../../sources/tests/data/github-app.pem");

/// Installs an App for the group, and returns the content of its Secret.
fn install(forge: &ForgeServer) -> Value {
    forge.add_app(42, KEY).unwrap();
    let installation = forge.add_installation("group-1");
    json!({
        "githubAppID": "42", "githubAppInstallationID": installation.to_string(), "githubAppPrivateKey": KEY,
        "githubAppBaseURL": forge.url(),
    })
}

impl Bed {
    /// Checks whether a real git clones with the content of a Secret.
    async fn clones(&self, secret: &Value) -> bool {
        let pair = format!("{}:{}", decode(secret, "username"), decode(secret, "password"));
        let url = self
            .forge
            .git()
            .http_url(PROJECT)
            .replace("http://", &format!("http://{pair}@"));
        let tried = tokio::task::spawn_blocking(move || {
            let folder = tempfile::tempdir().unwrap();
            let mut git = Command::new("git");
            git.args(["clone", "--quiet", &url])
                .arg(folder.path().join("clone"))
                .env("GIT_TERMINAL_PROMPT", "0");
            git.output().unwrap().status.success()
        });
        tried.await.unwrap()
    }
}

fn read_end(request: &Value) -> Timestamp {
    ledger(request)["current"]["expiresAt"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn app_token_is_replaced_after_half_its_lifetime() {
    let setup = Setup {
        kind: Kind::Github,
        namespaces: &["acc-n"],
        entries: "namespaces: [acc-n]",
        authoriser: Some(install),
        ..Setup::default()
    };
    let bed = Bed::set(setup).await;
    let mut canary = Canary::plant(bed.admin(), &[]).await.unwrap();
    bed.source("acc-n").await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    let request = bed.wait_for_delivery().await;
    assert_eq!(request["status"]["credential"], "installation-token");
    let first = bed.secret("acc-n").await.unwrap();
    canary.listen_for("acc-n", &decode(&first, "password"));
    assert_eq!(decode(&first, "username"), "x-access-token");
    let first_end = read_end(&request);
    let lives = first_end.duration_since(Timestamp::now());
    assert!(
        lives > SignedDuration::from_mins(50) && lives <= SignedDuration::from_hours(1),
        "{lives}"
    );
    bed.stage
        .ready(GIT_REPOSITORY, ("acc-n", "app"), "True", "Succeeded")
        .await;
    assert!(bed.clones(&first).await);
    // Each token is for the one project, and only for reading.
    let requests = bed.forge.requests();
    let orders: Vec<&str> = requests
        .iter()
        .filter(|request| request.target.ends_with("/access_tokens") && request.body.contains("repository_ids"))
        .map(|request| request.body.as_str())
        .collect();
    let [order] = orders[..] else { panic!("{orders:?}") };
    let order: Value = serde_json::from_str(order).unwrap();
    assert_eq!(
        order,
        json!({ "permissions": { "contents": "read" }, "repository_ids": [bed.project] })
    );

    // After half of its lifetime another one exists, and works after the first has ended. An App's signature is valid for less than two minutes, so
    // clocks may not differ by more.
    bed.forge.advance(SignedDuration::from_secs(30));
    bed.age().await;
    bed.look_again(&request).await;
    let request = bed
        .request("was replaced", |request| {
            let current = &ledger(request)["current"];
            current["generation"] == 2 && current["verifiedAt"].is_string() && ledger(request)["next"].is_null()
        })
        .await;
    let history = request["status"]["history"].to_string();
    assert!(history.contains("\"Due\""), "{history}");
    let second = bed.secret("acc-n").await.unwrap();
    canary.listen_for("acc-n", &decode(&second, "password"));
    assert!(bed.clones(&first).await && bed.clones(&second).await);
    let second_end = read_end(&request);
    assert!(first_end < second_end, "{first_end} {second_end}");
    // Records have whole seconds.
    bed.forge
        .set_time(first_end.checked_add(SignedDuration::from_secs(1)).unwrap());
    assert!(!bed.clones(&first).await && bed.clones(&second).await);
    canary
        .check(bed.admin(), &[("metrics", &bed.stage.metrics())], &[])
        .await
        .unwrap();

    // A token without a number can't be revoked: the Secret is deleted, and a message says that the token expires by itself.
    bed.admin().delete(GRANT, (PLATFORM, "alice-approved")).await.unwrap();
    bed.stage
        .wait_for(SECRET, ("acc-n", "gitlab-flux-token"), |secret| secret.is_none())
        .await;
    bed.request("is revoked", |request| {
        request["status"]["state"] == "Revoked" && request["status"]["credentials"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
    bed.stage
        .wait_for_event(PLATFORM, |event| event["reason"] == "CredentialForgotten")
        .await;
    bed.stage.shut_down().await;
}
