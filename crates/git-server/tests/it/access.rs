//! Tokens and keys of single repositories, used by the installed git and ssh.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use tenure_git_server::{Access, GitServer, NewKey, NewToken, Options, Repositories, SshOptions};

use super::{expect_failure, expect_success, git_with, make_key, run_git};

/// A server with two repositories, and a clock that the test sets.
struct Stand {
    folder: TempDir,
    server: GitServer,
    access: Access,
    hour: Arc<AtomicU64>,
}

fn hour(number: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(number * 3600)
}

impl Stand {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let now = Arc::new(AtomicU64::new(10));
        let shown = Arc::clone(&now);
        let access = Access::with_clock(Arc::new(move || hour(shown.load(Ordering::Relaxed))));
        let options = Options {
            access: Some(access.clone()),
            ssh: Some(SshOptions::loopback(Vec::new())),
            ..Options::default()
        };
        let server = GitServer::start(folder.path().join("repositories"), options)
            .await
            .unwrap();
        for name in ["team/app", "team/other"] {
            let repository = server.create(name).await.unwrap();
            repository.commit([("a", "b")], "first").await.unwrap();
        }
        let hour = now;
        Self {
            folder,
            server,
            access,
            hour,
        }
    }

    fn token(&self, value: &str, repositories: Repositories, may_write: bool) -> u64 {
        self.access.add_token(NewToken {
            username: Some("gitlab+deploy-token-1"),
            value,
            repositories,
            may_write,
            expires_at: Some(hour(20)),
        })
    }

    fn url(&self, user: &str, token: &str, name: &str) -> String {
        format!("http://{user}:{token}@{}/{name}.git", self.server.http_address())
    }

    async fn clone(&self, user: &str, token: &str, name: &str, into: &str) -> std::process::Output {
        run_git(self.folder.path(), &["clone", "-q", &self.url(user, token, name), into]).await
    }
}

const USER: &str = "gitlab%2Bdeploy-token-1";

#[tokio::test]
async fn read_token_covers_its_repository_until_revoked() {
    let stand = Stand::new().await;
    let one = Repositories::One("team/app".to_owned());
    let id = stand.token("gldt-secret", one.clone(), false);
    assert_eq!(stand.access.last_used_at(id), None);

    expect_success(&stand.clone(USER, "gldt-secret", "team/app", "work").await);
    assert_eq!(stand.access.last_used_at(id), Some(hour(10)));
    let work = stand.folder.path().join("work");
    expect_failure(&run_git(&work, &["push", "-q", "origin", "HEAD:other"]).await, "403");
    for (user, token) in [(USER, "gldt-secreT"), ("somebody", "gldt-secret"), (USER, "")] {
        expect_failure(&stand.clone(user, token, "team/app", "no").await, "");
    }
    expect_failure(&stand.clone(USER, "gldt-secret", "team/other", "no").await, "not found");
    expect_failure(
        &run_git(
            stand.folder.path(),
            &["clone", "-q", &stand.server.http_url("team/app"), "no"],
        )
        .await,
        "",
    );

    let writer = stand.token("gldt-writer", one, true);
    let url = stand.url(USER, "gldt-writer", "team/app");
    expect_success(&run_git(&work, &["push", "-q", &url, "HEAD:other"]).await);
    expect_success(&run_git(&work, &["fetch", "-q", "origin"]).await);
    assert!(stand.access.revoke(id) && !stand.access.revoke(id));
    expect_failure(
        &run_git(&work, &["fetch", "-q", "origin"]).await,
        "Authentication failed",
    );
    expect_success(&run_git(&work, &["fetch", "-q", &url]).await);
    stand.hour.store(20, Ordering::Relaxed);
    expect_failure(&run_git(&work, &["fetch", "-q", &url]).await, "Authentication failed");
    assert_eq!(stand.access.last_used_at(writer), Some(hour(10)));
    assert!(!format!("{:?}", stand.access).contains("gldt"));
}

/// A token of a group covers only the repositories below the group. A token of one repository follows a moved repository.
#[tokio::test]
async fn group_token_covers_only_repositories_below_the_group() {
    let stand = Stand::new().await;
    stand.token("gldt-group", Repositories::Below("team".to_owned()), false);
    stand.token("gldt-app", Repositories::One("team/app".to_owned()), false);
    for (at, name) in ["team/app", "team/other"].into_iter().enumerate() {
        expect_success(&stand.clone(USER, "gldt-group", name, &format!("work-{at}")).await);
    }
    stand.server.rename("team/app", "teams/app").unwrap();
    let replaced = stand.server.create("team/app").await.unwrap();
    replaced.commit([("a", "another's")], "first").await.unwrap();
    expect_failure(&stand.clone(USER, "gldt-group", "teams/app", "no").await, "not found");
    expect_failure(&stand.clone(USER, "gldt-app", "team/app", "no").await, "not found");
    expect_success(&stand.clone(USER, "gldt-app", "teams/app", "moved").await);
    let content = std::fs::read_to_string(stand.folder.path().join("moved/a")).unwrap();
    assert_eq!(content, "b");
    assert!(stand.server.rename("team/app", "teams/app").is_err());
}

#[tokio::test]
async fn read_key_covers_its_repository_until_removed() {
    let stand = Stand::new().await;
    let Some(public) = make_key(stand.folder.path(), "key").await else {
        println!("skipped: there is no ssh-keygen");
        return;
    };
    let known = stand.folder.path().join("known_hosts");
    std::fs::write(&known, stand.server.known_hosts().unwrap()).unwrap();
    let ssh = format!(
        "ssh -F /dev/null -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile={} -i {}",
        known.display(),
        stand.folder.path().join("key").display()
    );
    let environment = [("GIT_SSH_COMMAND", ssh.as_str())];
    let clone = async |name: &str, into: &str| {
        let url = stand.server.ssh_url(name).unwrap();
        git_with(stand.folder.path(), &["clone", "-q", &url, into], &environment).await
    };
    expect_failure(&clone("team/app", "no").await, "Permission denied");
    let add = |may_write| {
        let key = NewKey {
            public: &public,
            repository: "team/app",
            may_write,
            expires_at: Some(hour(20)),
        };
        stand.access.add_key(key).unwrap()
    };
    let id = add(false);
    expect_success(&clone("team/app", "work").await);
    assert_eq!(stand.access.last_used_at(id), Some(hour(10)));
    expect_failure(&clone("team/other", "no").await, "not found");
    let work = stand.folder.path().join("work");
    let push = ["push", "-q", "origin", "HEAD:other"];
    expect_failure(&git_with(&work, &push, &environment).await, "not allowed");
    assert!(stand.access.revoke(id));
    expect_failure(
        &git_with(&work, &["fetch", "-q"], &environment).await,
        "Permission denied",
    );
    add(true);
    expect_success(&git_with(&work, &push, &environment).await);
    stand.hour.store(20, Ordering::Relaxed);
    expect_failure(
        &git_with(&work, &["fetch", "-q"], &environment).await,
        "Permission denied",
    );
    let broken = NewKey {
        public: "ssh-ed25519 x",
        repository: "team/app",
        may_write: false,
        expires_at: None,
    };
    assert!(stand.access.add_key(broken).is_err());
}
