//! Flux's helm-controller beside Tenure: it installs charts from the artifacts that Tenure serves. The test needs `TENURE_BESIDE`, a folder with the program, and its
//! definitions in `crds`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options};
use tenure_registry_server::{Artifact, RegistryServer, pack_files};
use tenure_test_ports::reserve_port;
use tenure_testkit::{SOON, eventually};

use crate::artifact_endpoint::Admin;
use crate::process::{Up, client, make_command};

const CHART_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n\
    data: {text: {{ .Values.text }}, version: {{ .Chart.Version | quote }}}\n";

fn write_chart(name: &str, version: &str) -> String {
    format!("apiVersion: v2\nname: {name}\nversion: {version}\n")
}

/// Returns a chart as `helm push` pushes it.
fn make_chart(version: &str) -> Artifact {
    let chart = write_chart("greeting", version);
    let files = [
        ("greeting/Chart.yaml", chart.as_str()),
        ("greeting/values.yaml", "text: nothing\n"),
        ("greeting/templates/map.yaml", TEMPLATE),
    ];
    Artifact {
        layers: vec![(CHART_TYPE.to_owned(), pack_files(&files))],
        annotations: json!({}),
    }
}

fn release(name: &str, (kind, chart): (&str, &str)) -> Value {
    json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"namespace": "blue", "name": name},
        "spec": {
            "interval": "1m", "chartRef": {"kind": kind, "name": chart}, "releaseName": name, "values": {"text": "hello"}
        }
    })
}

/// Installs the kinds that only helm-controller has.
async fn install_kinds(admin: &Admin, folder: &Path) {
    for name in [
        "helm.toolkit.fluxcd.io_helmreleases",
        "source.toolkit.fluxcd.io_helmcharts",
        "source.toolkit.fluxcd.io_helmrepositories",
    ] {
        let text = std::fs::read_to_string(folder.join(format!("crds/{name}.yaml"))).unwrap();
        let found = kustomize::read_manifests(name, &text, &kustomize::Limits::default()).unwrap();
        for manifest in found {
            admin.apply(manifest.object).await;
        }
    }
}

/// Starts the controller for the control plane on `data`, with its log in a file there.
fn start(program: &Path, data: &Path) -> Up {
    let log = std::fs::File::create(data.join("helm-controller.log")).unwrap();
    let child = make_command(program)
        .args([
            &format!("--health-addr=127.0.0.1:{}", reserve_port()),
            &format!("--metrics-addr=127.0.0.1:{}", reserve_port()),
            "--feature-gates=ExternalArtifact=true",
            "--http-retry=3",
        ])
        .env("KUBECONFIG", data.join("kubeconfig"))
        .env("RUNTIME_NAMESPACE", "default")
        .env("HOME", data)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    Up::wrap(child)
}

/// Waits until a release is installed with a version of its chart.
async fn wait_for(admin: &Admin, data: &Path, name: &str, version: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "blue"}});
    let (maps, releases) = (admin.api(&map), admin.api(&release(name, ("", ""))));
    let read_release = || async {
        let found = releases.get(name).await.map_err(|error| error.to_string())?;
        let conditions = found.data["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        let made = maps.get_opt(name).await.map_err(|error| error.to_string())?;
        let data = made.map(|made| made.data["data"].clone()).unwrap_or_default();
        // helm-controller adds a part of the chart's digest to the version.
        let is_there = data["version"].as_str().is_some_and(|found| found.starts_with(version));
        let is_done = conditions.iter().any(is_ready) && is_there && data["text"] == "hello";
        is_done
            .then_some(())
            .ok_or_else(|| format!("{conditions:#?}\n{data:#}"))
    };
    if let Err(problem) = eventually(3 * SOON, read_release).await {
        let log = std::fs::read_to_string(data.join("helm-controller.log")).unwrap_or_default();
        panic!("{problem:?}\n{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_helm_controller_installs_what_is_served() {
    let given = std::env::var_os("TENURE_BESIDE").map(PathBuf::from);
    let is_whole = |folder: &PathBuf| {
        let definitions = folder.join("crds/helm.toolkit.fluxcd.io_helmreleases.yaml");
        folder.join("helm-controller").exists() && definitions.exists()
    };
    let Some(beside) = given.filter(is_whole) else {
        println!("skipped: TENURE_BESIDE names no folder with helm-controller, and its definitions in crds");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let registry = RegistryServer::start().await.unwrap();
    let git = GitServer::start(folder.path().join("git"), Options::default())
        .await
        .unwrap();
    let port = reserve_port();
    let flags = [
        format!("--allow-source=http://{}", registry.address()),
        format!("--allow-source=http://{}", git.http_address()),
        format!("--artifact-open-address={port}"),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let _up = Up::start(&data, &flags);
    let admin = Admin(client(&data).await);
    install_kinds(&admin, &beside).await;
    admin.make_namespace("blue").await;
    registry.push("charts/greeting", "1.0.0", &make_chart("1.0.0"));
    let repository = git.create("app").await.unwrap();
    let chart = write_chart("made", "0.1.0");
    let files = [
        ("charts/made/Chart.yaml", chart.as_str()),
        ("charts/made/templates/map.yaml", TEMPLATE),
    ];
    repository.commit(files, "a chart").await.unwrap();
    let source = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind, "metadata": {"namespace": "blue", "name": name}, "spec": spec
        })
    };
    let url = format!("oci://{}/charts/greeting", registry.address());
    let selector = json!({"mediaType": CHART_TYPE, "operation": "copy"});
    let spec =
        json!({"url": url, "insecure": true, "interval": "1s", "ref": {"semver": "1.x"}, "layerSelector": selector});
    admin.apply(source("OCIRepository", "greeting", spec)).await;
    let spec = json!({"url": git.http_url("app"), "ref": {"branch": "main"}, "interval": "1s"});
    admin.apply(source("GitRepository", "app", spec)).await;
    admin
        .apply(json!({
            "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator",
            "metadata": {"namespace": "blue", "name": "made"},
            "spec": {
                "sources": [{"alias": "app", "kind": "GitRepository", "name": "app"}],
                "artifacts": [{"name": "made", "copy": [{"from": "@app/charts/made/**", "to": "@artifact/made/"}]}]
            }
        }))
        .await;
    admin.apply(release("greeting", ("OCIRepository", "greeting"))).await;
    admin.apply(release("made", ("ExternalArtifact", "made"))).await;
    let _controller = start(&beside.join("helm-controller"), &data);
    wait_for(&admin, &data, "greeting", "1.0.0").await;
    wait_for(&admin, &data, "made", "0.1.0").await;
    // A pushed chart causes an upgrade.
    registry.push("charts/greeting", "1.1.0", &make_chart("1.1.0"));
    wait_for(&admin, &data, "greeting", "1.1.0").await;
    let chart = write_chart("made", "0.2.0");
    repository
        .commit([("charts/made/Chart.yaml", chart.as_str())], "another")
        .await
        .unwrap();
    wait_for(&admin, &data, "made", "0.2.0").await;
}
