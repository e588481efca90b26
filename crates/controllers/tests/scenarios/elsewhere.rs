//! `spec.kubeConfig`: objects in another cluster are applied, pruned, watched and released, and the cluster never changes unasked. Other targets of a
//! kubeconfig than its own cluster are refused, and its content is never reported.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tenure_testkit::{ServedCluster, Webhook};

use crate::guards::allow_deletion;
use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, commit, condition, config_map, request_token};

pub(crate) const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n";

/// Returns a Secret with a kubeconfig.
fn secret(namespace: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "production", "namespace": namespace },
        "stringData": { "value": text },
    })
}

fn by_kubeconfig() -> Value {
    json!({ "targetNamespace": null, "kubeConfig": { "secretRef": { "name": "production" } } })
}

/// Returns a kubeconfig with these fields of its cluster and its user.
fn write_kubeconfig(cluster: &Value, user: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "clusters": [{ "name": "c", "cluster": cluster }],
        "users": [{ "name": "u", "user": user }],
    })
    .to_string()
}

pub(crate) fn in_shop(name: &str, value: &str) -> String {
    config_map(name, value).replace("metadata:\n", "metadata:\n  namespace: shop\n")
}

/// Waits for a condition in another cluster.
pub(crate) async fn until_there(cluster: &ServedCluster, name: &str, holds: impl Fn(Option<&Value>) -> bool) {
    let looked = tenure_testkit::eventually(tenure_testkit::SOON, || async {
        let object = cluster.admin.get(CONFIG_MAP, ("shop", name)).await;
        let object = object.map_err(|error| error.to_string())?;
        if holds(object.as_ref()) {
            Ok(())
        } else {
            Err(format!("{object:?}"))
        }
    });
    if let Err(last) = looked.await {
        panic!("{name} did not become so: {last}");
    }
}

pub(crate) fn has_value(expected: &str) -> impl Fn(Option<&Value>) -> bool {
    move |object: Option<&Value>| object.is_some_and(|object| object["data"]["value"] == expected)
}

/// Checks that none of these texts is in the Kustomization or in an event.
pub(crate) async fn is_nowhere(stage: &Stage, namespace: &str, secrets: &[&str]) {
    let object = stage.get(KUSTOMIZATION, (namespace, "app")).await;
    let status = object.map_or(Value::Null, |object| object["status"].clone());
    let events = stage.admin.list(("v1", "Event"), namespace).await.unwrap();
    for text in events.iter().chain([&status]).map(ToString::to_string) {
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "{text}");
    }
}

