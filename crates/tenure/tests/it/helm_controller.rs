//! Flux's helm-controller beside Tenure: it installs charts from the artifacts that Tenure serves. The tests need `TENURE_BESIDE`, a folder with the program.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options};
use tenure_registry_server::{Answer, Artifact, RegistryServer, pack_files};
use tenure_test_ports::reserve_port;
use tenure_testkit::{NoticeServer, SOON, eventually};

use crate::artifact_endpoint::Admin;
use crate::process::{Up, client, make_command, tenure};

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

/// Serves an index of the chart with these versions, and their archives, below `/index`.
fn serve_index(registry: &RegistryServer, versions: &'static [&'static str]) {
    registry.answer_with(move |request| {
        let file = request.target.strip_prefix("/index/")?;
        if file == "index.yaml" {
            let entry = |version: &&str| format!("  - {{version: {version}, urls: [{version}.tgz]}}\n");
            let entries: String = versions.iter().map(entry).collect();
            let index = format!("apiVersion: v1\nentries:\n  greeting:\n{entries}");
            return Some(Answer::new(200, index));
        }
        let (_, archive) = make_chart(file.strip_suffix(".tgz")?).layers.pop()?;
        Some(Answer::new(200, archive))
    });
}

/// Returns a release whose chart is found by name and version.
fn release_of_chart(name: &str, repository: &str) -> Value {
    let mut release = release(name, ("", ""));
    let chart = json!({"spec": {
        "chart": "greeting", "version": "1.x", "interval": "1s", "sourceRef": {"kind": "HelmRepository", "name": repository}
    }});
    let spec = release["spec"].as_object_mut().unwrap();
    spec.remove("chartRef");
    spec.insert("chart".to_owned(), chart);
    release
}

fn release(name: &str, (kind, chart): (&str, &str)) -> Value {
    json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"namespace": "blue", "name": name},
        "spec": {
            "interval": "1m", "chartRef": {"kind": kind, "name": chart}, "releaseName": name, "values": {"text": "hello"}
        }
    })
}

/// Returns the program of helm-controller, if `TENURE_BESIDE` names a folder with it.
fn find_program() -> Option<PathBuf> {
    let program = std::env::var_os("TENURE_BESIDE").map(|folder| Path::new(&folder).join("helm-controller"));
    let found = program.filter(|program| program.exists());
    if found.is_none() {
        println!("skipped: TENURE_BESIDE names no folder with helm-controller");
    }
    found
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
    let Some(program) = find_program() else { return };
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
    // helm-controller makes a HelmChart of each of these, of an index and of a registry.
    serve_index(&registry, &["1.0.0"]);
    let address = registry.address();
    let spec = json!({"url": format!("http://{address}/index"), "interval": "1s"});
    admin.apply(source("HelmRepository", "index", spec)).await;
    let spec = json!({"type": "oci", "url": format!("oci://{address}/charts"), "insecure": true});
    admin.apply(source("HelmRepository", "registry", spec)).await;
    admin.apply(release_of_chart("indexed", "index")).await;
    admin.apply(release_of_chart("pulled", "registry")).await;
    let _controller = start(&program, &data);
    wait_for(&admin, &data, "greeting", "1.0.0").await;
    wait_for(&admin, &data, "made", "0.1.0").await;
    wait_for(&admin, &data, "indexed", "1.0.0").await;
    wait_for(&admin, &data, "pulled", "1.0.0").await;
    // A pushed chart causes an upgrade.
    registry.push("charts/greeting", "1.1.0", &make_chart("1.1.0"));
    wait_for(&admin, &data, "greeting", "1.1.0").await;
    wait_for(&admin, &data, "pulled", "1.1.0").await;
    serve_index(&registry, &["1.0.0", "1.1.0"]);
    wait_for(&admin, &data, "indexed", "1.1.0").await;
    let chart = write_chart("made", "0.2.0");
    repository
        .commit([("charts/made/Chart.yaml", chart.as_str())], "another")
        .await
        .unwrap();
    wait_for(&admin, &data, "made", "0.2.0").await;
}

/// The ConfigMap of the chart below shows its values.
const SHOWN: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shown}\n\
    data: {password: {{ .Values.password | quote }}, number: {{ .Values.number | quote }}, kind: {{ kindOf .Values.number }}, text: {{ .Values.text }}}\n";
