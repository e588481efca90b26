//! The repositories that a Git credential opens: the real git, the real ssh and the probe must agree.

use std::time::Duration;

use tenure_forge_server::Owner;
use tenure_remote_requests::git_host::{CredentialKind, HostKind, ProbeResult};
use tenure_sources::{SecretData, probe_git};

use crate::bed::{Bed, PROJECT, allow_addresses, find_program, make_order, mint, revoke};
use crate::fetches::fetch_git;

fn basic_secret(username: &str, password: &str) -> SecretData {
    let pairs = [("username", username), ("password", password)];
    pairs
        .map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()))
        .into()
}

async fn fetch(bed: &Bed, secret: &SecretData) -> Result<Vec<String>, String> {
    let url = bed.forge.git().http_url(PROJECT);
    fetch_git(&url, secret, &allow_addresses(&[&url])).await
}

async fn probe(bed: &Bed, name: &str, secret: &SecretData) -> ProbeResult {
    let url = bed.forge.git().http_url(name);
    probe_git(&url, secret, &allow_addresses(&[&url])).await
}

#[tokio::test]
async fn deploy_token_only_reads_until_it_is_revoked() {
    let bed = Bed::new(HostKind::Gitlab).await;
    bed.forge.add_project("group-1/other").await.unwrap();
    let (request, _) = make_order(&bed.target(), CredentialKind::DeployToken, "fa/1");
    let (id, credential) = mint(&bed.host, &request).await;
    let (username, token) = credential.unwrap();
    let secret = basic_secret(&username, &token);
    let url = format!(
        "http://{}:{token}@{}/{PROJECT}.git",
        username.replace('+', "%2B"),
        bed.forge.git().http_address()
    );
    assert_eq!(probe(&bed, PROJECT, &secret).await, ProbeResult::Accepted);
    assert_eq!(fetch(&bed, &secret).await, Ok(vec!["a.yaml".to_owned()]));
    assert!(bed.git(&["clone", "-q", &url, "work"], &[]).await.status.success());
    let pushed = bed
        .git(&["-C", "work", "push", "-q", "origin", "HEAD:other"], &[])
        .await;
    assert!(String::from_utf8_lossy(&pushed.stderr).contains("403"), "{pushed:?}");
    let probed = probe(&bed, "group-1/other", &secret).await;
    assert!(matches!(probed, ProbeResult::Refused(_)), "{probed:?}");
    assert!(bed.forge.live()[0].last_used_at.is_some());

    revoke(&bed.host, &bed.target(), CredentialKind::DeployToken, id)
        .await
        .unwrap();
    let probed = probe(&bed, PROJECT, &secret).await;
    assert!(
        matches!(&probed, ProbeResult::Refused(why) if !why.contains(&token)),
        "{probed:?}"
    );
    assert!(fetch(&bed, &secret).await.is_err_and(|why| !why.contains(&token)));
    assert!(!bed.git(&["-C", "work", "fetch", "-q"], &[]).await.status.success());
}

/// A token of a group reads all projects below the group, until a person revokes it in the web pages.
#[tokio::test]
async fn group_token_reads_its_projects_until_revoked_by_people() {
    let bed = Bed::new(HostKind::Gitlab).await;
    bed.forge.add_project("group-1/other").await.unwrap();
    bed.forge.add_project("group-10/foreign").await.unwrap();
    let (request, _) = make_order(&bed.group_target(), CredentialKind::DeployToken, "fa/1");
    let (id, credential) = mint(&bed.host, &request).await;
    let (username, token) = credential.unwrap();
    let secret = basic_secret(&username, &token);
    for name in [PROJECT, "group-1/other"] {
        assert_eq!(probe(&bed, name, &secret).await, ProbeResult::Accepted);
    }
    assert!(matches!(
        probe(&bed, "group-10/foreign", &secret).await,
        ProbeResult::Refused(_)
    ));
    assert!(bed.forge.revoke_in_web_pages(Owner::Group(bed.group), id));
    assert!(matches!(probe(&bed, PROJECT, &secret).await, ProbeResult::Refused(_)));
}

