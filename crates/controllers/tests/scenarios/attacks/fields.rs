//! Attacks with the fields of Flux's kinds.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{Attack, Scene, attack, own_folders};
use crate::stage::{CONFIG_MAP, KUSTOMIZATION};

fn kustomizations() -> Vec<Attack> {
    let account = |name: &'static str, value: &str| {
        attack(
            name,
            json!({ "serviceAccountName": value }),
            "spec.serviceAccountName",
            json!({ "serviceAccountName": "EVIL-gitops" }),
        )
    };
    let path =
        |name: &'static str, value: &str, control: Value| attack(name, json!({ "path": value }), "spec.path", control);
    let duration = |name: &'static str, field: &str, value: &str, expected: &'static str| {
        attack(name, json!({ field: value }), expected, json!({ field: "1h0.5m" }))
    };
    let target = |name: &'static str, value: &str| {
        attack(
            name,
            json!({ "targetNamespace": value }),
            "spec.targetNamespace",
            json!({ "targetNamespace": "EVIL" }),
        )
    };
    vec![
        account("account-colon", "ALPHA:ALPHA-gitops"),
        account("account-user", "system:serviceaccount:tenure-system:tenure-controller"),
        account("account-dots", "../../tenure-system/serviceaccounts/tenure-controller"),
        account("account-newline", "default\nImpersonate-Group: system:masters"),
        account("account-empty", ""),
        account("account-blank", " "),
        attack(
            "account-nobody",
            json!({ "serviceAccountName": null }),
            "system:serviceaccount:EVIL:default",
            json!({}),
        ),
        attack(
            "kube-config-secret",
            json!({ "kubeConfig": { "secretRef": { "name": "../../ALPHA/secrets/kubeconfig" } } }),
            "spec.kubeConfig.secretRef.name",
            json!({}),
        ),
        attack(
            "kube-config-map",
            json!({ "kubeConfig": { "configMapRef": { "name": "anywhere" } } }),
            "spec.kubeConfig.configMapRef",
            json!({}),
        ),
        attack(
            "kube-config-alpha",
            json!({ "kubeConfig": { "secretRef": { "name": "kubeconfig-of-alpha" } } }),
            "Secret 'EVIL/kubeconfig-of-alpha': not found",
            json!({}),
        ),
        attack(
            "decryption-account",
            json!({ "decryption": { "provider": "sops", "serviceAccountName": "ALPHA-gitops" } }),
            "spec.decryption.serviceAccountName",
            json!({ "decryption": { "provider": "sops" } }),
        ),
        attack(
            "decryption-elsewhere",
            json!({ "decryption": { "provider": "sops", "secretRef": { "name": "../../ALPHA/secrets/keys" } } }),
            "spec.decryption.secretRef.name",
            json!({ "decryption": { "provider": "sops" } }),
        ),
        attack(
            "decryption-alpha",
            json!({ "decryption": { "provider": "sops", "secretRef": { "name": "keys-of-alpha" } } }),
            "cannot get sops decryption Secret 'EVIL/keys-of-alpha': not found",
            json!({ "decryption": { "provider": "sops" } }),
        ),
        attack(
            "components",
            json!({ "components": ["https://example.com/component"] }),
            "spec.components",
            json!({}),
        ),
        path("path-up", "../../../etc", json!({ "path": "own/../own/path-up" })),
        path("path-root-up", "/../etc", json!({ "path": "/own/path-root-up" })),
        path("path-later", "./own/../../x", json!({ "path": "./own/./path-later/" })),
        path("path-newline", "own\n/path-newline", json!({})),
        attack(
            "path-machine",
            json!({ "path": "/etc" }),
            "not in the source",
            json!({}),
        ),
        duration("interval-negative", "interval", "-1h", "spec.interval"),
        duration("interval-huge", "interval", "99999999999999h", "spec.interval"),
        duration("interval-newline", "interval", "1h\n", "spec.interval"),
        duration("timeout-negative", "timeout", "-1s", "spec.timeout"),
        duration(
            "retry-huge",
            "retryInterval",
            "9999999999999999999999h",
            "spec.retryInterval",
        ),
        target("target-alpha", "ALPHA"),
        target("target-platform", "tenure-system"),
        target("target-system", "kube-system"),
        target("target-colon", "EVIL:x"),
        target("target-newline", "EVIL\n"),
        attack(
            "health-alpha",
            json!({ "healthChecks": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": "ALPHA" }] }),
            "can't check the health",
            json!({ "healthChecks": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "health-alpha", "namespace": "EVIL" }] }),
        ),
        attack(
            "health-cluster",
            json!({ "healthChecks": [{ "apiVersion": "v1", "kind": "Namespace", "name": "ALPHA" }] }),
            "cluster-scoped",
            json!({}),
        ),
        attack(
            "depends-expression",
            json!({ "dependsOn": [{ "name": "x", "namespace": "ALPHA", "readyExpr": "dep.status.x == 1" }] }),
            "can't depend on 'Kustomization/ALPHA/x', cross-namespace references have been blocked",
            json!({ "dependsOn": [{ "name": "components-control", "namespace": "EVIL", "readyExpr": "dep.spec.prune == true" }] }),
        ),
        attack(
            "depends-slash",
            json!({ "dependsOn": [{ "name": "../ALPHA/files" }] }),
            "not found",
            json!({ "dependsOn": [{ "name": "components-control" }] }),
        ),
        attack(
            "source-dots",
            json!({ "sourceRef": { "kind": "GitRepository", "name": "../ALPHA/files" } }),
            "Source",
            json!({}),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kustomization_fields_reach_nothing_outside_their_tenant() {
    let scene = Scene::set("attacks-a").await;
    let attacks = kustomizations();
    scene.serve(&own_folders(&attacks)).await;
    scene
        .check(&attacks, |attack, name, spec| {
            scene.own_kustomization(attack, name, spec)
        })
        .await;
    let harm: Vec<_> = attacks
        .iter()
        .flat_map(|attack| {
            ["ALPHA", "tenure-system", "kube-system"].map(|namespace| (CONFIG_MAP, namespace, attack.name))
        })
        .collect();
    scene.absent(&harm).await;

    // A label that would select another controller, without these rules, has no effect.
    let mut sharded = scene.kustomization(
        "sharded",
        &json!({ "path": "./own/components", "targetNamespace": "ALPHA" }),
    );
    sharded["metadata"]["labels"] = json!({ "sharding.fluxcd.io/key": "without-rules" });
    scene.mallory.apply(sharded).await.unwrap();
    let refused = scene
        .stage
        .ready(KUSTOMIZATION, (&scene.evil, "sharded"), "False", "AccessDenied");
    assert!(refused.await.contains("does not belong to tenant"));

    // Names with another meaning in a user name, a header or an inventory.
    for name in ["a:b", "a\nb", "../b", "a_b", "a/b", "A"] {
        let mut object = scene.kustomization("named", &json!({ "path": "./own/components" }));
        object["metadata"]["name"] = json!(name);
        let refused = scene.mallory.create(object).await.unwrap_err().to_string();
        assert!(refused.contains("metadata.name"), "{name:?}: {refused}");
    }
    let named = scene.kustomization("a.b-c", &json!({ "path": "./own/components", "suspend": true }));
    scene.mallory.create(named).await.unwrap();
    assert!(scene.stage.get(KUSTOMIZATION, (&scene.evil, "a.b-c")).await.is_some());
    scene.shut_down().await;
}

/// Answers every request with a redirect to an address.
async fn redirector(listener: TcpListener, location: String) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !request.windows(4).any(|window| window == b"\r\n\r\n") {
            match stream.read(&mut buffer).await {
                Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
                _ => break,
            }
        }
        let answer =
            format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_fields_reach_nothing_forbidden() {
    const TAIL: &str = "/info/refs?service=git-upload-pack";
    let mut listeners = Vec::new();
    for _ in 0..3 {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let hosts: Vec<String> = listeners
        .iter()
        .map(|listener| format!("http://{}", listener.local_addr().unwrap()))
        .collect();
    let scene = Scene::set_allowing("attacks-b", &hosts).await;
    let repository = scene.serve(&[("a.yaml".to_owned(), "a: b\n".to_owned())]).await;
    let commit = repository.resolve("main").await.unwrap().unwrap();
    for (branch, address) in [
        ("inward", "http://169.254.169.254/latest.git"),
        ("files", "file:///etc"),
        ("beside", "./"),
    ] {
        let module = [
            (
                ".gitmodules",
                format!("[submodule \"in\"]\n\tpath = in\n\turl = {address}\n").into(),
            ),
            ("in", tenure_git_server::Content::Submodule(commit.clone())),
        ];
        repository.commit_on(branch, module, "submodule").await.unwrap();
    }
    let good = scene.stage.git.http_url(&scene.fill("EVIL-files"));
    let port = scene.stage.git.http_address().port();
    let targets = [
        // 127.0.0.1 with this port, as a URL writes it, is allowed. localhost with the same port is another endpoint.
        format!("http://localhost:{port}/{}.git{TAIL}", scene.fill("EVIL-files")),
        format!("http://169.254.169.254/latest{TAIL}"),
        format!("{good}{TAIL}"),
    ];
    let mut ended = Vec::new();
    for (listener, target) in listeners.into_iter().zip(targets) {
        ended.push(tokio::spawn(redirector(listener, target)));
    }
    let url = |name: &'static str, url: &str, expected: &'static str| {
        attack(name, json!({ "url": url }), expected, json!({ "url": good }))
    };
    let attacks = vec![
        attack(
            "redirect-loopback",
            json!({ "url": format!("{}/x", hosts[0]) }),
            "loopback",
            json!({ "url": format!("{}/x", hosts[2]) }),
        ),
        attack(
            "redirect-metadata",
            json!({ "url": format!("{}/x", hosts[1]) }),
            "metadata",
            json!({ "url": format!("{}/x", hosts[2]) }),
        ),
        url("loopback", &format!("http://localhost:{port}/x"), "loopback"),
        url("loopback-six", "http://[::1]/x", "loopback"),
        url("loopback-number", "http://2130706433/x", "loopback"),
        url("loopback-octal", "http://0177.0.0.1/x", "loopback"),
        url("mapped-metadata", "http://[::ffff:169.254.169.254]/x", "metadata"),
        url("link-local", "https://169.254.1.1/x", "link-local"),
        url("private", "http://10.0.0.1/x", "private"),
        url("file", "file:///etc/passwd", "spec.url"),
        url("git", "git://example.com/x", "spec.url"),
        url("double", "git::https://example.com/x", "spec.url"),
        url("extension", "ext::sh -c id", "spec.url"),
        url("option", "--upload-pack=touch /tmp/x", "spec.url"),
        url("option-host", "ssh://-oProxyCommand=id/x", "not a host name"),
        url("option-path", "https://example.com/-x", "dash"),
        url("option-user", "ssh://-oProxyCommand=id@example.com/x", "dash"),
        url("newline", "https://example.com/x\nHost: y", ""),
        attack(
            "option-branch",
            json!({ "ref": { "branch": "--upload-pack=id" } }),
            "ref",
            json!({ "ref": { "branch": "main" } }),
        ),
        attack(
            "reference-newline",
            json!({ "ref": { "name": "refs/heads/main\n0000" } }),
            "ref",
            json!({ "ref": { "name": "refs/heads/main" } }),
        ),
        attack(
            "commit-option",
            json!({ "ref": { "commit": "--help" } }),
            "commit",
            json!({ "ref": { "branch": "main" } }),
        ),
        attack(
            "interval-negative",
            json!({ "interval": "-1h" }),
            "spec.interval",
            json!({ "interval": "1h" }),
        ),
        attack(
            "timeout-huge",
            json!({ "timeout": "99999999999999h" }),
            "spec.timeout",
            json!({ "timeout": "59m" }),
        ),
        attack(
            "include-to",
            json!({ "include": [{ "repository": { "name": "files" }, "toPath": "../x" }] }),
            "spec.include[0].toPath",
            json!({ "include": [{ "repository": { "name": "files" }, "toPath": "x" }] }),
        ),
        attack(
            "include-from",
            json!({ "include": [{ "repository": { "name": "files" }, "fromPath": "x/../../../y" }] }),
            "spec.include[0].fromPath",
            json!({ "include": [{ "repository": { "name": "files" }, "fromPath": "./", "toPath": "./y/" }] }),
        ),
        attack(
            "include-foreign",
            json!({ "include": [{ "repository": { "name": "ALPHA/files" } }] }),
            "spec.include[0].repository.name",
            json!({ "include": [{ "repository": { "name": "files" } }] }),
        ),
        attack(
            "include-itself",
            json!({ "include": [{ "repository": { "name": "include-itself" } }] }),
            "includes form a cycle: include-itself -> include-itself",
            json!({ "include": [{ "repository": { "name": "files" } }] }),
        ),
        attack(
            "sparse-dots",
            json!({ "sparseCheckout": ["../../ALPHA"] }),
            "spec.sparseCheckout[0]",
            json!({ "sparseCheckout": ["./a.yaml"] }),
        ),
        attack(
            "submodules",
            json!({ "recurseSubmodules": true, "ref": { "branch": "inward" } }),
            "submodule \"in\": connection to http://169.254.169.254:80 denied",
            json!({ "recurseSubmodules": true, "ref": { "branch": "beside" } }),
        ),
        attack(
            "submodules-of-files",
            json!({ "recurseSubmodules": true, "ref": { "branch": "files" } }),
            "submodule \"in\": invalid Git URL",
            json!({ "ref": { "branch": "files" } }),
        ),
        attack(
            "proxy",
            json!({ "proxySecretRef": { "name": "../../ALPHA/secrets/x" } }),
            "spec.proxySecretRef",
            json!({}),
        ),
        attack(
            "secret-dots",
            json!({ "secretRef": { "name": "../../ALPHA/secrets/x" } }),
            "secretRef",
            json!({}),
        ),
    ];
    scene
        .check(&attacks, |_, name, spec| scene.source(name, "EVIL-files", spec))
        .await;
    for task in ended {
        task.abort();
    }
    scene.shut_down().await;
}
