//! The commands' output about existing, missing and unreadable objects, and their exit codes.

use std::path::Path;
use std::process::Output;

use crate::process::{Up, tenure};

pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    _up: Up,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(tempfile::tempdir().unwrap(), &["--workload-status"])
    }

    /// Starts a control plane in a folder, with these flags.
    pub(crate) fn with(folder: tempfile::TempDir, flags: &[&str]) -> Self {
        let up = Up::start(&folder.path().join("data"), flags);
        Self { folder, _up: up }
    }

    pub(crate) fn kubeconfig(&self) -> std::path::PathBuf {
        self.folder.path().join("data/kubeconfig")
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        tenure(arguments).env("KUBECONFIG", self.kubeconfig()).output().unwrap()
    }

    /// Runs the program, and expects an exit code, words on standard output and words on standard error.
    pub(crate) fn check(&self, arguments: &[&str], code: i32, printed: &[&str], noted: &[&str]) {
        let output = self.run(arguments);
        let (out, error) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}\n{error}");
        for word in printed {
            assert!(
                out.contains(word),
                "{arguments:?} does not print {word:?}: {out}\n{error}"
            );
        }
        for word in noted {
            assert!(error.contains(word), "{arguments:?} does not say {word:?}: {error}");
        }
        assert!(
            error.matches("error:").count() <= 1,
            "{arguments:?} says more than one error: {error}"
        );
    }
}

pub(crate) async fn apply(data: &Path, manifest: serde_json::Value, path: &str) {
    let client = crate::process::client(data).await;
    let request = http::Request::patch(format!("{path}?fieldManager=test&force=true"))
        .header("content-type", "application/apply-patch+yaml")
        .body(manifest.to_string().into_bytes())
        .unwrap();
    client.request::<serde_json::Value>(request).await.unwrap();
}

#[tokio::test]
async fn commands_answer_for_present_and_missing_objects() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    apply(
        &data,
        serde_json::json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
            "spec": {"interval": "1h", "prune": true, "suspend": true, "sourceRef": {"kind": "GitRepository", "name": "none"}}}),
        "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations/web",
    )
    .await;
    place.check(&["get"], 0, &["web"], &[]);
    place.check(&["get", "ks"], 0, &["NAME", "web"], &[]);
    place.check(&["get", "ks,gitrepo"], 0, &["web"], &[]);
    place.check(
        &["get", "ks/web"],
        0,
        &["kustomizations.kustomize.toolkit.fluxcd.io/web"],
        &[],
    );
    place.check(
        &["get", "ks", "web", "-o", "name"],
        0,
        &["kustomization.kustomize.toolkit.fluxcd.io/web"],
        &[],
    );
    place.check(
        &["get", "ks", "-l", "app=web", "-o", "name"],
        0,
        &["kustomization.kustomize.toolkit.fluxcd.io/web"],
        &[],
    );
    place.check(&["get", "ks", "-l", "app=other"], 0, &[], &["nothing found"]);
    place.check(&["get", "ks", "-o", "wide"], 0, &["web"], &[]);
    place.check(&["get", "ks", "none"], 1, &[], &["not found", "hint:"]);
    for command in [
        &["get", "tenant/zzz"][..],
        &["get", "tenant/zzz", "-A"],
        &["who", "tenant/zzz"],
    ] {
        place.check(command, 1, &[], &["not found", "tenants have no namespace"]);
    }
    place.check(&["get", "frobnicate"], 2, &[], &["frobnicate", "hint:"]);
    place.check(&["get", "ks,gitrepo", "web"], 2, &[], &["belongs to one kind", "hint:"]);
    place.check(&["get", "ks/web", "-l", "app=web"], 2, &[], &["-l"]);
    place.check(
        &["get", "ks,gitrepo", "-w", "-o", "jsn"],
        2,
        &[],
        &["did you mean json"],
    );

    place.check(&["events", "--for", "ks/web"], 0, &[], &["no events about ks/web"]);
    place.check(&["events", "--for", "frobnicate/web"], 2, &[], &["frobnicate"]);
    place.check(&["events", "--for", "web"], 2, &[], &["KIND/NAME"]);

    place.check(&["reconcile", "ks/web"], 1, &[], &["is suspended", "hint:"]);
    place.check(
        &["suspend", "deployment/web"],
        2,
        &[],
        &["nothing reconciles deployments.apps", "hint:"],
    );
    place.check(&["reconcile", "ks", "none"], 1, &[], &["not found"]);
    place.check(&["reconcile", "ks"], 2, &[], &["names no object"]);
    // The Kustomization has no source, and the command waits for the outcome unless a flag disables it.
    place.check(&["resume", "ks/web"], 1, &["resumed"], &["ArtifactFailed", "hint:"]);
    place.check(&["resume", "ks/web", "--wait=false"], 0, &["resumed"], &[]);
    place.check(&["resume", "ks/web", "--no-wait"], 0, &["resumed"], &[]);
    place.check(&["resume", "ks/web", "--wait", "--no-wait"], 2, &[], &["--no-wait"]);
    // The Kustomization has no source, and the outcome of the request says so.
    place.check(&["reconcile", "ks/web"], 1, &[], &["ArtifactFailed", "hint:"]);
    place.check(&["reconcile", "ks/web", "--with-source"], 1, &[], &["not found"]);
    place.check(&["reconcile", "ks/web", "--no-wait"], 0, &["requested"], &[]);
}