/// A kubeconfig of another cluster is not accepted in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_applied_to_one_remote_cluster_only() {
    let namespace = "elsewhere-a";
    let (one, two) = (
        ServedCluster::start().await.unwrap(),
        ServedCluster::start().await.unwrap(),
    );
    let stage = Stage::set_allowing(namespace, &[one.endpoint(), two.endpoint()]).await;
    stage.admin.apply(secret(namespace, &one.kubeconfig())).await.unwrap();
    let files = [
        ("ns.yaml", NAMESPACE),
        ("a.yaml", &in_shop("a", "1")),
        ("b.yaml", &in_shop("b", "1")),
    ];
    let repository = stage.repository(namespace, "app", &files).await;
    stage.kustomization(namespace, "app", "app", by_kubeconfig()).await;
    stage
        .ready(KUSTOMIZATION, (namespace, "app"), "True", "ReconciliationSucceeded")
        .await;
    until_there(&one, "a", has_value("1")).await;
    assert!(
        stage.get(CONFIG_MAP, ("shop", "a")).await.is_none(),
        "nothing is applied here"
    );

    // Drift is detected there, and corrected.
    let drift = json!({ "data": { "value": "drifted" } });
    one.admin.patch(CONFIG_MAP, ("shop", "a"), drift).await.unwrap();
    until_there(&one, "a", has_value("1")).await;

    // Other credentials, of an account of the same cluster.
    for object in [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "deployer", "namespace": "default" } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "deployer" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": "deployer", "namespace": "default" }]
        }),
    ] {
        one.admin.apply(object).await.unwrap();
    }
    let token = request_token(&one.admin, "default", "deployer").await.unwrap();
    let cluster = json!({
        "server": one.endpoint(), "certificate-authority-data": STANDARD.encode(one.authority()),
    });
    let rotated = write_kubeconfig(&cluster, &json!({ "token": token }));
    stage.admin.apply(secret(namespace, &rotated)).await.unwrap();
    let second = commit(
        &repository,
        &[("b.yaml", &in_shop("c", "1")), ("a.yaml", &in_shop("a", "2"))],
    )
    .await;
    stage.wait_for_commit((namespace, "app"), &second).await;
    until_there(&one, "a", has_value("2")).await;
    until_there(&one, "b", |object| object.is_none()).await;

    // Another cluster is not accepted in its place.
    stage.admin.apply(secret(namespace, &two.kubeconfig())).await.unwrap();
    let held = stage
        .ready(KUSTOMIZATION, (namespace, "app"), "False", "ClusterChanged")
        .await;
    assert!(held.contains("tenure.dev/cluster: \"new sha256:"), "{held}");
    assert!(two.admin.get(CONFIG_MAP, ("shop", "a")).await.unwrap().is_none());
    assert!(has_value("2")(
        one.admin.get(CONFIG_MAP, ("shop", "a")).await.unwrap().as_ref()
    ));
    is_nowhere(&stage, namespace, &[&token]).await;

    // With the original cluster it continues, and later removes its applied objects.
    stage.admin.apply(secret(namespace, &rotated)).await.unwrap();
    stage
        .ready(KUSTOMIZATION, (namespace, "app"), "True", "ReconciliationSucceeded")
        .await;
    stage.admin.delete(KUSTOMIZATION, (namespace, "app")).await.unwrap();
    allow_deletion(&stage, (namespace, "app")).await;
    stage
        .wait_for(KUSTOMIZATION, (namespace, "app"), |object| object.is_none())
        .await;
    until_there(&one, "a", |object| object.is_none()).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfig_reaches_only_its_own_cluster() {
    let namespace = "elsewhere-b";
    let one = ServedCluster::start().await.unwrap();
    let stage = Stage::set_allowing(namespace, &[one.endpoint()]).await;
    let mut stage = stage.planting(&[]).await;
    let canary = stage.folder().join("canary");
    std::fs::write(&canary, "canary-of-a-file").unwrap();
    for value in ["canary-of-a-file", "canary-of-a-token"] {
        stage.listen_beside_secrets(value);
    }
    stage
        .repository(
            namespace,
            "app",
            &[("ns.yaml", NAMESPACE), ("a.yaml", &in_shop("a", "1"))],
        )
        .await;
    stage.kustomization(namespace, "app", "app", by_kubeconfig()).await;
    let authority = STANDARD.encode(one.authority());
    let port = one.endpoint().rsplit_once(':').unwrap().1.to_owned();
    let touched = stage.artifacts().with_file_name("touched");
    let token = json!({ "token": "canary-of-a-token" });
    let server = |server: &str| json!({ "server": server, "certificate-authority-data": authority });
    let own = server(&one.endpoint());
    let laid = |mut base: Value, key: &str, value: Value| {
        base[key] = value;
        base
    };
    let attacks = [
        (
            own.clone(),
            json!({ "exec": { "apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [touched] } }),
            "user.exec is refused",
        ),
        (own.clone(), json!({ "tokenFile": canary }), "user.tokenFile is refused"),
        (
            own.clone(),
            json!({ "client-certificate": canary, "client-key": canary }),
            "user.client-certificate is refused",
        ),
        (
            own.clone(),
            json!({ "auth-provider": { "name": "oidc" } }),
            "user.auth-provider is refused",
        ),
        (
            own.clone(),
            laid(token.clone(), "as", json!("system:admin")),
            "user.as is refused",
        ),
        (
            laid(own.clone(), "certificate-authority", json!(canary)),
            token.clone(),
            "cluster.certificate-authority is refused",
        ),
        (
            laid(own.clone(), "insecure-skip-tls-verify", json!(true)),
            token.clone(),
            "insecure-skip-tls-verify is refused",
        ),
        (
            laid(own.clone(), "proxy-url", json!("http://169.254.169.254")),
            token.clone(),
            "cluster.proxy-url is refused",
        ),
        (
            json!({ "server": format!("http://127.0.0.1:{port}") }),
            token.clone(),
            "must begin with https://",
        ),
        // 127.0.0.1 with this port is allowed. localhost with the same port is another endpoint.
        (server(&format!("https://localhost:{port}")), token.clone(), "loopback"),
        (server("https://169.254.169.254"), token.clone(), "metadata"),
        (server("https://[::ffff:10.0.0.1]:6443"), token.clone(), "private"),
        // Not verified by the system's authorities, nor by another authority.
        (json!({ "server": one.endpoint() }), token.clone(), "UnknownIssuer"),
        (own, token, "does not accept the credentials"),
    ];
    for (cluster, user, expected) in attacks {
        stage
            .admin
            .apply(secret(namespace, &write_kubeconfig(&cluster, &user)))
            .await
            .unwrap();
        let is_reported = |object: Option<&Value>| {
            let ready = object.and_then(|object| condition(object, "Ready"));
            ready.is_some_and(|ready| {
                ready["status"] == "False" && ready["message"].as_str().unwrap().contains(expected)
            })
        };
        stage.wait_for(KUSTOMIZATION, (namespace, "app"), is_reported).await;
        is_nowhere(&stage, namespace, &["canary-of"]).await;
    }
    assert!(!touched.exists(), "a program was run");
    assert!(one.admin.get(CONFIG_MAP, ("shop", "a")).await.unwrap().is_none());
    // The control.
    stage.admin.apply(secret(namespace, &one.kubeconfig())).await.unwrap();
    stage
        .ready(KUSTOMIZATION, (namespace, "app"), "True", "ReconciliationSucceeded")
        .await;
    until_there(&one, "a", has_value("1")).await;
    stage.shut_down().await;
}

/// A malicious server that claims to be a cluster harms only its own Kustomization. The server leads to no other address, and none of its input is
/// repeated. A neighbour's commits are applied meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_cluster_harms_only_its_own_kustomization() {
    let (namespace, near) = ("elsewhere-c", "elsewhere-near");
    let canary = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let canary_port = canary.local_addr().unwrap().port();
    let hostile = Webhook::start(json!({})).await.unwrap();
    let endpoint = format!("https://127.0.0.1:{}", hostile.port);
    // The canary's address is allowed too: so it is not the policy that prevents a connection there.
    let allowed = [endpoint.clone(), format!("https://127.0.0.1:{canary_port}")];
    let mut stage = Stage::set_allowing(namespace, &allowed).await.planting(&[]).await;
    stage.listen_beside_secrets("canary-of-a-token");
    stage.namespace(near).await;
    let files = [("ns.yaml", NAMESPACE), ("a.yaml", &*in_shop("a", "1"))];
    stage.repository(namespace, "app", &files).await;
    let neighbour = stage
        .repository(near, "near", &[("a.yaml", &config_map("a", "0"))])
        .await;
    stage.kustomization(near, "near", "near", json!({})).await;
    let mut spec = by_kubeconfig();
    spec["timeout"] = json!("2s");
    stage.kustomization(namespace, "app", "app", spec).await;

    let redirect = json!({ "status": 307, "headers": { "location": format!("https://127.0.0.1:{canary_port}/api") } });
    let large = json!({ "body": "x".repeat(9 << 20) });
    let quotes = json!({ "status": 403, "body": {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "Bearer canary-of-a-token \u{1b}[31m may not",
    } });
    let escapes = json!({ "status": 403, "body": {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": format!("never\u{1b}[31m {}", "long ".repeat(10_000)),
    } });
    let attacks = [
        (redirect, "307"),
        (large, "longer than 8388608 bytes"),
        (quotes, "not repeated"),
        (escapes, "never"),
        (json!({ "body": "{" }), "can't be read: EOF"),
        (json!({ "hang": true }), "timeout"),
    ];
    // One token for all: an attempt may come between an answer and the next change, and only the token that is sent can be removed from an answer.
    let cluster = json!({ "server": endpoint, "certificate-authority-data": hostile.ca });
    let kubeconfig = write_kubeconfig(&cluster, &json!({ "token": "canary-of-a-token" }));
    for (number, (answer, expected)) in attacks.into_iter().enumerate() {
        for path in ["/api", "/apis"] {
            hostile.answer(path, answer.clone());
        }
        stage.admin.apply(secret(namespace, &kubeconfig)).await.unwrap();
        let ask = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": number.to_string() } } });
        stage.admin.patch(KUSTOMIZATION, (namespace, "app"), ask).await.unwrap();
        let kustomization = stage
            .wait_for(KUSTOMIZATION, (namespace, "app"), |object| {
                let ready = object.and_then(|object| condition(object, "Ready"));
                ready.is_some_and(|ready| {
                    ready["status"] == "False" && ready["message"].as_str().unwrap().contains(expected)
                })
            })
            .await
            .unwrap();
        let message = condition(&kustomization, "Ready").unwrap()["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(message.len() < 4096 && !message.contains('\u{1b}'), "{message}");
        is_nowhere(&stage, namespace, &["canary-of"]).await;
        let value = (number + 1).to_string();
        let applied = commit(&neighbour, &[("a.yaml", &config_map("a", &value))]).await;
        stage.wait_for_commit((near, "near"), &applied).await;
    }
    let nobody = tokio::time::timeout(std::time::Duration::ZERO, canary.accept()).await;
    assert!(nobody.is_err(), "a redirect was followed");
    stage.shut_down().await;
}
