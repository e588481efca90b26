//! `tenure diff`: its output, its identity, its errors for users without rights, and that it writes nothing.

use std::path::Path;

use serde_json::{Value, json};

use crate::commands::{Place, apply};

const KUSTOMIZATION: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/shop/kustomizations/web";

/// Creates a namespace with a Kustomization and its account, which may only write ConfigMaps and Secrets there.
async fn prepare(data: &Path) {
    let metadata = |name: &str| json!({"name": name, "namespace": "shop"});
    let rbac = "rbac.authorization.k8s.io/v1";
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop";
    for (object, path) in [
        (
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
            "/api/v1/namespaces/shop".to_owned(),
        ),
        (
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("deployer")}),
            "/api/v1/namespaces/shop/serviceaccounts/deployer".to_owned(),
        ),
        (
            json!({"apiVersion": rbac, "kind": "Role", "metadata": metadata("deployer"),
                   "rules": [{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["*"]}]}),
            format!("{roles}/roles/deployer"),
        ),
        (
            json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata("deployer"),
                   "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deployer"},
                   "subjects": [{"kind": "ServiceAccount", "name": "deployer", "namespace": "shop"}]}),
            format!("{roles}/rolebindings/deployer"),
        ),
        (
            json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": metadata("web"),
                   "spec": {"interval": "1h", "prune": true, "suspend": true, "serviceAccountName": "deployer", "path": "./elsewhere",
                            "targetNamespace": "shop", "sourceRef": {"kind": "GitRepository", "name": "none"}}}),
            KUSTOMIZATION.to_owned(),
        ),
    ] {
        apply(data, object, &path).await;
    }
}

fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: {value}\n")
}

/// Applies an object as if this Kustomization had applied it.
async fn apply_as_controller(data: &Path, kind: &str, name: &str, fields: Value) {
    let plural = format!("{}s", kind.to_lowercase());
    let labels = json!({"kustomize.toolkit.fluxcd.io/name": "web", "kustomize.toolkit.fluxcd.io/namespace": "shop"});
    let mut object =
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "shop", "labels": labels}});
    object
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let client = crate::process::client(data).await;
    let path = format!("/api/v1/namespaces/shop/{plural}/{name}?fieldManager=kustomize-controller&force=true");
    let request = http::Request::patch(path)
        .header("content-type", "application/apply-patch+yaml")
        .body(object.to_string().into_bytes())
        .unwrap();
    client.request::<Value>(request).await.unwrap();
}

