//! Failures, and the messages for the owner.

use serde_json::{Value, json};

use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, KUSTOMIZATION, Stage, commit, config_map};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_applied_for_missing_service_account() {
    let stage = Stage::set("failing-a").await;
    stage
        .repository("failing-a", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage
        .kustomization("failing-a", "app", "app", json!({ "serviceAccountName": "nobody" }))
        .await;
    let message = stage
        .ready(KUSTOMIZATION, ("failing-a", "app"), "False", "IdentityMissing")
        .await;
    assert!(message.contains("system:serviceaccount:failing-a:nobody"), "{message}");
    assert!(stage.get(CONFIG_MAP, ("failing-a", "a")).await.is_none());
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_write_names_the_account() {
    let stage = Stage::set("failing-b").await;
    stage.namespace("failing-b-other").await;
    let file = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: failing-b-other\n";
    stage.repository("failing-b", "app", &[("a.yaml", file)]).await;
    stage
        .kustomization("failing-b", "app", "app", json!({ "targetNamespace": null }))
        .await;
    let message = stage
        .ready(KUSTOMIZATION, ("failing-b", "app"), "False", "ReconciliationFailed")
        .await;
    assert!(message.contains("system:serviceaccount:failing-b:default"), "{message}");
    assert!(stage.get(CONFIG_MAP, ("failing-b-other", "a")).await.is_none());
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_is_not_there_is_named() {
    let stage = Stage::set("failing-c").await;
    stage
        .repository("failing-c", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    let branch = json!({ "spec": { "ref": { "branch": "mian" } } });
    stage
        .admin
        .patch(GIT_REPOSITORY, ("failing-c", "app"), branch)
        .await
        .unwrap();
    let message = stage
        .ready(GIT_REPOSITORY, ("failing-c", "app"), "False", "GitOperationFailed")
        .await;
    assert!(message.contains("mian") && message.contains("main"), "{message}");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_kind_does_not_stop_other_objects() {
    let stage = Stage::set("failing-d").await;
    let unknown = "apiVersion: nobody.example.com/v1\nkind: Nothing\nmetadata:\n  name: a\n";
    stage
        .repository(
            "failing-d",
            "app",
            &[("a.yaml", &config_map("a", "1")), ("b.yaml", unknown)],
        )
        .await;
    stage.kustomization("failing-d", "app", "app", json!({})).await;
    stage
        .wait_for(CONFIG_MAP, ("failing-d", "a"), |object| object.is_some())
        .await;
    let message = stage
        .ready(KUSTOMIZATION, ("failing-d", "app"), "False", "UnknownKind")
        .await;
    assert!(message.contains("Nothing"), "{message}");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_fails_says_where() {
    let stage = Stage::set("failing-e").await;
    stage
        .repository(
            "failing-e",
            "app",
            &[("kustomization.yaml", "resources:\n  - missing.yaml\n")],
        )
        .await;
    stage.kustomization("failing-e", "app", "app", json!({})).await;
    let message = stage
        .ready(KUSTOMIZATION, ("failing-e", "app"), "False", "BuildFailed")
        .await;
    assert!(message.contains("missing.yaml"), "{message}");
    stage
        .kustomization("failing-e", "other", "app", json!({ "path": "./nowhere" }))
        .await;
    let message = stage
        .ready(KUSTOMIZATION, ("failing-e", "other"), "False", "BuildFailed")
        .await;
    assert!(message.contains("nowhere"), "{message}");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_object_waits_despite_newly_opened_watch() {
    let stage = Stage::set("failing-f").await;
    let service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  ports: [{port: 80}]\n";
    // A kind that no other object here has; no API server accepts such a key.
    let broken = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  no/slash: \"80\"\n";
    let repository = stage.repository("failing-f", "app", &[("a.yaml", service)]).await;
    let spec = json!({ "retryInterval": "10m" });
    stage.kustomization("failing-f", "app", "app", spec).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("failing-f", "app"), &first).await;
    commit(&repository, &[("b.yaml", broken)]).await;
    let target = ("failing-f", "app");
    stage
        .ready(KUSTOMIZATION, target, "False", "ReconciliationFailed")
        .await;
    let before = stage.get(KUSTOMIZATION, target).await.unwrap();

    // A neighbour's ten commits, each fetched and applied, take long enough for hundreds of attempts.
    let other = stage.repository("failing-f", "other", &[]).await;
    stage.kustomization("failing-f", "other", "other", json!({})).await;
    for round in 0..10 {
        let change = commit(&other, &[("a.yaml", &config_map("other", &round.to_string()))]).await;
        let now = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": change } } });
        stage
            .admin
            .patch(GIT_REPOSITORY, ("failing-f", "other"), now)
            .await
            .unwrap();
        stage.wait_for_commit(("failing-f", "other"), &change).await;
    }
    let after = stage.get(KUSTOMIZATION, target).await.unwrap();
    assert_eq!(
        before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"],
        "{before:#} {after:#}"
    );
    let is_refusal = |event: &Value| {
        event["involvedObject"]["uid"] == after["metadata"]["uid"] && event["reason"] == "ReconciliationFailed"
    };
    let events = stage.wait_for_event("failing-f", is_refusal).await;
    let refusals: Vec<&Value> = events.iter().filter(|event| is_refusal(event)).collect();
    assert_eq!((refusals.len(), &refusals[0]["count"]), (1, &json!(1)), "{refusals:#?}");

    // After the fix it is applied immediately, not after ten minutes.
    let mended = commit(&repository, &[("b.yaml", &config_map("a", "80"))]).await;
    stage.wait_for_commit(target, &mended).await;
    stage.shut_down().await;
}

/// A file in Git LFS is not in the repository, and this repository keeps it from being fetched. That matters only where a build reads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn git_lfs_pointer_is_not_applied_as_content() {
    let stage = Stage::set("failing-lfs").await;
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12345\n",
        "1".repeat(64)
    );
    let generated = "configMapGenerator: [{ name: d, files: [dashboard.json] }]\ngeneratorOptions: { disableNameSuffixHash: true }\n";
    let files = [
        ("dashboard.json", pointer.as_str()),
        ("logo.svg", &pointer),
        (".lfsconfig", "[lfs]\nfetchexclude = *\n"),
        ("kustomization.yaml", generated),
    ];
    let repository = stage.repository("failing-lfs", "app", &files).await;
    stage.kustomization("failing-lfs", "app", "app", json!({})).await;
    let message = stage
        .ready(KUSTOMIZATION, ("failing-lfs", "app"), "False", "BuildFailed")
        .await;
    assert!(message.contains("dashboard.json is a pointer of Git LFS"), "{message}");
    assert!(stage.get(CONFIG_MAP, ("failing-lfs", "d")).await.is_none());
    let whole = commit(&repository, &[("dashboard.json", "{}")]).await;
    stage.wait_for_commit(("failing-lfs", "app"), &whole).await;
    stage.shut_down().await;
}
