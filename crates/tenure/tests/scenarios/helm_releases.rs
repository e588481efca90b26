//! `tenure trace`, `who` and `events` about charts on any API server: the object of a chart, its HelmRelease, the Package behind it, and forged claims.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::Cluster;

const COZYSTACK: &str = "cozystack.io/v1alpha1";
const PACKAGE_CONTROLLER: &str = "tenure-package-controller";

fn name_labels(release: &str) -> Value {
    json!({ "helm.toolkit.fluxcd.io/name": release, "helm.toolkit.fluxcd.io/namespace": "charted" })
}

fn map(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "charted", "labels": labels }, "data": { "a": "b" }
    })
}

/// Applies an object as another field manager.
async fn apply_as(cluster: &Cluster, manager: &str, object: &Value) -> Value {
    let name = object["metadata"]["name"].as_str().unwrap();
    let (parameters, patch) = (PatchParams::apply(manager).force(), Patch::Apply(object));
    let applied = cluster.admin.api(object).patch(name, &parameters, &patch).await;
    serde_json::to_value(applied.unwrap()).unwrap()
}

/// Writes the status of an object, as its controller does.
async fn report(cluster: &Cluster, object: &Value, status: Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(json!({ "status": status })));
    let written = cluster.admin.api(object).patch_status(name, &parameters, &patch).await;
    written.unwrap();
}

