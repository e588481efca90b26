//! Metadata that `evil` draws: labels, annotations, owners and finalizers that some controller or policy obeys.

use serde_json::{Value, json};
use tenure_testkit::Chance;

/// The facts of a world that drawn objects refer to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// The uid of Tenant alpha.
    pub(crate) alpha_uid: String,
    /// The uid of Tenant evil.
    pub(crate) evil_uid: String,
    /// The address of the Git server.
    pub(crate) git: String,
}

/// Lays drawn metadata over an object: nothing for most objects.
pub(crate) fn lay_metadata(chance: &mut Chance, scene: &Scene, object: &mut Value) {
    if chance.once_in(3) {
        let (key, value) = draw_label(chance);
        object["metadata"]["labels"][key] = value;
    }
    if chance.once_in(3) {
        let (key, value) = draw_annotation(chance);
        object["metadata"]["annotations"][key] = value;
    }
    if chance.once_in(6) {
        object["metadata"]["ownerReferences"] = json!([draw_owner(chance, scene)]);
    }
    if chance.once_in(6) {
        object["metadata"]["finalizers"] = json!([draw_finalizer(chance)]);
    }
}

/// A merge patch of metadata that changes one thing. A null takes a label or an annotation away.
pub(crate) fn draw_patch(chance: &mut Chance, scene: &Scene) -> Value {
    let metadata = match chance.below(6) {
        0 => {
            let (key, value) = draw_label(chance);
            json!({ "labels": { key: value } })
        }
        1 => {
            let (key, _) = draw_label(chance);
            json!({ "labels": { key: null } })
        }
        2 => {
            let (key, value) = draw_annotation(chance);
            json!({ "annotations": { key: value } })
        }
        3 => {
            let (key, _) = draw_annotation(chance);
            json!({ "annotations": { key: null } })
        }
        4 => json!({ "ownerReferences": [draw_owner(chance, scene)] }),
        _ => json!({ "finalizers": [draw_finalizer(chance)] }),
    };
    json!({ "metadata": metadata })
}

fn draw_label(chance: &mut Chance) -> (&'static str, Value) {
    let labels = [
        ("capsule.clastix.io/tenant", json!("alpha")),
        ("capsule.clastix.io/tenant", json!("evil")),
        ("capsule.clastix.io/tenant", json!("absent")),
        ("pod-security.kubernetes.io/enforce", json!("privileged")),
        ("sharding.fluxcd.io/key", json!("other")),
        ("app.kubernetes.io/managed-by", json!("tenure")),
        ("kustomize.toolkit.fluxcd.io/name", json!("app")),
        ("kustomize.toolkit.fluxcd.io/namespace", json!("alpha")),
        ("tenure.dev/attest", json!("true")),
        ("app", json!("web")),
    ];
    chance.pick(&labels).cloned().unwrap()
}

fn draw_annotation(chance: &mut Chance) -> (&'static str, Value) {
    let annotations = [
        ("facts.tenure.dev/tenant", json!("alpha")),
        ("facts.tenure.dev/cordoned", json!("")),
        ("facts.tenure.dev/references", json!("*")),
        ("tenure.dev/home-namespace", json!("alpha")),
        ("tenure.dev/gitops-account", json!("shared")),
        ("tenure.dev/mintable-accounts", json!("*")),
        ("kustomize.toolkit.fluxcd.io/reconcile", json!("disabled")),
        ("kustomize.toolkit.fluxcd.io/prune", json!("disabled")),
        ("kustomize.toolkit.fluxcd.io/force", json!("enabled")),
        ("scheduler.alpha.kubernetes.io/node-selector", json!("pool=alpha")),
        ("nginx.ingress.kubernetes.io/server-alias", json!("alpha.example")),
        ("kubernetes.io/service-account.name", json!("evil-gitops")),
        ("attest.tenure.dev/expires", json!("2020-01-01T00:00:00Z")),
    ];
    chance.pick(&annotations).cloned().unwrap()
}

fn draw_owner(chance: &mut Chance, scene: &Scene) -> Value {
    let tenant = |name: &str, uid: &str| json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": name, "uid": uid });
    match chance.below(5) {
        0 => tenant("alpha", &scene.alpha_uid),
        1 => tenant("evil", &scene.evil_uid),
        2 => tenant("absent", "00000000-0000-0000-0000-000000000000"),
        3 => {
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "00000000-0000-0000-0000-000000000001" })
        }
        _ => json!({
            "apiVersion": "v1", "kind": "Namespace", "name": "alpha", "uid": "00000000-0000-0000-0000-000000000002",
            "blockOwnerDeletion": true, "controller": true
        }),
    }
}

fn draw_finalizer(chance: &mut Chance) -> &'static str {
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
