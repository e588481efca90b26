//! The use of other lanes' objects through the lines of a lane's process: a grant of another tenant's artifact, and a source behind a proxy.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::lanes::{Scene, wait_until};
use crate::world::Admin;

fn kustomization(tenant: &str, name: &str, source: Value) -> Value {
    json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"namespace": tenant, "name": name},
        "spec": {"interval": "1m", "retryInterval": "1s", "prune": true, "targetNamespace": tenant, "namePrefix": format!("{name}-"),
            "serviceAccountName": format!("{tenant}-gitops"), "sourceRef": source}})
}

fn config_map(value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: lent\ndata:\n  value: \"{value}\"\n")
}

async fn wait_until_applied(admin: &Admin, (namespace, name): (&str, &str), value: &str) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}});
    admin.wait_for(object, |found| found["data"]["value"] == value).await;
}

/// Waits until an object's Ready has this reason, and returns its message.
async fn wait_for_reason(admin: &Admin, object: &Value, reason: &str) -> String {
    wait_until(&format!("Ready says {reason}"), async || {
        let found = admin.find(object).await?;
        let conditions = found["status"]["conditions"].as_array()?;
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
        (ready["reason"] == reason).then(|| ready["message"].as_str().unwrap_or_default().to_owned())
    })
    .await
}

#[tokio::test]
async fn granted_artifact_comes_from_another_tenants_process() {
    let mut scene = Scene::set(&[
        "--allow-reference",
        "tenant:blue=red/GitRepository/shared",
        "--allow-reference",
        "blue=red/Kustomization/base",
    ])
    .await;
    let repository = scene.git.create("shared").await.unwrap();
    let commit = async |value: &str| {
        repository
            .commit([("lent.yaml", config_map(value))], value)
            .await
            .unwrap()
    };
    commit("1").await;
    let admin = scene.admin();
    let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"namespace": "red", "name": "shared"},
        "spec": {"interval": "1s", "url": scene.git.http_url("shared"), "ref": {"branch": "main"}}});
    admin.apply(source).await;
    let own = json!({"kind": "GitRepository", "name": "shared"});
    let lent = json!({"kind": "GitRepository", "name": "shared", "namespace": "red"});
    // The Kustomization waits for a dependency in the other namespace, and reports what is missing.
    let mut waits = kustomization("blue", "waits", lent.clone());
    waits["spec"]["dependsOn"] = json!([{"name": "base", "namespace": "red", "readyExpr":
        "dep.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True') && dep.metadata.name == 'base'"}]);
    admin.apply(waits.clone()).await;
    let message = wait_for_reason(admin, &waits, "DependencyNotReady").await;
    assert_eq!(message, "dependency 'red/base' not found");
    admin.apply(kustomization("red", "base", own)).await;
    wait_until_applied(admin, ("red", "base-lent"), "1").await;
    wait_until_applied(admin, ("blue", "waits-lent"), "1").await;
    // References without a grant are refused in the same words for existing and missing objects: in the reverse direction, and for another kind with the same name.
    for (tenant, name, namespace) in [
        ("red", "apps", "blue"),
        ("red", "none", "blue"),
        ("blue", "none", "red"),
    ] {
        let refused = kustomization(
            tenant,
            &format!("no-{name}"),
            json!({"kind": "GitRepository", "name": name, "namespace": namespace}),
        );
        admin.apply(refused.clone()).await;
        let message = wait_for_reason(admin, &refused, "AccessDenied").await;
        assert_eq!(
            message,
            format!("can't access 'GitRepository/{namespace}/{name}', cross-namespace references have been blocked")
        );
    }
    // A commit in the other namespace counts here. The artifact is in the lane's own folder while it is referenced.
    commit("2").await;
    wait_until_applied(admin, ("blue", "waits-lent"), "2").await;
    let borrowed = scene
        .data
        .join("artifacts/lanes/tenant-blue/store/gitrepository/red/shared");
    assert!(borrowed.is_dir());
    admin.delete(&waits).await;
    wait_until("what was borrowed is gone", async || {
        let left = std::fs::read_dir(&borrowed).into_iter().flatten().flatten();
        let left: usize = left
            .map(|uid| std::fs::read_dir(uid.path()).into_iter().flatten().count())
            .sum();
        (left == 0).then_some(())
    })
    .await;
    let admin = &Admin(admin.0.clone());
    scene.red.check_that_it_goes_on(admin).await;
    scene.blue.check_that_it_goes_on(admin).await;
}

