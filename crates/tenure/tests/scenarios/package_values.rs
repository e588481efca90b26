//! `tenure values` on any API server: layers, paths, owners, formats, and the rights of the user.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::world::Cluster;

const COZYSTACK: &str = "cozystack.io/v1alpha1";
const RBAC: &str = "rbac.authorization.k8s.io";
const SECRET: &str = "hidden-value";

/// Starts a cluster without controllers, with a Package in three layers.
async fn start() -> Cluster {
    let cluster = Cluster::start_own_with("--packages", "packagevalues.cozystack.io").await;
    let platform = format!("_cluster: {{ host: {SECRET} }}\ncontroller: {{ token: {SECRET} }}\n");
    let component =
        |name: &str| json!({ "name": name, "path": format!("system/{name}"), "install": { "namespace": "ingress" } });
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "ingress" } }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "cozystack-values", "namespace": "ingress" },
            "stringData": { "values.yaml": platform }
        }),
        json!({
            "apiVersion": COZYSTACK, "kind": "PackageSource", "metadata": { "name": "ingress" },
            "spec": { "variants": [{ "name": "default", "components": [component("nginx"), component("dashboard")] }] }
        }),
        json!({
            "apiVersion": COZYSTACK, "kind": "Package", "metadata": { "name": "ingress" },
            "spec": { "components": { "nginx": { "values": {
                "controller": { "replicas": 1, "resources": { "cpu": "1" } }, "images": [{ "name": "a", "tag": "1" }]
            } } } }
        }),
    ] {
        cluster.admin.apply(object).await;
    }
    let values = json!({
        "apiVersion": COZYSTACK, "kind": "PackageValues", "metadata": { "name": "ingress" },
        "spec": { "components": { "nginx": {
            "values": { "controller": { "replicas": 9_007_199_254_740_993_i64 }, "images": [{ "name": "b", "tag": "2" }] },
            "unset": ["/controller/resources"], "lists": [{ "path": "images", "key": "name" }]
        } } }
    });
    // Its plural is its name.
    let resource = ApiResource {
        plural: "packagevalues".to_owned(),
        ..ApiResource::from_gvk(&GroupVersionKind::gvk("cozystack.io", "v1alpha1", "PackageValues"))
    };
    let api: Api<DynamicObject> = Api::all_with(cluster.admin.0.clone(), &resource);
    let (parameters, patch) = (PatchParams::apply("test"), Patch::Apply(&values));
    api.patch("ingress", &parameters, &patch).await.unwrap();
    cluster
}

/// Lets a user get the kinds of Packages with these names, and nothing else.
async fn allow_reads(cluster: &Cluster, user: &str, resources: &[&str]) {
    let rules = json!([{ "apiGroups": ["cozystack.io"], "resources": resources, "verbs": ["get"] }]);
    for object in [
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": { "name": user }, "rules": rules }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": user },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": user },
            "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": user }]
        }),
    ] {
        cluster.admin.apply(object).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_show_their_layers() {
    let cluster = start().await;
    let rows = cluster.check(
        &["values", "ingress"],
        0,
        &["COMPONENT", "PATH", "VALUE", "LAYER", "OWNER"],
    );
    let row = |path: &str| {
        let found = rows.lines().find(|line| line.split_whitespace().nth(1) == Some(path));
        found.unwrap_or_else(|| panic!("no {path}: {rows}")).to_owned()
    };
    for (path, words) in [
        ("/_cluster", "(in a Secret)"),
        ("/controller", "cozystack-values"),
        ("/controller/replicas", "9007199254740993"),
        ("/controller/resources", "PackageValues"),
        ("/images", "PackageValues"),
    ] {
        assert!(row(path).contains(words), "{path}: {rows}");
    }
    assert!(!rows.contains(SECRET), "{rows}");
    let changes = cluster.check(
        &["values", "ingress", "--diff", "/controller"],
        0,
        &["BEFORE", "/controller/replicas"],
    );
    assert!(
        !changes.contains("/images") && !changes.contains("/_cluster"),
        "{changes}"
    );
    let merged: Value =
        serde_json::from_str(&cluster.check(&["values", "ingress", "--component", "nginx", "-o", "json"], 0, &[]))
            .unwrap();
    let expected = json!({ "nginx": {
        "controller": { "replicas": 9_007_199_254_740_993_i64, "resources": null },
        "images": [{ "name": "a", "tag": "1" }, { "name": "b", "tag": "2" }]
    } });
    assert_eq!(merged, expected);
    cluster.check(&["values", "ingress", "images", "-o", "yaml"], 0, &["name: b"]);
    cluster.check(
        &["values", "ingress", "--component", "other"],
        1,
        &["its components are: dashboard, nginx"],
    );
    cluster.check(&["values", "none"], 1, &["none"]);
    // The command names each layer that the user may not read.
    allow_reads(&cluster, "vera", &["packages", "packagesources"]).await;
    let rows = cluster.check_as(
        "vera",
        &["values", "ingress"],
        0,
        &[
            "you may not get PackageValues/ingress",
            "Secret/cozystack-values in namespace ingress",
            "/controller/replicas",
        ],
    );
    assert!(!rows.contains(SECRET) && !rows.contains("9007199254740993"), "{rows}");
    cluster.check_as("nobody", &["values", "ingress"], 3, &["forbidden"]);
}
