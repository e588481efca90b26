//! Metadata that `evil` draws: labels, annotations, owners and finalizers that a controller or a policy reads.

use serde_json::{Value, json};
use tenure_testkit::Chance;

use crate::cast::Scene;

/// Draws a merge patch with one change of metadata. A null removes a label or an annotation.
pub(crate) fn draw_patch(chance: &mut Chance, scene: &Scene) -> Value {
    let metadata = match chance.draw_below(6) {
        0 => {
            let (key, value) = draw_label(chance, scene);
            json!({ "labels": { key: value } })
        }
        1 => {
            let (key, _) = draw_label(chance, scene);
            json!({ "labels": { key: null } })
        }
        2 => {
            let (key, value) = draw_annotation(chance, scene);
            json!({ "annotations": { key: value } })
        }
        3 => {
            let (key, _) = draw_annotation(chance, scene);
            json!({ "annotations": { key: null } })
        }
        4 => json!({ "ownerReferences": [draw_owner(chance, scene)] }),
        _ => json!({ "finalizers": [draw_finalizer(chance)] }),
    };
    json!({ "metadata": metadata })
}

pub(crate) fn draw_label(chance: &mut Chance, scene: &Scene) -> (String, Value) {
    let labels = [
        ("capsule.clastix.io/tenant", json!(scene.alpha)),
        ("capsule.clastix.io/tenant", json!(scene.evil)),
        ("capsule.clastix.io/tenant", json!("absent")),
        ("pod-security.kubernetes.io/enforce", json!("privileged")),
        ("sharding.fluxcd.io/key", json!("other")),
        ("app.kubernetes.io/managed-by", json!("tenure")),
        ("kustomize.toolkit.fluxcd.io/name", json!("app")),
        ("kustomize.toolkit.fluxcd.io/namespace", json!(scene.alpha)),
        ("tenure.dev/attest", json!("true")),
        ("app", json!("web")),
    ];
    let (key, value) = chance.pick(&labels).cloned().unwrap();
    (key.to_owned(), value)
}

pub(crate) fn draw_annotation(chance: &mut Chance, scene: &Scene) -> (String, Value) {
    let annotations = [
        ("facts.tenure.dev/tenant", json!(scene.alpha)),
        ("facts.tenure.dev/cordoned", json!("")),
        ("facts.tenure.dev/references", json!("*")),
        ("tenure.dev/home-namespace", json!(scene.alpha)),
        ("tenure.dev/gitops-account", json!("shared")),
        ("tenure.dev/mintable-accounts", json!("*")),
        ("kustomize.toolkit.fluxcd.io/reconcile", json!("disabled")),
        ("kustomize.toolkit.fluxcd.io/prune", json!("disabled")),
        ("kustomize.toolkit.fluxcd.io/force", json!("enabled")),
        ("scheduler.alpha.kubernetes.io/node-selector", json!("pool=alpha")),
        (
            "nginx.ingress.kubernetes.io/server-alias",
            json!(format!("{}.example", scene.alpha)),
        ),
        (
            "kubernetes.io/service-account.name",
            json!(format!("{}-gitops", scene.evil)),
        ),
        ("attest.tenure.dev/expires", json!("2020-01-01T00:00:00Z")),
    ];
    let (key, value) = chance.pick(&annotations).cloned().unwrap();
    (key.to_owned(), value)
}

pub(crate) fn draw_owner(chance: &mut Chance, scene: &Scene) -> Value {
    let tenant = |name: &str, uid: &str| json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": name, "uid": uid });
    match chance.draw_below(5) {
        0 => tenant(&scene.alpha, &scene.alpha_uid),
        1 => tenant(&scene.evil, &scene.evil_uid),
        2 => tenant("absent", "00000000-0000-0000-0000-000000000000"),
        3 => {
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "00000000-0000-0000-0000-000000000001" })
        }
        _ => json!({
            "apiVersion": "v1", "kind": "Namespace", "name": scene.alpha, "uid": "00000000-0000-0000-0000-000000000002",
            "blockOwnerDeletion": true, "controller": true
        }),
    }
}

pub(crate) fn draw_finalizer(chance: &mut Chance) -> &'static str {
    let finalizers = [
        "evil.example/hold",
        "tenure.dev/lane",
        "finalizers.fluxcd.io",
        "foregroundDeletion",
        "orphan",
        "kubernetes.io/pvc-protection",
    ];
    chance.pick(&finalizers).copied().unwrap()
}