async fn list(data: &Path, plural: &str) -> Vec<(String, String)> {
    let client = crate::process::client(data).await;
    let request = http::Request::get(format!("/api/v1/namespaces/shop/{plural}"))
        .body(Vec::new())
        .unwrap();
    let found: Value = client.request(request).await.unwrap();
    let text = |object: &Value, path: &str| {
        object
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let items = found["items"].as_array().unwrap().iter();
    items
        .map(|object| {
            (
                text(object, "/metadata/name"),
                text(object, "/metadata/resourceVersion"),
            )
        })
        .collect()
}

#[tokio::test]
async fn diff_shows_changes_and_writes_nothing() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    prepare(&data).await;
    let folder = place.folder.path().join("files");
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("same.yaml", &config_map("same", "one"));
    let path = folder.to_str().unwrap();
    let diff = ["diff", "ks/web", "-n", "shop", "--path", path];

    apply_as_controller(&data, "ConfigMap", "same", json!({"data": {"value": "one"}})).await;
    assert_eq!(String::from_utf8(place.run(&diff).stdout).unwrap(), "");
    place.check(&diff, 0, &[], &[]);

    write("changes.yaml", &config_map("changes", "two"));
    write("comes.yaml", &config_map("comes", "one"));
    write(
        "secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: secret\nstringData:\n  password: hunter3\n  same: hunter2\n",
    );
    apply_as_controller(&data, "ConfigMap", "changes", json!({"data": {"value": "one"}})).await;
    apply_as_controller(&data, "ConfigMap", "goes", json!({"data": {"value": "hunter2"}})).await;
    let values = json!({"data": {"password": "aHVudGVyMg==", "same": "aHVudGVyMg=="}});
    apply_as_controller(&data, "Secret", "secret", values).await;
    let inventory = json!({"status": {"inventory": {"entries": [{"id": "shop_goes__ConfigMap", "v": "v1"}]}}});
    let client = crate::process::client(&data).await;
    let request = http::Request::patch(format!("{KUSTOMIZATION}/status"))
        .header("content-type", "application/merge-patch+json")
        .body(inventory.to_string().into_bytes())
        .unwrap();
    client.request::<Value>(request).await.unwrap();
    let before = (list(&data, "configmaps").await, list(&data, "secrets").await);
    let expected = [
        "~ ConfigMap/shop/changes would be changed: data.value (changes.yaml:6)",
        "-  value: one\n+  value: two",
        "+ ConfigMap/shop/comes would be created (comes.yaml:1)",
        "- ConfigMap/shop/goes would be deleted",
        "~ Secret/shop/secret would be changed: data.password (secret.yaml:6)",
        "-  password: (hidden, before)\n+  password: (hidden, after)",
    ];
    place.check(&diff, 1, &expected, &[]);
    let output = place.run(&diff);
    let everything = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        !everything.contains("hunter") && !everything.contains("aHVudGVy"),
        "{everything}"
    );
    assert!(!everything.contains("ConfigMap/shop/same"), "{everything}");

    let report: Value = serde_json::from_slice(&place.run(&[&diff[..], &["-o", "json"]].concat()).stdout).unwrap();
    let changes: Vec<&str> = report
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["change"].as_str().unwrap())
        .collect();
    assert_eq!(
        changes.iter().filter(|change| **change == "changed").count(),
        2,
        "{report}"
    );
    assert_eq!(
        (changes.contains(&"created"), changes.contains(&"pruned")),
        (true, true),
        "{report}"
    );
    assert!(!report.to_string().contains("hunter"), "{report}");
    assert_eq!(
        (list(&data, "configmaps").await, list(&data, "secrets").await),
        before,
        "nothing was written"
    );

    // The plan uses the account's rights only, for every user.
    write(
        "role.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  selector: {matchLabels: {a: b}}\n  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}\n",
    );
    place.check(
        &diff,
        3,
        &[],
        &["system:serviceaccount:shop:deployer", "deployments", "hint:"],
    );
    write(
        "role.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: planted\n  namespace: kube-system\n",
    );
    place.check(&diff, 1, &["ConfigMap/shop/planted would be created"], &[]);
    write("role.yaml", "not: [an object\n");
    place.check(&diff, 3, &[], &["BuildFailed", "role.yaml"]);
    place.check(&["diff", "ks/none", "-n", "shop", "--path", path], 3, &[], &["none"]);
    place.check(
        &["diff", "ks/web", "-n", "shop", "--path", "/nonexistent"],
        2,
        &[],
        &["/nonexistent"],
    );
    place.check(
        &["diff", "gitrepo/web", "-n", "shop", "--path", path],
        2,
        &[],
        &["not rendered from a folder", "tenure get ks"],
    );
}