/// Starts a cluster without controllers, with a HelmRelease of a Package that installed one ConfigMap.
async fn start() -> Cluster {
    let cluster = Cluster::start_own_with("--packages", "packagevalues.cozystack.io").await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "charted" } });
    let package = json!({
        "apiVersion": COZYSTACK, "kind": "Package", "metadata": { "name": "example.app" },
        "spec": { "components": { "app": { "values": { "replicas": 1, "image": { "tag": "1" } } } } }
    });
    let source = json!({
        "apiVersion": COZYSTACK, "kind": "PackageSource", "metadata": { "name": "example.app" },
        "spec": {
            "sourceRef": { "kind": "GitRepository", "name": "charts", "namespace": "charted" },
            "variants": [{ "name": "default", "components": [{ "name": "app", "path": "app", "install": { "namespace": "charted" } }] }]
        }
    });
    for object in [
        &namespace,
        &package,
        &source,
        &map("made", name_labels("app")),
        &map("forged", name_labels("app")),
    ] {
        cluster.admin.apply(object.clone()).await;
    }
    let values = json!({
        "apiVersion": COZYSTACK, "kind": "PackageValues", "metadata": { "name": "example.app" },
        "spec": { "components": { "app": { "values": { "replicas": 3 } } } }
    });
    cluster.apply_values(&values).await;
    let release = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": { "name": "app", "namespace": "charted", "labels": { "cozystack.io/package": "example.app" } },
        "spec": {
            "interval": "1m", "chartRef": { "kind": "ExternalArtifact", "name": "app", "namespace": "cozy-system" },
            "values": { "replicas": 3, "image": { "tag": "1" } }
        }
    });
    let made = apply_as(&cluster, PACKAGE_CONTROLLER, &release).await;
    let history = json!([{
        "name": "app", "namespace": "charted", "chartName": "app", "chartVersion": "0.1.0", "version": 2, "status": "deployed",
        "configDigest": "sha256:a", "digest": "sha256:b", "firstDeployed": "2026-01-01T00:00:00Z", "lastDeployed": "2026-01-01T00:00:00Z"
    }]);
    let entries = json!([{ "id": "charted_made__ConfigMap", "v": "v1" }]);
    report(
        &cluster,
        &release,
        json!({ "history": history, "inventory": { "entries": entries } }),
    )
    .await;
    let record = json!({ "component": "app", "name": "app", "namespace": "charted", "uid": made["metadata"]["uid"] });
    report(&cluster, &package, json!({ "releases": [record] })).await;
    // A copy of the label, on a release that the Package didn't generate.
    let mut copy = release;
    copy["metadata"]["name"] = json!("copy");
    cluster.admin.apply(copy).await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_and_who_lead_from_object_to_package() {
    let cluster = start().await;
    cluster.check(
        &["trace", "configmap/made", "-n", "charted"],
        0,
        &[
            "ConfigMap/charted/made is managed by HelmRelease/charted/app.",
            "Installed by:         HelmRelease/charted/app",
            "  Installed as:       the account of helm-controller",
            "  Chart:              app 0.1.0",
            "  Release:            charted/app, version 2, deployed",
            "Chart:                ExternalArtifact/cozy-system/app",
            "Generated by:         Package/example.app",
            "  Remark:             it is the release of component app",
            "From:                 PackageSource/example.app",
            "From:                 GitRepository/charted/charts",
            "Changed by:           PackageValues/example.app",
        ],
    );
    cluster.check(
        &["trace", "configmap/forged", "-n", "charted"],
        1,
        &["whose inventory doesn't list it"],
    );
    cluster.check(&["trace", "hr/copy", "-n", "charted"], 1, &["doesn't record it"]);

    let output = cluster.check(
        &["who", "hr/app", ".spec.values", "-n", "charted"],
        0,
        &[
            "Generated by Package/example.app, component app.",
            PACKAGE_CONTROLLER,
            "PackageValues .spec.components.app.values.replicas by test",
            "Package .spec.components.app.values.image.tag by test",
        ],
    );
    let row = output
        .lines()
        .find(|line| line.contains(".spec.values.replicas"))
        .unwrap();
    assert!(row.contains("PackageValues"), "{output}");
    cluster.check(
        &["who", "hr/copy", ".spec.values", "-n", "charted"],
        0,
        &["doesn't record it"],
    );
    cluster.check(
        &["who", "configmap/made", "-n", "charted"],
        0,
        &[
            "Installed by HelmRelease charted/app from chart app 0.1.0, as the account of helm-controller",
            "tenure who hr/app -n charted .spec.values, and tenure values example.app",
        ],
    );
    let forged = cluster.check(&["who", "configmap/forged", "-n", "charted"], 0, &["doesn't list it"]);
    assert!(!forged.contains("Installed by"), "{forged}");
    // A user that may not read the Package learns so, and gets the rest.
    cluster.allow_charted("reader").await;
    cluster.check_as(
        "reader",
        &["who", "hr/app", ".spec.values", "-n", "charted"],
        0,
        &["forbidden", "replicas"],
    );
    cluster.check_as(
        "reader",
        &["trace", "configmap/made", "-n", "charted"],
        0,
        &["managed by HelmRelease", "can't be read"],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_one_release_are_shown() {
    let cluster = start().await;
    for (name, message) in [("app", "Helm install succeeded"), ("copy", "of another release")] {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": name, "namespace": "charted" },
            "involvedObject": { "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": name, "namespace": "charted" },
            "reason": "InstallSucceeded", "message": message, "type": "Normal", "lastTimestamp": "2026-01-01T00:00:00Z"
        });
        cluster.admin.create(&event).await.unwrap();
    }
    for kind in ["HelmRelease", "hr"] {
        let target = format!("{kind}/app");
        let output = cluster.check(
            &["events", "--for", &target, "-n", "charted"],
            0,
            &["Helm install succeeded"],
        );
        assert!(!output.contains("another release"), "{output}");
    }
}

impl Cluster {
    /// Applies PackageValues, whose plural is their name.
    async fn apply_values(&self, values: &Value) {
        let mut resource = kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "cozystack.io",
            "v1alpha1",
            "PackageValues",
        ));
        "packagevalues".clone_into(&mut resource.plural);
        let api: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(self.admin.0.clone(), &resource);
        let name = values["metadata"]["name"].as_str().unwrap();
        api.patch(name, &PatchParams::apply("test"), &Patch::Apply(values))
            .await
            .unwrap();
    }

    /// Lets a user read the objects of namespace `charted`, and no Package.
    async fn allow_charted(&self, user: &str) {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": user, "namespace": "charted" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tenure-viewer" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]
        });
        self.admin.apply(binding).await;
    }
}
