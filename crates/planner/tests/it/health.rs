//! Health by kstatus' rules, and differences between two states of an object.

use serde_json::{Value, json};
use tenure_planner::{fields, health};

#[track_caller]
fn check(api_version: &str, kind: &str, rest: Value, expected: &str) {
    let mut object = rest;
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    assert_eq!(health::assess_object(&object).as_str(), expected, "{object}");
}

#[test]
fn kinds_have_their_rules() {
    let available = json!([{ "type": "Available", "status": "True" }]);
    let rolled_out = json!({ "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2, "conditions": available });
    let meta = json!({ "generation": 1 });
    check(
        "apps/v1",
        "Deployment",
        json!({ "metadata": meta, "spec": { "replicas": 2 } }),
        "InProgress",
    );
    check(
        "apps/v1",
        "Deployment",
        json!({ "metadata": meta, "spec": { "replicas": 2 }, "status": rolled_out }),
        "Current",
    );
    check(
        "apps/v1",
        "Deployment",
        json!({ "metadata": { "generation": 2 }, "spec": { "replicas": 2 }, "status": rolled_out }),
        "InProgress",
    );
    check(
        "apps/v1",
        "Deployment",
        json!({ "metadata": meta, "spec": { "replicas": 3 }, "status": rolled_out }),
        "InProgress",
    );
    check(
        "apps/v1",
        "Deployment",
        json!({ "metadata": meta, "status": { "conditions": [{ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded" }] } }),
        "Failed",
    );
    check(
        "apps/v1",
        "Deployment",
        json!({ "metadata": meta, "spec": { "replicas": 0 }, "status": { "observedGeneration": 1 } }),
        "Current",
    );
    check(
        "apps/v1",
        "StatefulSet",
        json!({ "metadata": meta, "spec": { "replicas": 1 }, "status": { "observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "currentReplicas": 1, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "a" } }),
        "Current",
    );
    check(
        "apps/v1",
        "StatefulSet",
        json!({ "metadata": meta, "spec": { "replicas": 1 }, "status": { "observedGeneration": 1, "replicas": 1, "readyReplicas": 0 } }),
        "InProgress",
    );
    check(
        "apps/v1",
        "StatefulSet",
        json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } }),
        "Current",
    );
    check(
        "apps/v1",
        "DaemonSet",
        json!({ "metadata": meta, "status": { "observedGeneration": 1 } }),
        "InProgress",
    );
    check(
        "apps/v1",
        "DaemonSet",
        json!({ "metadata": meta, "status": { "observedGeneration": 1, "desiredNumberScheduled": 0 } }),
        "Current",
    );
    check(
        "v1",
        "Pod",
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } }),
        "Current",
    );
    check(
        "v1",
        "Pod",
        json!({ "status": { "phase": "Running", "containerStatuses": [{ "state": { "waiting": { "reason": "CrashLoopBackOff" } } }] } }),
        "Failed",
    );
    check("v1", "Pod", json!({}), "InProgress");
    check(
        "v1",
        "PersistentVolumeClaim",
        json!({ "status": { "phase": "Bound" } }),
        "Current",
    );
    check("v1", "PersistentVolumeClaim", json!({}), "InProgress");
    check("v1", "Service", json!({ "spec": { "type": "ClusterIP" } }), "Current");
    check(
        "v1",
        "Service",
        json!({ "spec": { "type": "LoadBalancer", "clusterIP": "10.0.0.1" } }),
        "InProgress",
    );
    check(
        "v1",
        "Service",
        json!({ "spec": { "type": "LoadBalancer", "clusterIP": "10.0.0.1" }, "status": { "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }] } } }),
        "Current",
    );
    check(
        "batch/v1",
        "Job",
        json!({ "status": { "startTime": "x" } }),
        "InProgress",
    );
    check(
        "batch/v1",
        "Job",
        json!({ "status": { "conditions": [{ "type": "Complete", "status": "True" }] } }),
        "Current",
    );
    check(
        "batch/v1",
        "Job",
        json!({ "status": { "conditions": [{ "type": "Failed", "status": "True" }] } }),
        "Failed",
    );
    check("batch/v1", "Job", json!({ "spec": { "suspend": true } }), "Current");
    check(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        json!({}),
        "InProgress",
    );
    check(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        json!({ "status": { "conditions": [{ "type": "Established", "status": "True" }] } }),
        "Current",
    );
    check("v1", "ConfigMap", json!({}), "Current");
}

#[test]
fn other_kinds_follow_the_conventions() {
    check("a.example/v1", "Thing", json!({}), "Current");
    check(
        "a.example/v1",
        "Thing",
        json!({ "metadata": { "deletionTimestamp": "x" } }),
        "Terminating",
    );
    check(
        "a.example/v1",
        "Thing",
        json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }),
        "InProgress",
    );
    check(
        "a.example/v1",
        "Thing",
        json!({ "status": { "conditions": [{ "type": "Stalled", "status": "True" }, { "type": "Ready", "status": "False" }] } }),
        "Failed",
    );
    check(
        "a.example/v1",
        "Thing",
        json!({ "status": { "conditions": [{ "type": "Reconciling", "status": "True" }, { "type": "Ready", "status": "True" }] } }),
        "InProgress",
    );
    // An unexpected form causes no panic.
    check(
        "a.example/v1",
        "Thing",
        json!({ "status": { "conditions": "none" } }),
        "Current",
    );
    check(
        "apps/v1",
        "Deployment",
        json!({ "metadata": { "generation": "x" }, "spec": [], "status": 3 }),
        "InProgress",
    );
}

#[test]
fn differences_are_named_and_attributed() {
    let before = json!({ "spec": { "replicas": 2, "containers": [{ "name": "app", "image": "a" }, { "name": "side", "image": "b" }], "list": [1, 2] } });
    let after = json!({ "spec": { "replicas": 5, "containers": [{ "name": "side", "image": "b" }, { "name": "app", "image": "x" }], "list": [1], "more": true } });
    let found = fields::find_differences(&before, &after);
    let paths: Vec<&str> = found.iter().map(|difference| difference.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "spec.containers[name=app].image",
            "spec.list",
            "spec.replicas",
            "spec.more"
        ]
    );
    let live = json!({ "metadata": { "managedFields": [
        { "manager": "kustomize-controller", "time": "9", "fieldsV1": { "f:spec": { "f:replicas": {} } } },
        { "manager": "status-writer", "subresource": "status", "time": "9", "fieldsV1": { "f:spec": { "f:replicas": {} } } },
        { "manager": "autoscaler", "time": "2", "fieldsV1": { "f:spec": { "f:replicas": {} } } },
        { "manager": "kubectl-edit", "time": "3", "fieldsV1": { "f:spec": { "f:containers": { "k:{\"name\":\"app\"}": { "f:image": {} } } } } },
    ] } });
    let by = |index: usize| fields::find_other_manager(&live, &found[index], "kustomize-controller");
    assert_eq!(by(0).as_deref(), Some("kubectl-edit"));
    assert_eq!(by(2).as_deref(), Some("autoscaler"));
    // A removed field has no owner: the last writer is named.
    assert_eq!(by(1).as_deref(), Some("kubectl-edit"));
    assert_eq!(
        fields::find_other_manager(&json!({}), &found[0], "kustomize-controller"),
        None
    );
}

/// A kind whose controller always writes a status is not healthy without one, and a kind that needs no status is.
#[test]
fn without_a_controller_nothing_is_healthy() {
    let unobserved = json!({ "observedGeneration": -1 });
    for (api_version, kind, rest, expected) in [
        ("helm.toolkit.fluxcd.io/v2", "HelmRelease", json!({}), "Unknown"),
        (
            "helm.toolkit.fluxcd.io/v2",
            "HelmRelease",
            json!({ "metadata": { "generation": 1 }, "status": unobserved }),
            "Unknown",
        ),
        ("tenure.dev/v1alpha1", "Surface", json!({ "status": {} }), "Unknown"),
        (
            "source.toolkit.fluxcd.io/v1",
            "HelmRepository",
            json!({ "spec": { "type": "oci" } }),
            "Current",
        ),
        ("source.toolkit.fluxcd.io/v1", "HelmRepository", json!({}), "Unknown"),
        (
            "capsule.clastix.io/v1beta2",
            "Tenant",
            json!({ "status": { "state": "Active" } }),
            "Current",
        ),
        ("notification.toolkit.fluxcd.io/v1beta3", "Alert", json!({}), "Current"),
        ("networking.istio.io/v1", "VirtualService", json!({}), "Current"),
        (
            "example.org/v1",
            "Thing",
            json!({ "metadata": { "generation": 1 }, "status": unobserved }),
            "Unknown",
        ),
        ("example.org/v1", "Thing", json!({ "status": {} }), "Current"),
    ] {
        check(api_version, kind, rest, expected);
    }
    let release = json!({ "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease" });
    assert!(health::assess_object(&release).message().starts_with("NoController: "));
}