/// A text with every letter that has a meaning for `helm --set`.
const PASSWORD: &str = r"a,b=c\d.e[0]{f}, '1' ";

/// Returns the values that the chart shows, when they are as expected.
async fn wait_for_shown(admin: &Admin, up: &str, expected: &Value) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "charted"}});
    let maps = admin.api(&map);
    let read = || async {
        let found = maps.get_opt("shown").await.map_err(|error| error.to_string())?;
        let data = found.map(|found| found.data["data"].clone()).unwrap_or_default();
        (data == *expected)
            .then_some(())
            .ok_or_else(|| format!("{up}: {data:#}"))
    };
    eventually(3 * SOON, read).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervised_helm_controller_installs_packages() {
    let Some(program) = find_program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (data, charts) = (folder.path().join("data"), folder.path().join("charts"));
    for (path, text) in [
        ("packages/app/Chart.yaml", write_chart("app", "0.1.0").as_str()),
        (
            "packages/app/values.yaml",
            "text: of-the-chart\nnumber: 0\npassword: \"\"\n",
        ),
        ("packages/app/templates/map.yaml", SHOWN),
    ] {
        let path = charts.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let port = reserve_port();
    let notices = NoticeServer::start().await.unwrap();
    let flags = [
        format!("--helm-controller={}", program.display()),
        format!("--allow-source={}", notices.url()),
        format!("--artifact-open-address={port}"),
        format!("--repository=charts={}", charts.display()),
        "--repository-port=0".to_owned(),
        "--packages-service-account=packages".to_owned(),
        "--allow-reference=cozy-system=tenure-system/GitRepository/charts".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (up, lines) = Up::start_telling(&data, &flags, 3);
    let url = lines[2].strip_prefix("repository ").unwrap();
    let admin = Admin(client(&data).await);
    let package = |kind: &str, spec: Value| {
        let skips = json!({"operator.cozystack.io/skip-cozystack-values": "true"});
        json!({
            "apiVersion": "cozystack.io/v1alpha1", "kind": kind, "metadata": {"name": "example.app", "annotations": skips}, "spec": spec
        })
    };
    admin
        .apply(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"namespace": "tenure-system", "name": "charts"},
            "spec": {"url": url, "ref": {"branch": "main"}, "interval": "1s"}
        }))
        .await;
    let source = json!({"kind": "GitRepository", "name": "charts", "namespace": "tenure-system"});
    let component = json!({"name": "app", "path": "app", "install": {"namespace": "charted"}});
    let variant = json!({"name": "default", "components": [component]});
    admin
        .apply(package(
            "PackageSource",
            json!({"sourceRef": source, "variants": [variant]}),
        ))
        .await;
    let values = json!({"password": "clear", "number": 1});
    admin
        .apply(package("Package", json!({"components": {"app": {"values": values}}})))
        .await;
    let shown = |password: &str, number: &str, kind: &str, text: &str| json!({"password": password, "number": number, "kind": kind, "text": text});
    wait_for_shown(&admin, "installed", &shown("clear", "1", "float64", "of-the-chart")).await;
    // An Alert beside the release gets what helm-controller reports about its upgrades.
    let notify = |kind: &str, version: &str, spec: Value| {
        json!({
            "apiVersion": format!("notification.toolkit.fluxcd.io/{version}"), "kind": kind,
            "metadata": {"namespace": "charted", "name": "hook"}, "spec": spec
        })
    };
    let address = format!("{}/releases", notices.url());
    admin
        .apply(notify(
            "Provider",
            "v1beta3",
            json!({"type": "generic", "address": address}),
        ))
        .await;
    let sources = json!([{"kind": "HelmRelease", "name": "app"}]);
    let alert = notify(
        "Alert",
        "v1beta3",
        json!({"providerRef": {"name": "hook"}, "eventSources": sources}),
    );
    admin.apply(alert).await;
    // Values of a PackageValues: one inline, and two from a Secret, which stay the texts that they are.
    admin
        .apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "charted", "name": "given"},
            "stringData": {"password": PASSWORD, "number": "1"}
        }))
        .await;
    let refer = |path: &str| json!({"component": "app", "path": path, "kind": "Secret", "namespace": "charted", "name": "given", "key": path});
    let changes = json!({
        "components": {"app": {"values": {"text": "changed"}}}, "valuesFrom": [refer("password"), refer("number")]
    });
    admin.apply(package("PackageValues", changes)).await;
    wait_for_shown(&admin, "changed", &shown(PASSWORD, "1", "string", "changed")).await;
    let trace = tenure(&["trace", "configmap/shown", "-n", "charted"])
        .env("KUBECONFIG", data.join("kubeconfig"))
        .output()
        .unwrap();
    let trace = String::from_utf8_lossy(&trace.stdout).into_owned();
    for word in [
        "managed by HelmRelease/charted/app",
        "Package/example.app",
        "GitRepository/tenure-system/charts",
    ] {
        assert!(trace.contains(word), "{word}: {trace}");
    }
    let who = tenure(&["who", "hr/app", ".spec.values.text", "-n", "charted"])
        .env("KUBECONFIG", data.join("kubeconfig"))
        .output()
        .unwrap();
    let who = String::from_utf8_lossy(&who.stdout).into_owned();
    assert!(
        who.contains("PackageValues .spec.components.app.values.text by test"),
        "{who}"
    );
    // Without the PackageValues, the values of the Package come back. The program that does it is another one.
    let parent = up.id();
    let of_ours = |process: &i32| is_confined(*process, parent, &program);
    let first = list_processes().into_iter().find(of_ours).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(first), nix::sys::signal::Signal::SIGKILL).unwrap();
    admin.delete(&package("PackageValues", json!({}))).await;
    wait_for_shown(&admin, "restored", &shown("clear", "1", "float64", "of-the-chart")).await;
    let is_upgrade = |notice: &tenure_testkit::Notice| notice.json()["reason"] == "UpgradeSucceeded";
    notices.wait_for("/releases", is_upgrade).await.unwrap();
    assert!(!list_processes().contains(&first), "it was not started again");
    // It does not outlive the control plane.
    let second = list_processes().into_iter().find(of_ours).unwrap();
    up.kill();
    eventually(SOON, || async {
        (!is_running(second, &program)).then_some(()).ok_or("it runs on")
    })
    .await
    .unwrap();
}

