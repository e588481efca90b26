//! Indexes and charts of Helm as sources: fetched, followed, and reported in the words of Flux.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use serde_json::{Value, json};
use tenure_registry_server::{Answer, Artifact, RecordedRequest, RegistryServer, pack_files};

use crate::stage::{HELM_CHART, HELM_REPOSITORY, Stage, commit, condition};

const CHART_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

fn pack_chart(version: &str) -> Vec<u8> {
    let metadata = format!("apiVersion: v2\nname: app\nversion: {version}\n");
    pack_files(&[
        ("app/Chart.yaml", &metadata),
        ("app/values.yaml", "a: 1\n"),
        ("app/prod.yaml", "a: 2\n"),
    ])
}

/// A repository of one chart, for the user `user` with the password `sesame`.
struct ChartRepository {
    server: RegistryServer,
    versions: Arc<Mutex<Vec<&'static str>>>,
}

impl ChartRepository {
    async fn start() -> Self {
        let server = RegistryServer::start().await.unwrap();
        let versions: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let known = Arc::clone(&versions);
        let pair = base64::engine::general_purpose::STANDARD.encode("user:sesame");
        server.answer_with(move |request: &RecordedRequest| {
            let rest = request.target.strip_prefix("/stable/")?;
            if request.authorization.as_deref() != Some(&format!("Basic {pair}")) {
                return Some(Answer::new(401, "who is it?"));
            }
            if rest == "index.yaml" {
                let listed = known.lock().unwrap();
                let entry = |version: &&str| format!("  - {{version: {version}, urls: [app-{version}.tgz]}}\n");
                let entries: String = listed.iter().map(entry).collect();
                return Some(Answer::new(200, format!("apiVersion: v1\nentries:\n  app:\n{entries}")));
            }
            let version = rest.strip_prefix("app-")?.strip_suffix(".tgz")?;
            Some(Answer::new(200, pack_chart(version)))
        });
        Self { server, versions }
    }

    fn add(&self, version: &'static str) {
        self.versions.lock().unwrap().push(version);
    }

    fn host(&self) -> String {
        self.server.address().to_string()
    }
}

fn source(kind: (&str, &str), name: &str, spec: Value) -> Value {
    json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": { "name": name, "namespace": "charts" }, "spec": spec })
}

fn chart(name: &str, kind: &str, more: Value) -> Value {
    let mut spec =
        json!({ "chart": "app", "interval": "1s", "version": "1.x", "sourceRef": { "kind": kind, "name": "app" } });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    source(HELM_CHART, name, spec)
}

