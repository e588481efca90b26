//! An artifact belongs to the object that fetched it, not to the object's name.

use serde_json::json;

use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, KUSTOMIZATION, Stage, config_map};

/// Returns the folders of the artifacts of a namespace's sources, one for each object with artifacts.
fn list_stored(stage: &Stage, namespace: &str, name: &str) -> Vec<String> {
    let folder = stage.artifacts().join("store/gitrepository").join(namespace).join(name);
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

async fn uid(stage: &Stage, namespace: &str) -> String {
    let source = stage.get(GIT_REPOSITORY, (namespace, "app")).await.unwrap();
    source["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Re-creates the source of this name, with a repository that can't be fetched.
async fn make_namesake(stage: &Stage, namespace: &str) -> String {
    let source = |url: String| {
        json!({
            "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1,
            "metadata": { "name": "app", "namespace": namespace },
            "spec": { "url": url, "ref": { "branch": "main" }, "interval": "1s" }
        })
    };
    stage.admin.delete(GIT_REPOSITORY, (namespace, "app")).await.unwrap();
    stage
        .wait_for(GIT_REPOSITORY, (namespace, "app"), |found| found.is_none())
        .await;
    stage
        .admin
        .apply(source(stage.git.http_url("no-such-repository")))
        .await
        .unwrap();
    uid(stage, namespace).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreated_source_never_renders_files_of_deleted_one() {
    let mut stage = Stage::set("sources-a").await;
    let target = ("sources-a", "app");
    let repository = stage
        .repository("sources-a", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization("sources-a", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(target, &first).await;
    let old = uid(&stage, "sources-a").await;
    assert_eq!(list_stored(&stage, "sources-a", "app"), [old.as_str()]);

    // Re-created while no controllers run: the folder still has the old one's artifact, and one from before uids were recorded.
    stage.pause().await;
    let new = make_namesake(&stage, "sources-a").await;
    assert_ne!(new, old);
    let folder = stage.artifacts().join("store/gitrepository/sources-a/app");
    std::fs::write(folder.join(format!("{}.tar.gz", "a".repeat(64))), "x").unwrap();
    let record = stage.artifacts().join("records/gitrepository/sources-a/app.json");
    std::fs::write(record, "{}").unwrap();
    stage.admin.delete(CONFIG_MAP, ("sources-a", "a")).await.unwrap();
    stage.resume();
    stage.ready(GIT_REPOSITORY, target, "False", "GitOperationFailed").await;
    let message = stage.ready(KUSTOMIZATION, target, "False", "ArtifactFailed").await;
    assert!(message.contains("artifact"), "{message}");
    assert!(stage.get(CONFIG_MAP, ("sources-a", "a")).await.is_none());
    assert_eq!(list_stored(&stage, "sources-a", "app"), Vec::<String>::new());

    // It fetches its own artifact as soon as it can.
    let second = stage
        .repository("sources-a", "app2", &[("a.yaml", &config_map("a", "2"))])
        .await;
    let url = stage.git.http_url("sources-a-app2");
    let spec = json!({ "url": url, "ref": { "branch": "main" }, "interval": "1s" });
    let source = json!({
        "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1,
        "metadata": { "name": "app", "namespace": "sources-a" }, "spec": spec
    });
    stage.admin.apply(source).await.unwrap();
    let second = second.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(target, &second).await;
    assert_eq!(list_stored(&stage, "sources-a", "app"), [new.as_str()]);

    // Re-created while the controllers run.
    let newest = make_namesake(&stage, "sources-a").await;
    stage.admin.delete(CONFIG_MAP, ("sources-a", "a")).await.unwrap();
    stage.ready(GIT_REPOSITORY, target, "False", "GitOperationFailed").await;
    stage.ready(KUSTOMIZATION, target, "False", "ArtifactFailed").await;
    let left = list_stored(&stage, "sources-a", "app");
    assert!(!left.contains(&new) && newest != new, "{left:?}");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn included_source_and_its_changes_are_applied() {
    let stage = Stage::set("sources-b").await;
    let target = ("sources-b", "app");
    let source = |name: &str, interval: &str, include: serde_json::Value| {
        json!({
            "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1,
            "metadata": { "name": name, "namespace": "sources-b" },
            "spec": {
                "url": stage.git.http_url(&format!("sources-b-{name}")), "ref": { "branch": "main" }, "interval": interval,
                "sparseCheckout": ["kept"], "include": include
            }
        })
    };
    for (name, files) in [
        (
            "app",
            vec![
                ("kept/a.yaml", config_map("a", "1")),
                ("other/b.yaml", config_map("b", "1")),
            ],
        ),
        (
            "base",
            vec![("kept/c.yaml", config_map("c", "1")), ("c.yaml", config_map("d", "1"))],
        ),
    ] {
        let repository = stage.git.create(&format!("sources-b-{name}")).await.unwrap();
        repository.commit(files, "first").await.unwrap();
    }
    // Its interval is too long to matter: only a change of its included source makes it fetch.
    let include = json!([{ "repository": { "name": "base" }, "fromPath": "kept" }]);
    stage.admin.apply(source("app", "24h", include)).await.unwrap();
    stage
        .kustomization("sources-b", "app", "app", json!({ "path": "./" }))
        .await;
    let message = stage.ready(GIT_REPOSITORY, target, "False", "NotFound").await;
    assert!(message.contains("include 'base'"), "{message}");

    stage.admin.apply(source("base", "1s", json!([]))).await.unwrap();
    stage.ready(GIT_REPOSITORY, target, "True", "Succeeded").await;
    for (name, is_there) in [("a", true), ("b", false), ("c", true), ("d", false)] {
        let found = stage
            .wait_for(CONFIG_MAP, ("sources-b", name), |found| found.is_some() == is_there)
            .await;
        assert_eq!(found.is_some(), is_there, "{name}");
    }
    let repository = stage.git.repository("sources-b-base").unwrap();
    let commit = repository
        .commit([("kept/c.yaml", config_map("c", "2"))], "second")
        .await
        .unwrap();
    stage
        .wait_for(CONFIG_MAP, ("sources-b", "c"), |found| {
            found.is_some_and(|found| found["data"]["value"] == "2")
        })
        .await;
    let found = stage.get(GIT_REPOSITORY, target).await.unwrap();
    let status = &found["status"];
    assert_eq!(
        status["includedArtifacts"][0]["revision"],
        format!("main@sha1:{commit}")
    );
    assert_eq!(
        status["observedInclude"],
        json!([{ "repository": { "name": "base" }, "fromPath": "kept" }])
    );
    assert_eq!(status["observedSparseCheckout"], json!(["kept"]));

    // A source that includes it back does not wait, and the cycle is reported.
    let back = json!([{ "repository": { "name": "app" } }]);
    stage.admin.apply(source("base", "1s", back)).await.unwrap();
    for name in ["app", "base"] {
        let message = stage
            .ready(GIT_REPOSITORY, ("sources-b", name), "False", "InvalidSpec")
            .await;
        assert!(message.contains("includes form a cycle"), "{message}");
    }
    stage.shut_down().await;
}
