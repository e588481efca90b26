//! `tenure tree`, `trace` and `export`: their output about a tenant's Surface for each user, and forged data that they must reject.

use std::path::Path;

use serde_json::{Value, json};
use tenure_test_ports::reserve_port;

use crate::commands::{Place, apply};
use crate::process::client;

/// A text that must never be printed by default.
pub(crate) const CANARY: &str = "canary-5af1";

/// Starts a tenant `shop` with a reconciled Surface `web` from a folder, and a Secret with credentials that the Surface names.
async fn set() -> Place {
    set_with(tempfile::tempdir().unwrap(), &[]).await
}

/// Starts the same tenant in a given folder, with more flags.
pub(crate) async fn set_with(folder: tempfile::TempDir, more: &[&str]) -> Place {
    let files = folder.path().join("files");
    std::fs::create_dir_all(files.join("apps")).unwrap();
    let write = |name: &str, text: String| std::fs::write(files.join(name), text).unwrap();
    write(
        "apps/map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: map\ndata:\n  a: b\n".to_owned(),
    );
    write(
        "apps/secret.yaml",
        format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: hidden\nstringData:\n  password: {CANARY}\n"),
    );
    write(
        "apps/deployment.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 1\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec: {containers: [{name: a, image: a}]}\n".to_owned(),
    );
    let port = reserve_port().to_string();
    let repository = format!("web={}", files.display());
    let allowed = format!("http://127.0.0.1:{port}");
    let mut flags = vec![
        "--workload-status",
        "--repository",
        repository.as_str(),
        "--repository-port",
        port.as_str(),
        "--allow-source",
        allowed.as_str(),
    ];
    flags.extend(more);
    let place = Place::with(folder, &flags);
    let data = place.folder.path().join("data");
    // Only Tenure uses the GitOps account.
    let metadata = json!({"name": "shop", "annotations": {"tenure.dev/gitops-account": "exclusive"}});
    let tenant = json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": metadata,
        "spec": {"owners": [{"kind": "User", "name": "alice"}]}});
    apply(&data, tenant, "/apis/capsule.clastix.io/v1beta2/tenants/shop").await;
    eventually(
        &place,
        &["get", "tenant", "shop", "-o", "json"],
        "ReconciliationSucceeded",
    )
    .await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "credentials", "namespace": "shop"},
        "stringData": {"username": "git", "password": CANARY}});
    apply(&data, secret, "/api/v1/namespaces/shop/secrets/credentials").await;
    let surface = json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"sources": [{"name": "web", "url": format!("http://127.0.0.1:{port}/web.git"), "interval": "1h",
            "path": "./apps", "targetNamespace": "shop", "secretRef": {"name": "credentials"}}]}});
    apply(&data, surface, "/apis/tenure.dev/v1alpha1/namespaces/shop/surfaces/web").await;
    eventually(
        &place,
        &["get", "surface", "web", "-n", "shop", "-o", "json"],
        "\"ready\": true",
    )
    .await;
    place
}

