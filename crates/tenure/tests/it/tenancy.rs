//! An owner on the embedded control plane: a created namespace belongs to their tenant at once, and forbidden writes are denied by their identity.

use std::path::Path;

use http::{Method, Request};
use serde_json::{Value, json};

use crate::commands::{Place, apply};
use crate::process::client;

const NAMESPACES: &str = "/api/v1/namespaces";

/// Sends a request as a user; returns the answer, or the code and message.
async fn ask(data: &Path, user: &str, method: Method, path: &str, body: &Value) -> Result<Value, (u16, String)> {
    let content = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content)
        .header("impersonate-user", user)
        .body(if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        })
        .unwrap();
    match client(data).await.request::<Value>(request).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(other) => panic!("{path}: {other}"),
    }
}

fn namespace(name: &str, label: Option<&str>) -> Value {
    let mut object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    if let Some(tenant) = label {
        object["metadata"]["labels"] = json!({ "capsule.clastix.io/tenant": tenant });
    }
    object
}

async fn make_tenant(data: &Path, name: &str, spec: Value) {
    let tenant = json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": name }, "spec": spec
    });
    apply(
        data,
        tenant,
        &format!("/apis/capsule.clastix.io/v1beta2/tenants/{name}"),
    )
    .await;
}

/// Reads as an administrator until the answer is as expected.
async fn wait_until(data: &Path, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    loop {
        let request = Request::get(path).body(Vec::new()).unwrap();
        let found = client(data)
            .await
            .request::<Value>(request)
            .await
            .unwrap_or(Value::Null);
        if holds(&found) {
            return found;
        }
        assert!(std::time::Instant::now() < deadline, "{path}: {found:#}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Repeats a read until it succeeds, because RBAC learns of a role a moment after the write.
async fn until_read(ask: impl AsyncFn() -> Result<Value, (u16, String)>) -> Value {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    loop {
        match ask().await {
            Ok(found) => return found,
            Err(refused) => assert!(std::time::Instant::now() < deadline, "{refused:?}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_make_their_own_namespaces_and_no_others() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    let owned = |name: &str| json!([{ "kind": "User", "name": name }]);
    let spec = json!({ "owners": owned("alice"), "namespaceOptions": { "quota": 3 }, "forceTenantPrefix": true });
    make_tenant(&data, "blue", spec).await;
    make_tenant(
        &data,
        "red",
        json!({ "owners": owned("rita"), "preventDeletion": true }),
    )
    .await;
    for (tenant, user) in [("blue", "alice"), ("red", "rita")] {
        let path = format!("/apis/capsule.clastix.io/v1beta2/tenants/{tenant}");
        let is_ready = |tenant: &Value| tenant["status"]["conditions"][0]["status"] == "True";
        let ready = wait_until(&data, &path, is_ready).await;
        // The controllers implement all of the Tenant's fields.
        let message = ready["status"]["conditions"][0]["message"].as_str().unwrap().to_owned();
        assert!(!message.contains("without effect"), "{message}");
        let binding =
            format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/capsule:{tenant}:namespace-provisioner");
        let binding = wait_until(&data, &binding, |binding| binding["subjects"].is_array()).await;
        assert_eq!(binding["subjects"][0]["name"], user);
    }

    // Owners get their own Tenant, and can't list Tenants.
    let tenants = "/apis/capsule.clastix.io/v1beta2/tenants";
    let view = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/tenure:blue:view";
    wait_until(&data, view, |binding| binding["subjects"].is_array()).await;
    let read = async |path: &str| ask(&data, "alice", Method::GET, path, &Value::Null).await;
    let blue = until_read(async || read(&format!("{tenants}/blue")).await).await;
    assert_eq!(blue["metadata"]["name"], "blue");
    for path in [tenants.to_owned(), format!("{tenants}/red")] {
        assert_eq!(read(&path).await.unwrap_err().0, 403, "{path}");
    }

    // The owner's new namespace belongs to the tenant: it has the owner's rights, and is in the tenant's status.
    let made = ask(&data, "alice", Method::POST, NAMESPACES, &namespace("blue-dev", None)).await;
    let made = made.unwrap();
    assert_eq!(made["metadata"]["labels"]["capsule.clastix.io/tenant"], "blue");
    // The garbage collector deletes by an ownerReference.
    assert!(made["metadata"]["ownerReferences"].is_null(), "{made}");
    let status = "/apis/capsule.clastix.io/v1beta2/tenants/blue";
    wait_until(&data, status, |tenant| {
        tenant["status"]["namespaces"] == json!(["blue", "blue-dev"])
    })
    .await;
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "hers" } });
    let path = "/api/v1/namespaces/blue-dev/configmaps";
    let mut written = ask(&data, "alice", Method::POST, path, &map).await;
    for _ in 0..200 {
        if written.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        written = ask(&data, "alice", Method::POST, path, &map).await;
    }
    written.unwrap();

    // Forbidden writes, each with a hint.
    let refused: [(&str, Option<&str>, &str); 5] = [
        ("dev", None, "name it blue-dev (namespace-options)"),
        (
            "blue-x",
            Some("red"),
            "name a Tenant that lists you in spec.owners (namespace-membership)",
        ),
        ("red-x", Some("red"), "no Tenant of this name has it as an owner"),
        ("kube-mine", None, "can't belong to a tenant"),
        ("tenure-system", None, "can't belong to a tenant"),
    ];
    for (name, label, expected) in refused {
        let answer = ask(&data, "alice", Method::POST, NAMESPACES, &namespace(name, label)).await;
        let (code, message) = answer.unwrap_err();
        assert_eq!(code, 403, "{name}: {message}");
        assert!(message.contains(expected), "{name}: {message}");
    }
    ask(&data, "alice", Method::POST, NAMESPACES, &namespace("blue-test", None))
        .await
        .unwrap();
    let (_, message) = ask(&data, "alice", Method::POST, NAMESPACES, &namespace("blue-more", None))
        .await
        .unwrap_err();
    assert!(message.contains("has 3 of at most 3 namespaces"), "{message}");
    // An administrator gives the owner the right to change namespaces. With it, the owner can neither release nor take a namespace.
    let rights = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "too-much" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "too-much" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice" }]
    });
    apply(
        &data,
        rights,
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/too-much",
    )
    .await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "too-much" },
        "rules": [{ "apiGroups": [""], "resources": ["namespaces", "namespaces/status", "namespaces/finalize"], "verbs": ["*"] }]
    });
    apply(&data, role, "/apis/rbac.authorization.k8s.io/v1/clusterroles/too-much").await;
    for (name, label) in [
        ("blue-dev", json!("red")),
        ("blue-dev", Value::Null),
        ("red", json!("blue")),
    ] {
        let patch = json!({ "metadata": { "labels": { "capsule.clastix.io/tenant": label } } });
        for part in ["", "/status"] {
            let path = format!("{NAMESPACES}/{name}{part}");
            let (code, message) = ask(&data, "alice", Method::PATCH, &path, &patch).await.unwrap_err();
            assert_eq!(code, 403, "{path}: {message}");
            assert!(
                message.contains("may not change the tenant of namespace"),
                "{path}: {message}"
            );
        }
    }
    let patch = json!({ "metadata": { "labels": { "capsule.clastix.io/tenant": "blue" } } });
    // No user can assign Kubernetes' own namespaces.
    let path = format!("{NAMESPACES}/kube-system");
    let by_owner = ask(&data, "alice", Method::PATCH, &path, &patch).await;
    let by_administrator = as_administrator(&data, &path, &patch).await;
    for answer in [by_owner, by_administrator] {
        let (_, message) = answer.unwrap_err();
        assert!(message.contains("can't belong to a tenant"), "{message}");
    }
    // A protected Tenant can't be deleted.
    let request = Request::delete("/apis/capsule.clastix.io/v1beta2/tenants/red")
        .body(Vec::new())
        .unwrap();
    let error = client(&data).await.request::<Value>(request).await.unwrap_err();
    assert!(error.to_string().contains("set it to false first (tenant)"), "{error}");
}

