//! Deploy keys: from the request to a clone by a real ssh, their replacement with proof, and their end with the grant.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::{Value, json};
use tenure_forge_server::{ForgeServer, Kind, LiveCredentialKind};
use tenure_testkit::Canary;

use super::bed::{Bed, PLATFORM, PROJECT, PROVIDER_KIND, Setup, decode, ledger};
use crate::deploy_keys::SECRET;
use crate::stage::GIT_REPOSITORY;
use crate::tenants::surface_ready;

/// Returns the fields of an AccessProvider that makes keys.
fn with_keys(forge: &ForgeServer) -> Value {
    json!({ "repositoryCredential": "deploy-key", "knownHosts": forge.git().known_hosts().unwrap() })
}

impl Bed {
    fn ssh_url(&self) -> String {
        self.forge.git().ssh_url(PROJECT).unwrap()
    }

    /// Checks whether a real ssh can clone and push with the content of a Secret.
    async fn opens(&self, secret: &Value) -> [bool; 2] {
        let (identity, hosts) = (decode(secret, "identity"), decode(secret, "known_hosts"));
        let url = self.ssh_url();
        let tried = tokio::task::spawn_blocking(move || {
            let folder = tempfile::tempdir().unwrap();
            let (key, known) = (folder.path().join("key"), folder.path().join("known_hosts"));
            std::fs::write(&key, identity).unwrap();
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
            std::fs::write(&known, hosts).unwrap();
            let ssh = format!(
                "ssh -F none -i {} -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile={}",
                key.display(),
                known.display()
            );
            let clone = folder.path().join("clone");
            let run = |arguments: &[&str]| {
                let mut git = Command::new("git");
                git.args(arguments)
                    .env("GIT_SSH_COMMAND", &ssh)
                    .env("GIT_TERMINAL_PROMPT", "0");
                git.output().unwrap().status.success()
            };
            let clone = clone.to_str().unwrap();
            let is_cloned = run(&["clone", "--quiet", &url, clone]);
            [
                is_cloned,
                is_cloned && run(&["-C", clone, "push", "--quiet", "origin", "HEAD:refs/heads/of-somebody"]),
            ]
        });
        tried.await.unwrap()
    }
}

async fn tell_story(kind: Kind, namespace: &str) {
    let entries = format!("namespaces: [{namespace}], secret_name: key");
    let setup = Setup {
        kind,
        namespaces: &[namespace],
        entries: &entries,
        provider: with_keys,
        ..Setup::default()
    };
    let mut bed = Bed::set(setup).await;
    let mut canary = Canary::plant(bed.admin(), &[]).await.unwrap();
    canary.listen_for(PLATFORM, &bed.authoriser);
    let source = json!({
        "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1, "metadata": { "name": "app", "namespace": namespace },
        "spec": { "url": bed.ssh_url(), "ref": { "branch": "main" }, "interval": "1m", "secretRef": { "name": "key" } }
    });
    bed.admin().apply(source).await.unwrap();
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    let request = bed.wait_for_delivery().await;
    assert_eq!(request["status"]["credential"], "deploy-key");
    let secret = bed.stage.get(SECRET, (namespace, "key")).await.unwrap();
    canary.listen_for(namespace, &decode(&secret, "identity"));
    let [live] = &bed.live()[..] else {
        panic!("{:?}", bed.live())
    };
    assert!(live.kind == LiveCredentialKind::Key && !live.may_write && live.last_used_at.is_some());
    assert_eq!(ledger(&request)["current"]["id"], json!(live.id));
    bed.stage
        .ready(GIT_REPOSITORY, (namespace, "app"), "True", "Succeeded")
        .await;
    assert_eq!(bed.opens(&secret).await, [true, false]);
    canary
        .check(bed.admin(), &[("metrics", &bed.stage.metrics())], &[])
        .await
        .unwrap();

    // A new key replaces it once the new one is seen in use. After that, the leaked one opens nothing.
    let first = live.id;
    bed.replace(true).await;
    bed.request("has one credential", |request| {
        ledger(request)["retiring"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
    let second = bed.stage.get(SECRET, (namespace, "key")).await.unwrap();
    assert_ne!(decode(&secret, "identity"), decode(&second, "identity"));
    let [live] = &bed.live()[..] else {
        panic!("{:?}", bed.live())
    };
    assert!(live.id != first && live.last_used_at.is_some());
    assert_eq!(bed.opens(&secret).await, [false, false]);
    assert_eq!(bed.opens(&second).await, [true, false]);
    bed.stage
        .ready(GIT_REPOSITORY, (namespace, "app"), "True", "Succeeded")
        .await;

    bed.revoke(namespace, "key").await;
    assert_eq!(bed.opens(&second).await, [false, false]);
    bed.stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_at_gitlab_clones_is_replaced_and_goes() {
    tell_story(Kind::Gitlab, "acc-j").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_at_github_clones_is_replaced_and_goes() {
    tell_story(Kind::Github, "acc-k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_at_gitea_clones_is_replaced_and_goes() {
    tell_story(Kind::Gitea, "acc-l").await;
}

/// A Surface whose source is the approved project over ssh deploys without an edit. Without host keys no key is made, and the status says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ssh_surface_uses_key_of_its_approved_project() {
    let setup = Setup {
        namespaces: &["acc-m"],
        entries: "namespaces: [tenant-m]",
        provider: |_| json!({ "repositoryCredential": "deploy-key" }),
        ..Setup::default()
    };
    let bed = Bed::set(setup).await;
    bed.deploy("tenant-m", &bed.ssh_url()).await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    let request = bed
        .request("misses host keys", |request| {
            crate::stage::condition(request, "Ready").is_some_and(|ready| ready["reason"] == "HeldBack")
        })
        .await;
    assert!(request.to_string().contains("spec.knownHosts") && bed.live().is_empty());
    let keys = json!({ "spec": with_keys(&bed.forge) });
    bed.admin()
        .patch(PROVIDER_KIND, (PLATFORM, "work"), keys)
        .await
        .unwrap();
    surface_ready(&bed.stage, ("tenant-m", "shop")).await;
    let source = bed.stage.get(GIT_REPOSITORY, ("tenant-m", "shop-app")).await.unwrap();
    assert_eq!(source["spec"]["secretRef"]["name"], "gitlab-flux-token");

    // The key is revoked, because other tests search for private keys.
    bed.revoke("tenant-m", "gitlab-flux-token").await;
    bed.stage.shut_down().await;
}