pub(crate) async fn eventually(place: &Place, arguments: &[&str], word: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    loop {
        let output = place.run(arguments);
        if String::from_utf8_lossy(&output.stdout).contains(word) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{output:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn text(place: &Place, arguments: &[&str]) -> String {
    let output = place.run(arguments);
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Writes a kubeconfig of an owner of the tenant. The role of the test lets this user read the namespace without its Secrets.
pub(crate) fn impersonate(place: &Place, user: &str) -> std::path::PathBuf {
    let text = std::fs::read_to_string(place.kubeconfig()).unwrap();
    let mut kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    for named in &mut kubeconfig.auth_infos {
        named.auth_info.as_mut().unwrap().impersonate = Some(user.to_owned());
    }
    let file = place.folder.path().join(user);
    std::fs::write(&file, serde_json::to_string(&kubeconfig).unwrap()).unwrap();
    file
}

pub(crate) async fn grant(data: &Path, user: &str, role: &str) {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": user, "namespace": "shop"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/{user}");
    apply(data, binding, &path).await;
}

#[tokio::test]
async fn a_tree_and_the_way_back_up() {
    let place = set().await;
    let data = place.folder.path().join("data");
    let tree = ["tree", "surface/web", "-n", "shop"];
    let expected = [
        "Surface/shop/web  Ready",
        "├── GitRepository/shop/web-web  Ready",
        "└── Kustomization/shop/web-web  Ready  ReconciliationSucceeded: Applied revision",
        "    ├── Secret/shop/hidden  Ready",
        "    ├── ConfigMap/shop/map  Ready",
        "    └── Deployment/shop/web  Ready",
    ];
    place.check(&tree, 0, &expected, &[]);
    assert!(!text(&place, &tree).contains(CANARY));
    let report: Value = serde_json::from_slice(&place.run(&[&tree[..], &["-o", "json"]].concat()).stdout).unwrap();
    assert_eq!(
        report["children"][1]["children"].as_array().unwrap().len(),
        3,
        "{report:#}"
    );
    assert_eq!(report["children"][1]["children"][2]["state"], "Ready", "{report:#}");
    let compact = text(&place, &[&tree[..], &["--compact"]].concat());
    assert!(
        compact.contains("Kustomization/shop/web-web") && !compact.contains("ConfigMap"),
        "{compact}"
    );
    place.check(
        &["tree", "configmap/map", "-n", "shop"],
        2,
        &[],
        &["a ConfigMap has no results to show", "tenure trace"],
    );
    place.check(&["tree", "ks/none", "-n", "shop"], 1, &[], &["does not exist"]);

    let trace = ["trace", "deployment/web", "-n", "shop"];
    let expected = [
        "Deployment/shop/web is managed by Kustomization/shop/web-web.",
        "Applied by:           Kustomization/shop/web-web",
        "  Applied as:         system:serviceaccount:shop:shop-gitops",
        "  Applied revision:   main@sha1:",
        "From:                 GitRepository/shop/web-web",
        "Generated by:         Surface/shop/web",
        "Whose:                namespace shop belongs to Tenant shop",
    ];
    place.check(&trace, 0, &expected, &[]);
    place.check(&["trace", "secret/hidden", "-n", "shop"], 0, &["is managed by"], &[]);
    assert!(!text(&place, &["trace", "secret/hidden", "-n", "shop", "-o", "yaml"]).contains(CANARY));
    place.check(
        &["trace", "sa/default", "-n", "shop"],
        1,
        &["nothing here manages it"],
        &[],
    );
    place.check(&["trace", "deployment/none", "-n", "shop"], 1, &[], &["does not exist"]);

    // Copied labels prove nothing.
    let labels =
        json!({"kustomize.toolkit.fluxcd.io/name": "web-web", "kustomize.toolkit.fluxcd.io/namespace": "shop"});
    let forged = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "forged", "namespace": "default", "labels": labels}});
    apply(&data, forged, "/api/v1/namespaces/default/configmaps/forged").await;
    let trace = ["trace", "configmap/forged", "-n", "default"];
    place.check(
        &trace,
        1,
        &["whose inventory doesn't list it", "although its labels name a manager"],
        &[],
    );
    // A forged inventory with another tenant's object proves nothing either. Nothing reconciles the forged object meanwhile.
    let kustomization = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/shop/kustomizations/forger";
    let forger = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "forger", "namespace": "shop"},
        "spec": {"interval": "1h", "prune": true, "suspend": true, "sourceRef": {"kind": "GitRepository", "name": "none"}}});
    apply(&data, forger, kustomization).await;
    for namespace in ["default", "shop"] {
        let labels =
            json!({"kustomize.toolkit.fluxcd.io/name": "forger", "kustomize.toolkit.fluxcd.io/namespace": "shop"});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "listed", "namespace": namespace, "labels": labels}});
        apply(
            &data,
            object,
            &format!("/api/v1/namespaces/{namespace}/configmaps/listed"),
        )
        .await;
    }
    let status = json!({"status": {"inventory": {"entries": [
        {"id": "default_listed__ConfigMap", "v": "v1"}, {"id": "shop_listed__ConfigMap", "v": "v1"}]}}});
    let request = http::Request::patch(format!("{kustomization}/status"))
        .header("content-type", "application/merge-patch+json")
        .body(status.to_string().into_bytes())
        .unwrap();
    client(&data).await.request::<Value>(request).await.unwrap();
    place.check(
        &["trace", "configmap/listed", "-n", "default"],
        1,
        &["but this entry doesn't count"],
        &[],
    );
    // The control: the same inventory, with an object that its namespace may apply.
    place.check(
        &["trace", "configmap/listed", "-n", "shop"],
        0,
        &["is managed by Kustomization/shop/forger"],
        &[],
    );
}