async fn as_administrator(data: &Path, path: &str, patch: &Value) -> Result<Value, (u16, String)> {
    let request = Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(patch.to_string().into_bytes())
        .unwrap();
    match client(data).await.request::<Value>(request).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(other) => panic!("{path}: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cordoned_tenant_is_frozen_and_exclusive_account_is_protected() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    let spec = json!({ "owners": [{ "kind": "User", "name": "rita", "clusterRoles": ["admin"] }] });
    make_tenant(&data, "red", spec.clone()).await;
    let tenant = "/apis/capsule.clastix.io/v1beta2/tenants/red";
    wait_until(&data, tenant, |tenant| {
        tenant["status"]["conditions"][0]["status"] == "True"
    })
    .await;

    // With Kubernetes' role admin, an owner may also request tokens, start Pods and store tokens in the home namespace.
    let token = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let accounts = "/api/v1/namespaces/red/serviceaccounts/red-gitops/token";
    ask(&data, "rita", Method::POST, accounts, &token).await.unwrap();
    let exclusive = json!({ "metadata": { "annotations": { "tenure.dev/gitops-account": "exclusive" } } });
    as_administrator(&data, tenant, &exclusive).await.unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "thief" },
        "spec": { "serviceAccountName": "red-gitops", "containers": [{ "name": "a", "image": "a" }] }
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": { "name": "thief", "annotations": { "kubernetes.io/service-account.name": "red-gitops" } }
    });
    let takes = [
        (accounts, &token),
        ("/api/v1/namespaces/red/pods", &pod),
        ("/api/v1/namespaces/red/secrets", &secret),
    ];
    for (path, body) in takes {
        let (code, message) = ask(&data, "rita", Method::POST, path, body).await.unwrap_err();
        assert_eq!(code, 403, "{path}: {message}");
        assert!(
            message.contains("use another ServiceAccount (gitops-account)"),
            "{path}: {message}"
        );
    }
    // A Deployment doesn't help either: admission denies its Pods as it denies the owner's. And no user can act in the account's name.
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "spoken" } });
    let maps = "/api/v1/namespaces/red/configmaps";
    let answer = ask(&data, "system:serviceaccount:red:red-gitops", Method::POST, maps, &map).await;
    let (_, message) = answer.unwrap_err();
    assert!(message.contains("this request impersonates it"), "{message}");

    let mut cordoned = spec;
    cordoned["cordoned"] = json!(true);
    make_tenant(&data, "red", cordoned).await;
    wait_until(&data, tenant, |tenant| tenant["status"]["state"] == "Cordoned").await;
    let (_, message) = ask(&data, "rita", Method::POST, maps, &map).await.unwrap_err();
    assert!(message.contains("Tenant red is cordoned"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_quota_counts_across_all_its_namespaces() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    let spec = json!({
        "owners": [{ "kind": "User", "name": "alice", "clusterRoles": ["admin"] }],
        "resourceQuotas": { "items": [{ "hard": { "services": "3" } }] }
    });
    make_tenant(&data, "crew", spec).await;
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/capsule:crew:namespace-provisioner";
    wait_until(&data, binding, |binding| binding["subjects"].is_array()).await;
    ask(&data, "alice", Method::POST, NAMESPACES, &namespace("crew-two", None))
        .await
        .unwrap();
    for namespace in ["crew", "crew-two"] {
        let quota = format!("/api/v1/namespaces/{namespace}/resourcequotas/capsule-crew-0");
        let found = wait_until(&data, &quota, |quota| quota["status"]["used"]["services"] == "0").await;
        assert_eq!(found["spec"]["hard"], json!({ "services": "3" }), "each says the whole");
        let marked = format!("{NAMESPACES}/{namespace}");
        wait_until(&data, &marked, |namespace| {
            namespace["metadata"]["labels"]["tenure.dev/counted"] == "true"
        })
        .await;
        let members = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
        wait_until(&data, &members, |bindings| {
            !bindings["items"].as_array().unwrap_or(&Vec::new()).is_empty()
        })
        .await;
    }
    let tenant = "/apis/capsule.clastix.io/v1beta2/tenants/crew";
    let ready = wait_until(&data, tenant, |tenant| tenant["status"]["size"] == 2).await;
    assert!(!ready.to_string().contains("without effect"), "{ready}");

    let service = |name: &str| json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } });
    // One Service after the other, alternating between the namespaces.
    for (namespace, name) in [("crew", "one"), ("crew-two", "two"), ("crew", "three")] {
        let path = format!("/api/v1/namespaces/{namespace}/services");
        ask(&data, "alice", Method::POST, &path, &service(name)).await.unwrap();
    }
    let path = "/api/v1/namespaces/crew-two/services";
    let refused = ask(&data, "alice", Method::POST, path, &service("four")).await;
    let (code, message) = refused.unwrap_err();
    assert_eq!(code, 403, "{message}");
    assert!(
        message.contains("exceeded quota: Tenant crew, requested: services=1, used: services=3, limited: services=3"),
        "{message}"
    );
}