fn generator(tenant: &str, name: &str, source: Value) -> Value {
    json!({"apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator", "metadata": {"namespace": tenant, "name": name},
        "spec": {"sources": [source], "artifacts": [{"name": name, "copy": [{"from": "@shared/**", "to": "@artifact/"}]}]}})
}

#[tokio::test]
async fn generator_copies_granted_source_but_no_generated_artifact() {
    let scene = Scene::set(&[
        "--allow-reference",
        "blue=red/GitRepository/shared",
        "--allow-reference",
        "blue=red/ExternalArtifact/made",
    ])
    .await;
    let repository = scene.git.create("shared").await.unwrap();
    repository.commit([("lent.yaml", config_map("1"))], "1").await.unwrap();
    let admin = scene.admin();
    let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"namespace": "red", "name": "shared"},
        "spec": {"interval": "1s", "url": scene.git.http_url("shared"), "ref": {"branch": "main"}}});
    admin.apply(source).await;
    let of_red = |kind: &str, name: &str| json!({"alias": "shared", "kind": kind, "name": name, "namespace": "red"});
    admin
        .apply(generator("blue", "copied", of_red("GitRepository", "shared")))
        .await;
    let made = json!({"kind": "ExternalArtifact", "name": "copied"});
    admin.apply(kustomization("blue", "app", made)).await;
    wait_until_applied(admin, ("blue", "app-lent"), "1").await;
    // A change in the other namespace produces a new artifact here.
    repository.commit([("lent.yaml", config_map("2"))], "2").await.unwrap();
    wait_until_applied(admin, ("blue", "app-lent"), "2").await;
    // An artifact of a generator is refused by name, even with a grant. Without a grant, the answer is the same as for a missing object.
    let own = json!({"alias": "shared", "kind": "GitRepository", "name": "shared"});
    admin.apply(generator("red", "made", own)).await;
    let feeds = generator("blue", "feeds", of_red("ExternalArtifact", "made"));
    admin.apply(feeds.clone()).await;
    let message = wait_for_reason(admin, &feeds, "SourceFetchFailed").await;
    assert!(
        message.contains(
            "'ExternalArtifact/red/made' is not taken: it is made by a generator in another tenant's process"
        ),
        "{message}"
    );
}

/// A plain HTTP proxy that alone resolves one name: it forwards each request over a connection of its own.
async fn serve_proxy(listener: TcpListener, server: SocketAddr) {
    while let Ok((mut client, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await?);
            }
            let head = String::from_utf8_lossy(&head).replacen("http://repository.invalid", "", 1);
            let lines = head
                .split("\r\n")
                .filter(|line| !line.to_ascii_lowercase().starts_with("proxy-"));
            let head = lines
                .collect::<Vec<_>>()
                .join("\r\n")
                .replacen("\r\n", "\r\nConnection: close\r\n", 1);
            let mut server = TcpStream::connect(server).await?;
            server.write_all(head.as_bytes()).await?;
            copy_bidirectional(&mut client, &mut server).await
        });
    }
}

#[tokio::test]
async fn lane_fetches_source_behind_proxy_through_hub() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let scene = Scene::set(&["--allow-source", &proxy]).await;
    let serving = tokio::spawn(serve_proxy(listener, scene.git.http_address()));
    let repository = scene.git.create("hidden").await.unwrap();
    repository
        .commit([("lent.yaml", config_map("1"))], "first")
        .await
        .unwrap();
    let admin = scene.admin();
    admin
        .apply(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "blue", "name": "way-out"},
            "stringData": {"address": proxy}}),
        )
        .await;
    let source = |name: &str, url: &str| {
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"namespace": "blue", "name": name},
            "spec": {"interval": "1m", "url": url, "ref": {"branch": "main"}, "proxySecretRef": {"name": "way-out"}}})
    };
    admin
        .apply(source("hidden", "http://repository.invalid/hidden.git"))
        .await;
    let hidden = json!({"kind": "GitRepository", "name": "hidden"});
    admin.apply(kustomization("blue", "behind", hidden)).await;
    wait_until_applied(admin, ("blue", "behind-lent"), "1").await;
    // Addresses that sources may not reach stay closed through the proxy, too.
    let inside = source("inside", "http://169.254.169.254/latest.git");
    admin.apply(inside.clone()).await;
    let message = wait_for_reason(admin, &inside, "GitOperationFailed").await;
    assert!(message.contains("a cloud metadata address"), "{message}");
    serving.abort();
}