#[tokio::test]
async fn unreadable_objects_are_reported() {
    let place = set().await;
    let data = place.folder.path().join("data");
    // A user that may read everything in the namespace except Secrets.
    grant(&data, "victor", "view").await;
    let victor = impersonate(&place, "victor");
    let victor = victor.to_str().unwrap();
    let tree = ["tree", "surface/web", "-n", "shop", "--kubeconfig", victor];
    place.check(
        &tree,
        0,
        &[
            "Secret/shop/hidden  Forbidden",
            "cannot get resource \"secrets\"",
            "ConfigMap/shop/map  Ready",
        ],
        &["you may not read one object"],
    );
    // He may not read the Tenant either.
    let trace = ["trace", "deployment/web", "-n", "shop", "--kubeconfig", victor];
    place.check(
        &trace,
        0,
        &[
            "is managed by",
            "the tenant of namespace shop is unknown: you may not get Tenant shop",
            "its right to apply there is unknown",
        ],
        &[],
    );
    let trace = ["trace", "secret/hidden", "-n", "shop", "--kubeconfig", victor];
    place.check(&trace, 3, &[], &["cannot get resource \"secrets\""]);
    // A user that may read ConfigMaps, and not the Kustomization that applied them.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "maps"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
    apply(&data, role, "/apis/rbac.authorization.k8s.io/v1/clusterroles/maps").await;
    grant(&data, "mary", "maps").await;
    let mary = impersonate(&place, "mary");
    let trace = [
        "trace",
        "configmap/map",
        "-n",
        "shop",
        "--kubeconfig",
        mary.to_str().unwrap(),
    ];
    place.check(
        &trace,
        3,
        &["which can't be read", "it is unknown whether anything here manages it"],
        &[],
    );
    let export = [
        "export",
        "surface/web",
        "-n",
        "shop",
        "--with-credentials",
        "--kubeconfig",
        victor,
    ];
    place.check(
        &export,
        3,
        &["kind: Surface"],
        &["secrets \"credentials\" is forbidden"],
    );
    let export = ["export", "--all", "-n", "shop", "--kubeconfig", victor];
    place.check(&export, 3, &["kind: Surface"], &["you may not list tenants"]);
}

#[tokio::test]
async fn exported_objects_can_be_applied_again() {
    let place = set().await;
    let data = place.folder.path().join("data");
    let forbidden = [
        "status:",
        "managedFields",
        "resourceVersion",
        "uid:",
        "creationTimestamp",
        "generation:",
        "finalizers",
    ];
    let check = |arguments: &[&str], kinds: &[&str]| {
        let output = place.run(arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{arguments:?}: {text}");
        for word in forbidden {
            assert!(!text.contains(word), "{arguments:?} prints {word}: {text}");
        }
        let found: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
        assert_eq!(found, kinds, "{arguments:?}: {text}");
        text
    };
    let all = check(&["export", "--all", "-n", "shop"], &["Tenant", "Surface"]);
    assert!(!all.contains(CANARY), "{all}");
    place.check(
        &["export", "--all", "-n", "shop"],
        0,
        &[],
        &["left out: 2 that Surfaces generate"],
    );
    let named = check(&["export", "gitrepo/web-web", "-n", "shop"], &["GitRepository"]);
    assert!(named.contains("web.git"), "{named}");
    let with = check(
        &["export", "surface/web", "-n", "shop", "--with-credentials"],
        &["Surface", "Secret"],
    );
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, CANARY);
    assert!(
        with.contains(&encoded),
        "the control: who asks for values gets them: {with}"
    );
    assert!(!all.contains(&encoded) && !named.contains(&encoded));

    // The export creates the same objects again.
    let client = client(&data).await;
    let surface = "/apis/tenure.dev/v1alpha1/namespaces/shop/surfaces/web";
    let get = async |path: &str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        client.request::<Value>(request).await.unwrap()
    };
    let before = get(surface).await;
    let document = all
        .split("---\n")
        .find(|document| document.contains("kind: Surface"))
        .unwrap();
    let request = http::Request::delete(surface).body(Vec::new()).unwrap();
    client.request::<Value>(request).await.unwrap();
    let request = http::Request::patch(format!("{surface}?fieldManager=test&force=true"))
        .header("content-type", "application/apply-patch+yaml")
        .body(document.as_bytes().to_vec())
        .unwrap();
    client.request::<Value>(request).await.unwrap();
    assert_eq!(get(surface).await["spec"], before["spec"]);

    place.check(
        &["export", "ks", "-n", "shop"],
        2,
        &[],
        &["no object is named", "--all"],
    );
    place.check(&["export", "ks/web-web", "--all", "-n", "shop"], 2, &[], &["--all"]);
    place.check(
        &["export", "secret/credentials", "-n", "shop"],
        2,
        &[],
        &["nothing reconciles secrets", "--with-credentials"],
    );
    place.check(&["export", "ks/none", "-n", "shop"], 1, &[], &["not found"]);
}
