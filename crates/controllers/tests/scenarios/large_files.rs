//! Files in Git LFS: the content is applied, or nothing.

use serde_json::json;
use tenure_git_server::{Damage, LargeFileOptions, Repository};
use tenure_testkit::Admin;

use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, Stage, commit, condition};

const GENERATED: &str =
    "configMapGenerator: [{ name: d, files: [dashboard.json] }]\ngeneratorOptions: { disableNameSuffixHash: true }\n";

/// Commits a pointer to this content in place of the dashboard.
async fn commit_large(repository: &Repository, content: &str) -> String {
    let pointer = repository.store_large_file(content.as_bytes()).unwrap();
    commit(
        repository,
        &[("dashboard.json", &pointer), ("kustomization.yaml", GENERATED)],
    )
    .await
}

async fn applied_dashboard(stage: &Stage, namespace: &str) -> serde_json::Value {
    let found = stage.get(CONFIG_MAP, (namespace, "d")).await;
    found
        .map(|found| found["data"]["dashboard.json"].clone())
        .unwrap_or_default()
}

/// Asks for a reconciliation now.
async fn request(admin: &Admin, namespace: &str, token: &str) {
    let now = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": token } } });
    admin.patch(GIT_REPOSITORY, (namespace, "app"), now).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_content_of_a_large_file_is_applied() {
    let stage = Stage::set("large-a").await;
    let namespace = "large-a";
    let repository = stage
        .repository(namespace, "app", &[("kustomization.yaml", GENERATED)])
        .await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    let first = commit_large(&repository, "{\"first\": 1}").await;
    stage.wait_for_commit((namespace, "app"), &first).await;
    assert_eq!(applied_dashboard(&stage, namespace).await, "{\"first\": 1}");

    // A failed fetch leaves the last artifact in place, and the condition names the remedy.
    for (options, expected) in [
        (
            LargeFileOptions {
                object_code: Some(404),
                ..Default::default()
            },
            "push it with git lfs push",
        ),
        (
            LargeFileOptions {
                object_size: Some(1),
                ..Default::default()
            },
            "its object has 1 bytes, and the pointer says 13",
        ),
        (
            LargeFileOptions {
                damage: Some(Damage::Changed),
                ..Default::default()
            },
            "another SHA-256 than the pointer says",
        ),
        (
            LargeFileOptions {
                damage: Some(Damage::Longer),
                ..Default::default()
            },
            "more bytes, and the pointer says 13",
        ),
        (
            LargeFileOptions {
                redirect_contents: Some("http://169.254.169.254".to_owned()),
                ..Default::default()
            },
            "a cloud metadata address",
        ),
        (
            LargeFileOptions {
                storage: Some("http://10.0.0.1".to_owned()),
                ..Default::default()
            },
            "a private address",
        ),
    ] {
        stage.git.serve_large_files(options);
        commit_large(&repository, "{\"second\": 2}").await;
        let source = stage
            .wait_for(GIT_REPOSITORY, (namespace, "app"), |source| {
                let ready = source.and_then(|source| condition(source, "Ready"));
                let message = ready.and_then(|ready| ready["message"].as_str()).unwrap_or_default();
                message.contains(expected)
            })
            .await
            .unwrap();
        let ready = condition(&source, "Ready").unwrap();
        assert_eq!(
            (&ready["status"], &ready["reason"]),
            (&json!("False"), &json!("GitOperationFailed"))
        );
        let message = ready["message"].as_str().unwrap();
        assert!(message.contains("\"dashboard.json\" is in Git LFS"), "{message}");
        assert!(!message.contains("Signature"), "{message}");
        let revision = source["status"]["artifact"]["revision"].as_str().unwrap();
        assert!(revision.ends_with(&first), "{revision}");
        assert_eq!(applied_dashboard(&stage, namespace).await, "{\"first\": 1}");
    }
    stage.git.serve_large_files(LargeFileOptions::default());
    let second = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit((namespace, "app"), &second).await;
    assert_eq!(applied_dashboard(&stage, namespace).await, "{\"second\": 2}");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_host_of_large_files_gets_no_password() {
    let stage = Stage::set("large-b").await;
    let namespace = "large-b";
    let repository = stage.private.create(namespace).await.unwrap();
    let first = commit_large(&repository, "{\"first\": 1}").await;
    for object in [
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "login", "namespace": namespace },
            "stringData": { "username": "git", "password": "sesame" }
        }),
        json!({
            "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1,
            "metadata": { "name": "app", "namespace": namespace },
            "spec": {
                "url": stage.private.http_url(namespace), "ref": { "branch": "main" }, "interval": "1s",
                "secretRef": { "name": "login" }
            }
        }),
    ] {
        stage.admin.apply(object).await.unwrap();
    }
    stage.kustomization(namespace, "app", "app", json!({})).await;
    stage.wait_for_commit((namespace, "app"), &first).await;
    assert_eq!(applied_dashboard(&stage, namespace).await, "{\"first\": 1}");
    let at_home = stage.private.large_file_requests();
    assert!(
        at_home.iter().all(|request| request.authorization.is_some()),
        "{at_home:?}"
    );

    // The content is on another host, which refuses addresses with a signature and other credentials.
    let storage = stage.git.create(namespace).await.unwrap();
    stage.git.serve_large_files(LargeFileOptions {
        is_storage: true,
        ..Default::default()
    });
    let elsewhere = LargeFileOptions {
        storage: Some(format!("http://{}", stage.git.http_address())),
        ..Default::default()
    };
    stage.private.serve_large_files(elsewhere);
    storage.store_large_file(b"{\"second\": 2}").unwrap();
    let second = commit_large(&repository, "{\"second\": 2}").await;
    stage.wait_for_commit((namespace, "app"), &second).await;
    assert_eq!(applied_dashboard(&stage, namespace).await, "{\"second\": 2}");
    let away = stage.git.large_file_requests();
    assert!(
        !away.is_empty() && away.iter().all(|request| request.authorization.is_none()),
        "{away:?}"
    );
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_delay_of_large_file_server_is_respected() {
    let stage = Stage::set("large-c").await;
    let namespace = "large-c";
    let busy = LargeFileOptions {
        batch_status: Some((429, Some(600))),
        ..Default::default()
    };
    stage.git.serve_large_files(busy);
    let repository = stage
        .repository(namespace, "app", &[("kustomization.yaml", GENERATED)])
        .await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    let first = commit_large(&repository, "{}").await;
    let message = stage
        .ready(GIT_REPOSITORY, (namespace, "app"), "False", "GitOperationFailed")
        .await;
    assert!(message.contains("it asks to wait for 600 s"), "{message}");
    // A neighbour's source is fetched again and again meanwhile.
    let other = stage.repository(namespace, "other", &[]).await;
    stage.kustomization(namespace, "other", "other", json!({})).await;
    for round in 0..5 {
        let value = crate::stage::config_map("other", &round.to_string());
        let change = commit(&other, &[("a.yaml", &value)]).await;
        stage.wait_for_commit((namespace, "other"), &change).await;
    }
    assert_eq!(stage.git.large_file_requests().len(), 1);
    stage.git.serve_large_files(LargeFileOptions::default());
    request(&stage.admin, namespace, "now").await;
    stage.wait_for_commit((namespace, "app"), &first).await;
    assert_eq!(applied_dashboard(&stage, namespace).await, "{}");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_files_beyond_limits_are_not_requested() {
    let stage = Stage::set("large-d").await;
    let namespace = "large-d";
    let pointer = |size: u64| {
        format!(
            "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {size}\n",
            "1".repeat(64)
        )
    };
    // Each file is within its limit, and all together are beyond those of an artifact, or beyond the budget.
    let mut files = vec![("kustomization.yaml".to_owned(), "resources: []\n".to_owned())];
    files.extend((0..5).map(|n| (format!("film{n}.json"), pointer(63 << 20))));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, content)| (path.as_str(), content.as_str()))
        .collect();
    let repository = stage.repository(namespace, "app", &files).await;
    let message = stage
        .ready(GIT_REPOSITORY, (namespace, "app"), "False", "GitOperationFailed")
        .await;
    assert!(
        message.contains("is in Git LFS") && message.contains("spec.ignore"),
        "{message}"
    );
    assert!(
        message.contains("over a budget") || message.contains("over the size limit"),
        "{message}"
    );
    commit(&repository, &[("film0.json", &pointer(65 << 20))]).await;
    stage
        .wait_for(GIT_REPOSITORY, (namespace, "app"), |source| {
            let ready = source.and_then(|source| condition(source, "Ready"));
            ready.is_some_and(|ready| {
                ready["message"]
                    .as_str()
                    .unwrap_or_default()
                    .contains("bytes of one file exceed 64 MiB")
            })
        })
        .await;
    assert_eq!(stage.git.large_file_requests(), []);
    // The remedy of the message.
    let ignore = json!({ "spec": { "ignore": "/film*.json\n" } });
    stage
        .admin
        .patch(GIT_REPOSITORY, (namespace, "app"), ignore)
        .await
        .unwrap();
    stage
        .ready(GIT_REPOSITORY, (namespace, "app"), "True", "Succeeded")
        .await;
    stage.shut_down().await;
}