/// The metrics of the control plane include those of the controllers, for users that may read them.
#[tokio::test]
async fn metrics_tell_of_what_is_reconciled() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    apply(
        &data,
        serde_json::json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"interval": "1h", "suspend": true, "url": "https://user:sesame@git.example/web?token=sesame"}}),
        "/apis/source.toolkit.fluxcd.io/v1/namespaces/default/gitrepositories/web",
    )
    .await;
    let series = "exported_namespace=\"default\",name=\"web\",ready=\"Unknown\",revision=\"\",suspended=\"true\",url=\"https://git.example/web\"} 1";
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    let mut text = String::new();
    while !text.contains(series) {
        assert!(std::time::Instant::now() < deadline, "{text}");
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        text = crate::process::client(&data).await.request_text(request).await.unwrap();
    }
    assert!(
        text.contains("apiserver_request_total{") && text.contains("# TYPE gotk_reconcile_duration_seconds histogram")
    );
    assert!(!text.contains("sesame"), "{text}");
    let mut families: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let all = families.len();
    families.sort_unstable();
    families.dedup();
    assert_eq!(families.len(), all, "no family is written twice");
}

#[tokio::test]
async fn unreadable_kinds_are_reported() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    let tenant = serde_json::json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": {"name": "team-a"},
        "spec": {"owners": [{"kind": "User", "name": "alice"}]}});
    apply(&data, tenant, "/apis/capsule.clastix.io/v1beta2/tenants/team-a").await;
    let ready = || place.run(&["get", "tenant", "team-a", "-o", "json"]);
    // The Tenant gets its home namespace, and is Ready then.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    while !String::from_utf8_lossy(&ready().stdout).contains("ReconciliationSucceeded") {
        assert!(std::time::Instant::now() < deadline, "{:?}", ready());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }

    let text = std::fs::read_to_string(place.kubeconfig()).unwrap();
    let mut kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    for user in &mut kubeconfig.auth_infos {
        user.auth_info.as_mut().unwrap().impersonate = Some("alice".to_owned());
    }
    let alice = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &Default::default()).await;
    let alice = kube::Client::try_from(alice.unwrap()).unwrap();
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let refused = alice.request_text(request).await.unwrap_err().to_string();
    assert!(refused.contains("cannot get path \"/metrics\""), "{refused}");
    let file = place.folder.path().join("alice");
    let shown = serde_json::to_string(&kubeconfig).unwrap();
    std::fs::write(&file, &shown).unwrap();
    let file = file.to_str().unwrap();
    // The owner sees her own Tenant by name. A user without Tenants learns that he may not list them.
    let mine = place.run(&["get", "tenants", "-o", "name", "--kubeconfig", file]);
    let names = String::from_utf8_lossy(&mine.stdout);
    assert_eq!(names.trim(), "tenant.capsule.clastix.io/team-a", "{mine:?}");
    let nobody = shown.replace("\"alice\"", "\"nobody\"");
    let stranger = place.folder.path().join("nobody");
    std::fs::write(&stranger, nobody).unwrap();
    place.check(
        &["get", "tenants", "--kubeconfig", stranger.to_str().unwrap()],
        3,
        &[],
        &["you may not list tenants.capsule.clastix.io"],
    );
    place.check(
        &["get", "ks", "-n", "team-a", "--kubeconfig", file],
        0,
        &[],
        &["nothing found"],
    );
    place.check(
        &["get", "ks", "-A", "--kubeconfig", file],
        3,
        &[],
        &["you may not list", "in all namespaces", "hint: -n"],
    );
    place.check(
        &["suspend", "ks/web", "-n", "default", "--kubeconfig", file],
        3,
        &[],
        &["Forbidden", "hint:"],
    );
}

#[test]
fn a_folder_is_a_repository() {
    let folder = tempfile::tempdir().unwrap();
    let served = folder.path().join("platform");
    std::fs::create_dir(&served).unwrap();
    std::fs::write(served.join("a.yaml"), "a: 1\n").unwrap();
    let data = folder.path().join("data");
    let named = format!("platform={}", served.display());
    let (_up, lines) = Up::start_telling(&data, &["--repository", &named, "--repository-port", "0"], 3);
    let url = lines[2].strip_prefix("repository ").expect("the clone URL").to_owned();
    let read = || {
        let clone = tempfile::tempdir().unwrap();
        let cloned = std::process::Command::new("git")
            .args(["clone", "--quiet", &url, clone.path().to_str().unwrap()])
            .status()
            .unwrap();
        assert!(cloned.success());
        let mut names: Vec<_> = std::fs::read_dir(clone.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != ".git")
            .collect();
        names.sort();
        names
    };
    assert_eq!(read(), ["a.yaml"]);
    std::fs::write(served.join("b.yaml"), "b: 1\n").unwrap();
    std::fs::remove_file(served.join("a.yaml")).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    while read() != ["b.yaml"] {
        assert!(std::time::Instant::now() < deadline, "the folder is not followed");
    }
    crate::process::fails(
        &["up", "--repository", "platform=/nonexistent"],
        2,
        &["no folder", "hint:"],
    );
}
