//! `tenure logs` on a server that has Pods with logs: a small stand-in that answers the requests of the command, since neither the embedded control plane nor a
//! kube-apiserver without nodes has any.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};

use crate::process::tenure;

const FIRST: &str = r#"{"timestamp":"2026-11-30T04:00:01Z","level":"WARN","message":"bookkeeping failed","object":"Kustomization/team-a/app","target":"t"}
{"timestamp":"2026-11-30T04:00:03Z","level":"WARN","message":"bookkeeping failed","object":"Kustomization/team-a/app-two","target":"t"}
"#;
const SECOND: &str = r#"{"timestamp":"2026-11-30T04:00:02Z","level":"ERROR","message":"its reconciler panicked","object":"Kustomization/team-a/app","target":"t"}
"#;

/// Answers a request. The third Pod has not started.
fn answer(path: &str) -> (u16, String) {
    let list = |kind: &str, items: Value| {
        json!({"kind": kind, "apiVersion": "v1", "metadata": {}, "items": items}).to_string()
    };
    let pod = |name: &str| json!({"metadata": {"name": name, "namespace": "tenure-system"}});
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    match path {
        "/version" => (200, json!({"gitVersion": "v1.36.3"}).to_string()),
        "/api" => (200, json!({"kind": "APIGroupDiscoveryList", "items": []}).to_string()),
        "/apis" => {
            let resource = json!({
                "resource": "kustomizations", "responseKind": {"kind": "Kustomization"}, "scope": "Namespaced",
                "singularResource": "kustomization", "shortNames": ["ks"], "verbs": ["get"]
            });
            let group = json!({
                "metadata": {"name": "kustomize.toolkit.fluxcd.io"},
                "versions": [{"version": "v1", "resources": [resource], "freshness": "Current"}]
            });
            (200, json!({"kind": "APIGroupDiscoveryList", "items": [group]}).to_string())
        }
        "/api/v1/namespaces/tenure-system/pods" => {
            assert!(query.contains("labelSelector=app.kubernetes.io%2Fname%3Dtenure"), "{query}");
            (200, list("PodList", json!([pod("one"), pod("two"), pod("three")])))
        }
        "/api/v1/namespaces/tenure-system/pods/one/log" => (200, FIRST.to_owned()),
        "/api/v1/namespaces/tenure-system/pods/two/log" => (200, SECOND.to_owned()),
        "/api/v1/namespaces/tenure-system/pods/three/log" => (
            400,
            json!({"kind": "Status", "status": "Failure", "code": 400, "reason": "BadRequest", "message": "container is waiting to start"})
                .to_string(),
        ),
        _ => (404, json!({"kind": "Status", "status": "Failure", "code": 404, "message": path}).to_string()),
    }
}

/// Starts the stand-in, and writes a kubeconfig for it.
fn serve(kubeconfig: &Path) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut lines = BufReader::new(stream.try_clone().unwrap())
                .lines()
                .map_while(Result::ok);
            let Some(first) = lines.next() else { continue };
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let (code, body) = answer(first.split(' ').nth(1).unwrap_or_default());
            let head = format!(
                "HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _client_gone = stream.write_all((head + &body).as_bytes());
        }
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "team-a"}}],
        "clusters": [{"name": "a", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "a", "user": {}}]
    });
    std::fs::write(kubeconfig, config.to_string()).unwrap();
}

#[test]
fn logs_show_lines_of_object_in_time_order() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    serve(&kubeconfig);
    let run = |arguments: &[&str]| {
        let output = tenure(arguments).env("KUBECONFIG", &kubeconfig).output().unwrap();
        let noted = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {noted}");
        (String::from_utf8_lossy(&output.stdout).into_owned(), noted)
    };
    let of_one = "[one] 2026-11-30T04:00:01Z WARN bookkeeping failed object=Kustomization/team-a/app\n";
    let of_two = "[two] 2026-11-30T04:00:02Z ERROR its reconciler panicked object=Kustomization/team-a/app\n";
    let (shown, noted) = run(&["logs", "ks/app"]);
    assert_eq!(shown, format!("{of_one}{of_two}"));
    assert!(
        noted.contains("Pod three has no log: container is waiting to start"),
        "{noted}"
    );
    assert_eq!(run(&["logs", "ks/app", "--tail", "1"]).0, of_two);
    assert_eq!(run(&["logs", "--all"]).0.lines().count(), 3);
    let (json, _) = run(&["logs", "ks/app-two", "-o", "json"]);
    assert_eq!(json.trim_end(), FIRST.lines().nth(1).unwrap());
    let (nothing, noted) = run(&["logs", "ks/none"]);
    assert!(
        nothing.is_empty() && noted.contains("no line is about Kustomization/team-a/none"),
        "{noted}"
    );
    // The Pods of the stand-in end, and so does the command.
    let (followed, noted) = run(&["logs", "ks/app", "--follow"]);
    assert!(followed.contains(of_one) && followed.contains(of_two), "{followed}");
    assert!(noted.contains("the Pods have ended"), "{noted}");
}