async fn wait_for_version(stage: &Stage, name: &str, version: &'static str) {
    let has =
        move |chart: Option<&Value>| chart.is_some_and(|chart| chart["status"]["artifact"]["revision"] == version);
    stage.wait_for(HELM_CHART, ("charts", name), has).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_of_an_index_are_followed() {
    let repository = ChartRepository::start().await;
    let allow = [format!("http://{}", repository.host())];
    let mut stage = Stage::set_allowing("charts", &allow).await;
    repository.add("1.0.0");
    let url = format!("http://{}/stable", repository.host());
    for object in [
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "credentials", "namespace": "charts" },
            "stringData": { "username": "user", "password": "sesame" }
        }),
        chart("early", "HelmRepository", json!({})),
        source(HELM_REPOSITORY, "anonymous", json!({ "url": url, "interval": "1s" })),
    ] {
        stage.admin.apply(object).await.unwrap();
    }
    let message = stage
        .ready(HELM_CHART, ("charts", "early"), "False", "SourceUnavailable")
        .await;
    assert_eq!(message, "failed to get source: HelmRepository 'app' not found");
    let message = stage
        .ready(
            HELM_REPOSITORY,
            ("charts", "anonymous"),
            "False",
            "AuthenticationFailed",
        )
        .await;
    assert!(
        message.contains("HTTP 401 without credentials") && !message.contains("sesame"),
        "{message}"
    );

    // The chart waits for no interval when its repository appears.
    let app = json!({ "url": url, "interval": "1s", "secretRef": { "name": "credentials" } });
    stage.admin.apply(source(HELM_REPOSITORY, "app", app)).await.unwrap();
    let message = stage
        .ready(HELM_CHART, ("charts", "early"), "True", "ChartPullSucceeded")
        .await;
    assert_eq!(message, "pulled 'app' chart with version '1.0.0'");
    let index = stage.get(HELM_REPOSITORY, ("charts", "app")).await.unwrap();
    let revision = index["status"]["artifact"]["revision"].as_str().unwrap();
    assert_eq!(
        condition(&index, "Ready").unwrap()["message"],
        format!("stored artifact: revision '{revision}'")
    );
    let early = stage.get(HELM_CHART, ("charts", "early")).await.unwrap();
    assert_eq!(early["status"]["observedChartName"], "app", "{early:#}");
    assert_eq!(early["status"]["observedSourceArtifactRevision"], revision);

    let values = json!({ "valuesFiles": ["values.yaml", "prod.yaml"] });
    stage
        .admin
        .apply(chart("packaged", "HelmRepository", values))
        .await
        .unwrap();
    let message = stage
        .ready(HELM_CHART, ("charts", "packaged"), "True", "ChartPackageSucceeded")
        .await;
    assert_eq!(
        message,
        "packaged 'app' chart with version '1.0.0+1' and merged values files [values.yaml prod.yaml]"
    );
    let other = json!({ "version": "7.x" });
    stage
        .admin
        .apply(chart("missing", "HelmRepository", other))
        .await
        .unwrap();
    let message = stage
        .ready(HELM_CHART, ("charts", "missing"), "False", "InvalidChartReference")
        .await;
    assert!(
        message.contains("no 'app' chart with version matching '7.x' found"),
        "{message}"
    );

    // A new version in the index is taken, also after a restart, and a chart that was missing appears.
    repository.add("1.1.0");
    wait_for_version(&stage, "early", "1.1.0").await;
    wait_for_version(&stage, "packaged", "1.1.0+1").await;
    stage.restart().await;
    repository.add("2.0.0");
    repository.add("7.0.0");
    wait_for_version(&stage, "missing", "7.0.0").await;
    wait_for_version(&stage, "early", "1.1.0").await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_of_registries_and_files_are_followed() {
    let registry = RegistryServer::start().await.unwrap();
    let allow = [format!("http://{}", registry.address())];
    let stage = Stage::set_allowing("charts", &allow).await;
    let push = |version: &str| {
        let artifact = Artifact {
            layers: vec![(CHART_TYPE.to_owned(), pack_chart(version))],
            annotations: json!({}),
        };
        registry.push("charts/app", version, &artifact);
    };
    push("1.0.0");
    let address = format!("oci://{}/charts", registry.address());
    let app = json!({ "type": "oci", "url": address, "insecure": true });
    stage.admin.apply(source(HELM_REPOSITORY, "app", app)).await.unwrap();
    stage
        .admin
        .apply(chart("registry", "HelmRepository", json!({})))
        .await
        .unwrap();
    let message = stage
        .ready(HELM_CHART, ("charts", "registry"), "True", "ChartPullSucceeded")
        .await;
    assert_eq!(message, "pulled 'app' chart with version '1.0.0'");
    push("1.2.0");
    wait_for_version(&stage, "registry", "1.2.0").await;
    // A registry has no status, as with Flux, so nothing waits for one.
    let is_bare = |found: Option<&Value>| {
        found.is_some_and(|found| found["status"].as_object().is_none_or(|status| status.is_empty()))
    };
    stage.wait_for(HELM_REPOSITORY, ("charts", "app"), is_bare).await;

    let metadata = |version: &str| format!("apiVersion: v2\nname: app\nversion: {version}\n");
    let files = [
        ("deploy/app/Chart.yaml", &*metadata("1.0.0")),
        ("deploy/app/values.yaml", "a: 1\n"),
    ];
    let repository = stage.repository("charts", "app", &files).await;
    let path = json!({ "chart": "./deploy/app" });
    stage.admin.apply(chart("files", "GitRepository", path)).await.unwrap();
    let message = stage
        .ready(HELM_CHART, ("charts", "files"), "True", "ChartPackageSucceeded")
        .await;
    assert_eq!(message, "packaged 'app' chart with version '1.0.0'");
    commit(&repository, &[("deploy/app/Chart.yaml", &metadata("1.1.0"))]).await;
    wait_for_version(&stage, "files", "1.1.0").await;
    stage.shut_down().await;
}
