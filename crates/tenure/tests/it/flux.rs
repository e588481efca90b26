//! The `flux` command works with the control plane as with any cluster with Flux. The test needs `TENURE_BESIDE`, a folder with the command.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tenure_test_ports::reserve_port;

use crate::process::{Up, make_command};

/// Returns the objects of a Flux user: a source and a Kustomization, as `flux export` writes them.
fn objects(port: u16) -> String {
    format!(
        "apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {{name: app, namespace: default}}
spec: {{interval: 1m, url: \"http://127.0.0.1:{port}/app.git\", ref: {{branch: main}}}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {{name: app, namespace: default}}
spec:
  interval: 10m
  path: ./
  prune: true
  serviceAccountName: applier
  targetNamespace: default
  sourceRef: {{kind: GitRepository, name: app}}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {{name: chat, namespace: default}}
spec: {{type: slack, address: \"https://hooks.example/x\"}}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Alert
metadata: {{name: chat, namespace: default}}
spec: {{providerRef: {{name: chat}}, eventSources: [{{kind: GitRepository, name: none}}]}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: applier, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: applier, namespace: default}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}}
subjects: [{{kind: ServiceAccount, name: applier, namespace: default}}]
"
    )
}

struct Place {
    folder: tempfile::TempDir,
    flux: PathBuf,
    _up: Up,
}

impl Place {
    fn run(&self, program: &Path, arguments: &[&str]) -> Output {
        make_command(program)
            .args(arguments)
            .env("KUBECONFIG", self.folder.path().join("data/kubeconfig"))
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .output()
            .unwrap()
    }

    /// Runs `flux`, and expects an exit code and words in its output.
    fn flux(&self, arguments: &[&str], code: i32, words: &[&str]) {
        let output = self.run(&self.flux, arguments);
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(output.status.code(), Some(code), "flux {arguments:?}: {text}");
        for word in words {
            assert!(text.contains(word), "flux {arguments:?} does not say {word:?}: {text}");
        }
    }

    fn kubectl(&self, arguments: &[&str]) {
        let output = self.run(Path::new("kubectl"), arguments);
        assert!(
            output.status.success(),
            "kubectl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn the_flux_command_works() {
    let given = std::env::var_os("TENURE_BESIDE").map(|folder| PathBuf::from(folder).join("flux"));
    let Some(flux) = given.filter(|flux| flux.exists()) else {
        println!("skipped: TENURE_BESIDE names no folder with the flux command");
        return;
    };
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        println!("skipped: there is no kubectl on PATH");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let app = folder.path().join("app");
    std::fs::create_dir(&app).unwrap();
    let greeting = |text: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: greeting, namespace: default}}\ndata: {{text: {text}}}\n"
        )
    };
    std::fs::write(app.join("greeting.yaml"), greeting("hello")).unwrap();
    std::fs::write(app.join("kustomization.yaml"), "resources: [greeting.yaml]\n").unwrap();
    let port = reserve_port();
    let up = Up::start(
        &folder.path().join("data"),
        &[
            "--repository",
            &format!("app={}", app.display()),
            "--repository-port",
            &port.to_string(),
            "--allow-source",
            &format!("http://127.0.0.1:{port}"),
        ],
    );
    std::fs::write(folder.path().join("objects.yaml"), objects(port)).unwrap();
    let place = Place { folder, flux, _up: up };
    let app = app.to_str().unwrap();
    place.kubectl(&["apply", "-f", "objects.yaml"]);
    place.kubectl(&[
        "wait",
        "ks/app",
        "-n",
        "default",
        "--for=condition=Ready",
        "--timeout=60s",
    ]);

    let there = ["-n", "default"];
    let add_namespace = |arguments: &[&'static str]| [arguments, &there].concat();
    place.flux(
        &add_namespace(&["get", "sources", "git"]),
        0,
        &["app", "stored artifact"],
    );
    place.flux(
        &add_namespace(&["get", "kustomizations"]),
        0,
        &["app", "Applied revision: main@sha1:"],
    );
    place.flux(&add_namespace(&["get", "alerts"]), 0, &["chat", "Alert is Ready"]);
    place.flux(
        &add_namespace(&["get", "alert-providers"]),
        0,
        &["chat", "Provider is Ready"],
    );
    place.flux(
        &add_namespace(&["get", "all"]),
        0,
        &["gitrepository/app", "kustomization/app"],
    );
    place.flux(
        &add_namespace(&["reconcile", "kustomization", "app", "--with-source"]),
        0,
        &["fetched revision main@sha1:", "applied revision main@sha1:"],
    );
    place.flux(
        &add_namespace(&["reconcile", "source", "git", "app"]),
        0,
        &["fetched revision main@sha1:"],
    );
    place.flux(
        &add_namespace(&["tree", "kustomization", "app"]),
        0,
        &["ConfigMap/default/greeting"],
    );
    place.flux(
        &add_namespace(&["trace", "configmap", "greeting"]),
        0,
        &["Kustomization:", "GitRepository:", "app"],
    );
    place.flux(
        &add_namespace(&["events", "--for", "Kustomization/app"]),
        0,
        &["ReconciliationSucceeded"],
    );
    // The command compares local files with the cluster; exit code 1 means a difference.
    let diff = ["diff", "kustomization", "app", "-n", "default", "--path", app];
    place.flux(&diff, 0, &[]);
    std::fs::write(Path::new(app).join("greeting.yaml"), greeting("goodbye")).unwrap();
    place.flux(&diff, 1, &["ConfigMap/default/greeting", "goodbye"]);

    place.flux(
        &add_namespace(&["suspend", "kustomization", "app"]),
        0,
        &["kustomization suspended"],
    );
    place.flux(&add_namespace(&["get", "kustomizations"]), 0, &["True"]);
    place.flux(
        &add_namespace(&["reconcile", "kustomization", "app"]),
        1,
        &["suspended"],
    );
    place.flux(
        &add_namespace(&["resume", "kustomization", "app"]),
        0,
        &["applied revision main@sha1:"],
    );
    place.flux(
        &add_namespace(&["export", "kustomization", "app"]),
        0,
        &["serviceAccountName: applier"],
    );
    place.flux(
        &add_namespace(&["delete", "kustomization", "app", "--silent"]),
        0,
        &["kustomization deleted"],
    );
    place.flux(&add_namespace(&["get", "kustomizations", "app"]), 1, &["not found"]);
}
