//! A Git host reports a change, and the change is applied, however long the interval is.

use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::stage::{
    BUCKET, CONFIG_MAP, GIT_REPOSITORY, OCI_REPOSITORY, RECEIVER, Stage, commit, condition, config_map,
};

const SECRET: (&str, &str) = ("v1", "Secret");

/// Returns a Secret with a token.
pub(crate) fn token(namespace: &str, name: &str, token: &str) -> Value {
    json!({
        "apiVersion": SECRET.0, "kind": SECRET.1, "metadata": { "name": name, "namespace": namespace },
        "stringData": { "token": token }
    })
}

/// Returns a Receiver that verifies with the Secret `token`; `spec` is merged over the defaults.
pub(crate) fn receiver(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut usual = json!({
        "type": "gitlab", "secretRef": { "name": "token" }, "resources": [{ "kind": "GitRepository", "name": "app" }]
    });
    for (key, value) in spec.as_object().unwrap() {
        usual[key] = value.clone();
    }
    json!({
        "apiVersion": RECEIVER.0, "kind": RECEIVER.1, "metadata": { "name": name, "namespace": namespace }, "spec": usual
    })
}

/// Returns the path of a ready Receiver, after it differs from the previous path.
pub(crate) async fn find_path(stage: &Stage, target: (&str, &str), before: &str) -> String {
    let read = |object: &Value| object["status"]["webhookPath"].as_str().unwrap_or_default().to_owned();
    let ready = stage
        .wait_for(RECEIVER, target, |object| {
            object.is_some_and(|object| {
                let is_ready = condition(object, "Ready").is_some_and(|ready| ready["status"] == "True");
                is_ready && !read(object).is_empty() && read(object) != before
            })
        })
        .await;
    read(&ready.unwrap())
}

/// Waits until a request to a recently read path has this answer: with lane processes, the listener learns of the path separately.
async fn post_until(stage: &Stage, path: &str, (token, body): (&str, &str), status: u16) {
    let ask = async || match stage.post(path, &push(token), body).await {
        found if found == status => Ok(()),
        other => Err(other.to_string()),
    };
    eventually(SOON, ask).await.unwrap();
}

/// Returns GitLab's headers.
pub(crate) fn push(token: &str) -> [(&str, &str); 3] {
    [
        ("content-type", "application/json"),
        ("x-gitlab-event", "Push Hook"),
        ("x-gitlab-token", token),
    ]
}

const PUSHED: &str = r#"{"ref":"refs/heads/main","project":{"name":"app"}}"#;