#[tokio::test]
async fn deploy_key_only_reads_until_it_is_removed() {
    for kind in [HostKind::Gitlab, HostKind::Github, HostKind::Gitea] {
        let bed = Bed::new(kind).await;
        bed.forge.add_project("group-1/other").await.unwrap();
        let (request, private) = make_order(&bed.target(), CredentialKind::DeployKey, "fa/1");
        let (id, _) = mint(&bed.host, &request).await;
        let private = private.unwrap();
        let known_hosts = bed.forge.git().known_hosts().unwrap();
        let secret: SecretData = [("identity", private.reveal()), ("known_hosts", known_hosts.as_str())]
            .map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()))
            .into();
        let probe = async |name: &str| {
            let url = bed.forge.git().ssh_url(name).unwrap();
            probe_git(&url, &secret, &allow_addresses(&[&url])).await
        };
        assert_eq!(probe(PROJECT).await, ProbeResult::Accepted, "{kind:?}");
        assert!(matches!(probe("group-1/other").await, ProbeResult::Refused(_)));
        let url = bed.forge.git().ssh_url(PROJECT).unwrap();
        let fetch = async || fetch_git(&url, &secret, &allow_addresses(&[&url])).await;
        assert_eq!(fetch().await, Ok(vec!["a.yaml".to_owned()]));
        clone_with_ssh(&bed, private.reveal(), &known_hosts, true).await;
        revoke(&bed.host, &bed.target(), CredentialKind::DeployKey, id)
            .await
            .unwrap();
        assert!(matches!(probe(PROJECT).await, ProbeResult::Refused(_)));
        assert!(fetch().await.is_err());
        clone_with_ssh(&bed, private.reveal(), &known_hosts, false).await;
    }
}

async fn clone_with_ssh(bed: &Bed, private: &str, known_hosts: &str, is_good: bool) {
    if find_program("ssh").is_none() {
        println!("skipped: ssh is not on PATH");
        return;
    }
    let [key, hosts] = ["key", "known_hosts"].map(|name| bed.folder.path().join(name));
    std::fs::write(&key, private).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(&hosts, known_hosts).unwrap();
    let ssh = format!(
        "ssh -F /dev/null -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile={} -i {}",
        hosts.display(),
        key.display()
    );
    let environment = [("GIT_SSH_COMMAND", ssh.as_str())];
    let url = bed.forge.git().ssh_url(PROJECT).unwrap();
    let into = if is_good { "work" } else { "none" };
    let cloned = bed.git(&["clone", "-q", &url, into], &environment).await;
    assert_eq!(cloned.status.success(), is_good, "{cloned:?}");
    if is_good {
        let pushed = bed
            .git(&["-C", "work", "push", "-q", "origin", "HEAD:other"], &environment)
            .await;
        assert!(!pushed.status.success());
    }
}

/// A Git server may ask for a pause where its API doesn't.
#[tokio::test]
async fn probe_reports_requested_pause() {
    use tenure_forge_server::{Fault, Misbehaviour};
    let bed = Bed::new(HostKind::Gitlab).await;
    let secret = basic_secret("u", "p");
    let url = format!("{}/{PROJECT}.git", bed.forge.url());
    for (what, expected) in [
        (Misbehaviour::rate_limit(90), Some(Duration::from_secs(90))),
        (Misbehaviour::rate_limit_without_headers(), None),
    ] {
        bed.forge.misbehave(Fault::always("/info/refs", what));
        let probed = probe_git(&url, &secret, &allow_addresses(&[&url])).await;
        let ProbeResult::Limited { url: server, wait, .. } = probed else {
            panic!("{probed:?}");
        };
        assert!(server.starts_with(bed.forge.url()), "{server}");
        assert_eq!(wait, expected);
        bed.forge.behave();
    }
}

/// An answer that says nothing about a credential must not count as a proof.
#[tokio::test]
async fn unrelated_answers_leave_probe_result_unclear() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let secret = basic_secret("u", "p");
    for url in [
        "http://127.0.0.1:1/group-1/project-a.git".to_owned(),
        // The address of an API is not a repository.
        format!("{}/oauth/token", bed.forge.url()),
    ] {
        let probed = probe_git(&url, &secret, &allow_addresses(&[&url])).await;
        assert!(matches!(probed, ProbeResult::Unclear(_)), "{url}: {probed:?}");
    }
    use tenure_forge_server::{Fault, Misbehaviour};
    let url = format!("{}/{PROJECT}.git", bed.forge.url());
    for what in [Misbehaviour::ban(), Misbehaviour::html(), Misbehaviour::server_error()] {
        bed.forge.misbehave(Fault::always("/info/refs", what));
        let probed = probe_git(&url, &secret, &allow_addresses(&[&url])).await;
        assert!(matches!(probed, ProbeResult::Unclear(_)), "{probed:?}");
        bed.forge.behave();
    }
}