/// The command plans every Kustomization of the source whose working copy the folder is, each with its own path in the folder.
#[tokio::test]
async fn a_surface_is_looked_at_whole() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    let namespace = "tenure-system";
    let rbac = "rbac.authorization.k8s.io";
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    for (object, path) in [
        (
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("deployer")}),
            "/api/v1/namespaces/tenure-system/serviceaccounts/deployer",
        ),
        (
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata("deployer"),
                   "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"},
                   "subjects": [{"kind": "ServiceAccount", "name": "deployer", "namespace": namespace}]}),
            "/apis/rbac.authorization.k8s.io/v1/namespaces/tenure-system/rolebindings/deployer",
        ),
        (
            json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": metadata("shop"),
                   "spec": {"serviceAccountName": "deployer", "suspend": true, "sources": [
                       {"name": "one", "url": "http://git.example/one", "targetNamespace": namespace,
                        "paths": [{"name": "a", "path": "./a"}, {"name": "b", "path": "/b"}]},
                       {"name": "two", "url": "http://git.example/two", "path": "./b", "targetNamespace": namespace}]}}),
            "/apis/tenure.dev/v1alpha1/namespaces/tenure-system/surfaces/shop",
        ),
    ] {
        apply(&data, object, path).await;
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    let kustomizations = ["get", "ks", "-n", namespace, "-o", "name"];
    while place.run(&kustomizations).stdout.split(|byte| *byte == b'\n').count() < 4 {
        assert!(std::time::Instant::now() < deadline, "{:?}", place.run(&kustomizations));
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let folder = place.folder.path().join("files");
    for name in ["a", "b"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        std::fs::write(folder.join(name).join("map.yaml"), config_map(name, "one")).unwrap();
    }
    let path = folder.to_str().unwrap();
    let diff = ["diff", "surface/shop", "-n", namespace, "--path", path];
    place.check(
        &diff,
        2,
        &[],
        &["--source is missing", "--source NAME, one of one, two"],
    );
    let expected = [
        "+ ConfigMap/tenure-system/a would be created",
        "+ ConfigMap/tenure-system/b would be created",
    ];
    place.check(&[&diff[..], &["--source", "one"]].concat(), 1, &expected, &[]);
    let output = place.run(&[&diff[..], &["--source", "two"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(expected[1]) && !text.contains(expected[0]), "{text}");
    std::fs::remove_dir_all(folder.join("a")).unwrap();
    place.check(&[&diff[..], &["--source", "one"]].concat(), 2, &[], &["No such file"]);
    place.check(
        &[
            "diff",
            "ks/shop-two",
            "-n",
            namespace,
            "--path",
            path,
            "--source",
            "two",
        ],
        2,
        &[],
        &["--source"],
    );
}

#[tokio::test]
async fn a_user_without_impersonation_learns_the_missing_right() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    prepare(&data).await;
    let folder = place.folder.path().join("files");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("a.yaml"), config_map("a", "one")).unwrap();
    let text = std::fs::read_to_string(place.kubeconfig()).unwrap();
    let mut kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    let token = {
        apply(
            &data,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "alice", "namespace": "shop"}}),
            "/api/v1/namespaces/shop/serviceaccounts/alice",
        )
        .await;
        let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
            kube::Api::namespaced(crate::process::client(&data).await, "shop");
        let request = serde_json::from_value(json!({"spec": {}})).unwrap();
        let issued = accounts
            .create_token_request("alice", &Default::default(), &request)
            .await
            .unwrap();
        issued.status.unwrap().token
    };
    kubeconfig.auth_infos[0].auth_info = Some(serde_json::from_value(json!({"token": token})).unwrap());
    let file = place.folder.path().join("alice");
    std::fs::write(&file, serde_json::to_string(&kubeconfig).unwrap()).unwrap();
    let (path, file) = (folder.to_str().unwrap(), file.to_str().unwrap());
    let diff = ["diff", "ks/web", "-n", "shop", "--path", path, "--kubeconfig", file];

    let grant = async |rules: Value| {
        let rbac = "rbac.authorization.k8s.io/v1";
        let role = json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "looks"}, "rules": rules});
        apply(&data, role, "/apis/rbac.authorization.k8s.io/v1/clusterroles/looks").await;
        let binding = json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "looks"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"},
            "subjects": [{"kind": "ServiceAccount", "name": "alice", "namespace": "shop"}]});
        apply(
            &data,
            binding,
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/looks",
        )
        .await;
    };
    let reads =
        json!({"apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": ["get"]});
    // The namespace names no Tenant, so no right to Tenants is needed.
    let whose = json!({"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["shop"], "verbs": ["get"]});
    let impersonates = json!({"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["deployer"], "verbs": ["impersonate"]});
    let mints = json!({"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["deployer"], "verbs": ["create"]});
    place.check(&diff, 3, &[], &["kustomizations", "Forbidden"]);
    grant(json!([reads])).await;
    place.check(
        &diff,
        3,
        &[],
        &[
            "the tenant of namespace shop is unknown",
            "you may not get namespace shop",
            "the verb get on this namespace",
        ],
    );
    grant(json!([reads, whose])).await;
    let missing = [
        "you may not look as system:serviceaccount:shop:deployer",
        "impersonate on serviceaccounts",
    ];
    place.check(&diff, 3, &[], &missing);
    for way in [impersonates, mints] {
        grant(json!([reads, whose, way])).await;
        place.check(&diff, 1, &["+ ConfigMap/shop/a would be created"], &[]);
    }
}