/// A later start without the flag takes the rights back. The program is none that stays, so its own rights are not used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn account_has_rights_only_with_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let port = format!("--artifact-open-address={}", reserve_port());
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "tenure-helm-controller"}});
    let read = async || {
        let bindings = Admin(client(&data).await).api(&binding);
        bindings.get_opt("tenure-helm-controller").await.unwrap()
    };
    let up = Up::start(&data, &[]);
    assert!(read().await.is_none(), "nobody named a helm-controller");
    up.kill();
    let up = Up::start(&data, &["--helm-controller=/bin/true", &port]);
    assert_eq!(read().await.unwrap().data["subjects"][0]["name"], "helm-controller");
    up.kill();
    let _up = Up::start(&data, &[]);
    let left = read().await.unwrap().data;
    assert!(left["subjects"].as_array().is_none_or(Vec::is_empty), "{left}");
}

#[test]
fn confined_program_reads_only_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own"), "of its own").unwrap();
    let read = |path: &str| {
        let mut command = tenure(&["confined", "--memory", "1073741824", "--", "/bin/cat", path]);
        let output = command.current_dir(folder.path()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let (is_read, content, errors) = read("own");
    assert!(is_read && content == "of its own", "{errors}");
    if errors.contains("Landlock") {
        println!("skipped: {errors}");
        return;
    }
    for path in ["/etc/passwd", "/proc/1/environ", "../.."] {
        let (is_read, content, errors) = read(path);
        assert!(
            !is_read && content.is_empty() && errors.contains("Permission denied"),
            "{path}: {errors}"
        );
    }
}

/// Lists the processes of this machine.
fn list_processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Checks whether a process is this program.
fn is_running(process: i32, program: &Path) -> bool {
    let found = std::fs::read_link(format!("/proc/{process}/exe"));
    found.is_ok_and(|found| std::fs::canonicalize(program).is_ok_and(|program| found == program))
}

/// Checks whether a process is this program, was started by this parent, and can gain no privileges. Other tests run the program, too.
fn is_confined(process: i32, parent: u32, program: &Path) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let has = |key: &str, value: &str| status.lines().any(|line| line.split_whitespace().eq([key, value]));
    is_running(process, program) && has("PPid:", &parent.to_string()) && has("NoNewPrivs:", "1")
}