async fn slow_source(stage: &Stage, namespace: &str, name: &str, repository: &str) {
    let source = json!({
        "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1,
        "metadata": { "name": name, "namespace": namespace, "labels": { "hook": "yes" } },
        "spec": { "url": stage.git.http_url(repository), "ref": { "branch": "main" }, "interval": "1h" }
    });
    stage.admin.apply(source).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_is_applied_when_the_host_says_so() {
    let stage = Stage::set("receivers").await;
    let namespace = "receivers";
    let repository = stage
        .repository(namespace, "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    slow_source(&stage, namespace, "app", "receivers-app").await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    stage
        .wait_for(CONFIG_MAP, (namespace, "a"), |found| found.is_some())
        .await;
    stage.admin.apply(token(namespace, "token", "sesame")).await.unwrap();
    let filtered = json!({
        "events": ["push hook"],
        "resourceFilter": "req.ref == 'refs/heads/main'",
        "resources": [{ "kind": "GitRepository", "name": "*", "matchLabels": { "hook": "yes" }, "filter": "res.metadata.name == req.project.name" }]
    });
    stage.admin.apply(receiver(namespace, "hook", &filtered)).await.unwrap();
    let path = find_path(&stage, (namespace, "hook"), "").await;

    // The interval is an hour, so only the request causes the fetch.
    let second = commit(&repository, &[("a.yaml", &config_map("a", "2"))]).await;
    post_until(&stage, &path, ("sesame", PUSHED), 200).await;
    stage.wait_for_commit((namespace, "app"), &second).await;
    let source = stage.get(GIT_REPOSITORY, (namespace, "app")).await.unwrap();
    let asked = source["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"].clone();
    assert!(asked.is_string(), "{source}");

    // Events without a subscription, or filtered out, cause nothing.
    assert_eq!(
        stage
            .post(
                &path,
                &push("sesame"),
                r#"{"ref":"refs/heads/dev","project":{"name":"app"}}"#
            )
            .await,
        200
    );
    let tagged = [
        ("content-type", "application/json"),
        ("x-gitlab-event", "Tag Push Hook"),
        ("x-gitlab-token", "sesame"),
    ];
    assert_eq!(stage.post(&path, &tagged, PUSHED).await, 400);
    assert_eq!(stage.post(&path, &push("sesame"), "{").await, 400);
    let source = stage.get(GIT_REPOSITORY, (namespace, "app")).await.unwrap();
    assert_eq!(
        source["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"],
        asked
    );

    // A missing named object is reported to the host, after the others were asked.
    let named = json!({ "resources": [{ "kind": "OCIRepository", "name": "none" }, { "kind": "GitRepository", "name": "app" }] });
    stage.admin.apply(receiver(namespace, "other", &named)).await.unwrap();
    let other = find_path(&stage, (namespace, "other"), "").await;
    post_until(&stage, &other, ("sesame", ""), 500).await;
    // A Bucket is asked as any other source.
    let bucket = json!({
        "apiVersion": BUCKET.0, "kind": BUCKET.1, "metadata": { "name": "files", "namespace": namespace },
        "spec": { "bucketName": "apps", "endpoint": "store.example:9000", "interval": "1h" }
    });
    stage.admin.apply(bucket).await.unwrap();
    let stored = json!({ "resources": [{ "kind": "Bucket", "name": "files" }] });
    stage.admin.apply(receiver(namespace, "stored", &stored)).await.unwrap();
    let stored = find_path(&stage, (namespace, "stored"), "").await;
    post_until(&stage, &stored, ("sesame", ""), 200).await;
    let files = stage.get(BUCKET, (namespace, "files")).await.unwrap();
    assert!(
        files["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"].is_string(),
        "{files}"
    );
    let is_asked = |object: Option<&Value>| {
        object.is_some_and(|object| object["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"] != asked)
    };
    stage.wait_for(GIT_REPOSITORY, (namespace, "app"), is_asked).await;
    assert!(stage.get(OCI_REPOSITORY, (namespace, "none")).await.is_none());

    // The token changes: requests with the old one are refused, and the path changes immediately.
    stage.admin.apply(token(namespace, "token", "open")).await.unwrap();
    assert_eq!(stage.post(&path, &push("sesame"), PUSHED).await, 404);
    let moved = find_path(&stage, (namespace, "hook"), &path).await;
    post_until(&stage, &moved, ("open", PUSHED), 200).await;
    assert_eq!(stage.post(&path, &push("open"), PUSHED).await, 404);

    // Suspended, then deleted.
    let mut suspended = filtered.clone();
    suspended["suspend"] = json!(true);
    stage
        .admin
        .apply(receiver(namespace, "hook", &suspended))
        .await
        .unwrap();
    post_until(&stage, &moved, ("open", PUSHED), 503).await;
    stage.admin.delete(SECRET, (namespace, "token")).await.unwrap();
    assert_eq!(stage.post(&other, &push("open"), "").await, 404);
    stage
        .ready(RECEIVER, (namespace, "other"), "False", "TokenNotFound")
        .await;
    let other = stage.get(RECEIVER, (namespace, "other")).await.unwrap();
    assert!(other["status"].get("webhookPath").is_none(), "{other}");
    stage.shut_down().await;
}
