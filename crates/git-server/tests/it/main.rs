//! The server against the installed git as client: clone, push and refusals over HTTP and ssh.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod access;

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;
use tenure_git_server::{Content, GitServer, HttpAuthentication, Options, ProtocolVersions, SshOptions};
use tokio::process::Command;

async fn run_git(folder: &Path, arguments: &[&str]) -> Output {
    git_with(folder, arguments, &[]).await
}

async fn git_with(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new("git");
    command
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@example.com")
        .env("GIT_COMMITTER_NAME", "a")
        .env("GIT_COMMITTER_EMAIL", "a@example.com");
    for (key, value) in environment {
        command.env(key, value);
    }
    command.output().await.unwrap()
}

fn expect_success(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn expect_failure(output: &Output, words: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains(words), "{message}");
}

/// Makes a key pair in a folder and returns its public half, or `None` without ssh-keygen.
async fn make_key(folder: &Path, name: &str) -> Option<String> {
    let file = folder.join(name);
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&file)
        .status()
        .await;
    made.is_ok_and(|status| status.success())
        .then(|| std::fs::read_to_string(file.with_extension("pub")).unwrap())
}

#[tokio::test]
async fn clone_and_push_over_http() {
    for versions in [ProtocolVersions::All, ProtocolVersions::OnlyZero] {
        let folder = TempDir::new().unwrap();
        let options = Options {
            versions,
            ..Options::default()
        };
        let server = GitServer::start(folder.path().join("repositories"), options)
            .await
            .unwrap();
        let repository = server.create("team/app").await.unwrap();
        let files = [
            ("a \"quoted\" name/ä.yaml", Content::from("one\n")),
            ("run", Content::Executable(b"#!/bin/sh\n".to_vec())),
            ("link", Content::Link("run".to_owned())),
        ];
        let first = repository.commit(files, "first").await.unwrap();
        let second = repository
            .commit([("run", Content::Removed), ("big", vec![7; 300_000].into())], "second")
            .await;
        let second = second.unwrap();
        assert_ne!(first, second);

        let work = folder.path().join("work");
        expect_success(&run_git(folder.path(), &["clone", "-q", &server.http_url("team/app"), "work"]).await);
        assert_eq!(
            std::fs::read_to_string(work.join("a \"quoted\" name/ä.yaml")).unwrap(),
            "one\n"
        );
        assert_eq!(std::fs::read_link(work.join("link")).unwrap(), Path::new("run"));
        assert!(!work.join("run").exists());

        let mut pushes = server.pushes();
        std::fs::write(work.join("new"), vec![1; 2_000_000]).unwrap();
        expect_success(&run_git(&work, &["add", "."]).await);
        expect_success(&run_git(&work, &["commit", "-q", "-m", "third"]).await);
        expect_success(&run_git(&work, &["push", "-q", "origin", "HEAD:main", "HEAD:other"]).await);
        let third = repository.resolve("main").await.unwrap();
        for reference in ["refs/heads/main", "refs/heads/other"] {
            let push = pushes.recv().await.unwrap();
            assert_eq!(
                (push.repository.as_str(), push.reference.as_str()),
                ("team/app", reference)
            );
            assert_eq!(push.object, third);
        }
        expect_success(&run_git(&work, &["push", "-q", "origin", ":other"]).await);
        assert_eq!(pushes.recv().await.unwrap().object, None);
        assert_eq!(repository.read("main", "new").await.unwrap().len(), 2_000_000);
        assert_eq!(server.packs_sent(), 1);
    }
}

/// The server refuses missing and wrong credentials, pushes, and names outside its folder.
#[tokio::test]
async fn invalid_http_requests_are_refused() {
    let folder = TempDir::new().unwrap();
    let authentication = Some(HttpAuthentication::Basic {
        username: "u".to_owned(),
        password: "p".to_owned(),
    });
    let options = Options {
        authentication,
        accept_pushes: false,
        ..Options::default()
    };
    let server = GitServer::start(folder.path().join("repositories"), options)
        .await
        .unwrap();
    server
        .create("app")
        .await
        .unwrap()
        .commit([("a", "b")], "first")
        .await
        .unwrap();
    let address = server.http_address();
    expect_failure(
        &run_git(folder.path(), &["clone", "-q", &server.http_url("app"), "no"]).await,
        "",
    );
    expect_failure(
        &run_git(
            folder.path(),
            &["clone", "-q", &format!("http://u:wrong@{address}/app.git"), "no"],
        )
        .await,
        "failed",
    );
    expect_success(
        &run_git(
            folder.path(),
            &["clone", "-q", &format!("http://u:p@{address}/app.git"), "work"],
        )
        .await,
    );
    expect_failure(
        &run_git(&folder.path().join("work"), &["push", "-q", "origin", "HEAD:other"]).await,
        "403",
    );
    for name in ["none", "../repositories/app", "%2e%2e/x", "-x"] {
        expect_failure(
            &run_git(
                folder.path(),
                &["clone", "-q", &format!("http://u:p@{address}/{name}"), "no"],
            )
            .await,
            "not found",
        );
    }
    for name in ["", "..", "a/../b", "/", "-a", ".hidden", "a b", "a.git/b"] {
        assert!(server.create(name).await.is_err(), "{name:?}");
    }
}

#[tokio::test]
async fn clone_and_push_over_ssh() {
    let folder = TempDir::new().unwrap();
    let (Some(public), Some(_)) = (
        make_key(folder.path(), "key").await,
        make_key(folder.path(), "stranger").await,
    ) else {
        println!("skipped: there is no ssh-keygen");
        return;
    };
    let options = Options {
        ssh: Some(SshOptions::loopback(vec![public])),
        ..Options::default()
    };
    let server = GitServer::start(folder.path().join("repositories"), options)
        .await
        .unwrap();
    let repository = server.create("app").await.unwrap();
    repository.commit([("a", "b")], "first").await.unwrap();
    let known = folder.path().join("known_hosts");
    std::fs::write(&known, server.known_hosts().unwrap()).unwrap();
    let ssh = |key: &str| {
        format!(
            "ssh -F /dev/null -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile={} -i {}",
            known.display(),
            folder.path().join(key).display()
        )
    };
    let url = server.ssh_url("app").unwrap();
    let stranger = ssh("stranger");
    expect_failure(
        &git_with(
            folder.path(),
            &["clone", "-q", &url, "no"],
            &[("GIT_SSH_COMMAND", &stranger)],
        )
        .await,
        "Permission denied",
    );
    let friend = ssh("key");
    let environment = [("GIT_SSH_COMMAND", friend.as_str())];
    expect_success(&git_with(folder.path(), &["clone", "-q", &url, "work"], &environment).await);
    let work = folder.path().join("work");
    std::fs::write(work.join("c"), "d").unwrap();
    expect_success(&run_git(&work, &["add", "."]).await);
    expect_success(&run_git(&work, &["commit", "-q", "-m", "second"]).await);
    let mut pushes = server.pushes();
    expect_success(&git_with(&work, &["push", "-q", "origin", "HEAD:main"], &environment).await);
    assert_eq!(pushes.recv().await.unwrap().reference, "refs/heads/main");
    assert_eq!(repository.read("main", "c").await.unwrap(), b"d");
    let missing = server.ssh_url("missing").unwrap();
    expect_failure(
        &git_with(folder.path(), &["clone", "-q", &missing, "no"], &environment).await,
        "not found",
    );
}
