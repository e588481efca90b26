//! Attacks with fields of Flux's kinds and Surfaces: the account that they act as, and the objects that they refer to. Kinds that a cluster doesn't serve can't be
//! tried there.

use serde_json::{Value, json};
use tenure_admission_rules::Rule;
use tenure_api::metadata::SHARDING_KEY;

use super::rights::set;
use super::{Attack, AttackRequest, ExpectedDefense, Names, Sender, Verb};

/// Returns an owner's valid Kustomization, apart from `change`.
pub(super) fn make_kustomization_request(names: &Names, change: &dyn Fn(&mut Value)) -> AttackRequest {
    let mut object = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": "attest" },
        "spec": {
            "interval": "1h", "prune": true, "path": "./", "serviceAccountName": names.account(),
            "sourceRef": { "kind": "GitRepository", "name": "none" },
        },
    });
    change(&mut object);
    let path = format!(
        "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{}/kustomizations",
        names.tenant()
    );
    AttackRequest::new(Sender::Owner, Verb::Create, path, object)
}

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let (home, other) = (names.tenant(), names.neighbour());
    let make = |group: &str, version: &str, plural: &str, object: Value| {
        let path = format!("/apis/{group}/{version}/namespaces/{home}/{plural}");
        AttackRequest::new(Sender::Owner, Verb::Create, path, object)
    };
    let kustomization = |change: &dyn Fn(&mut Value)| make_kustomization_request(names, change);
    let surface = |change: &dyn Fn(&mut Value)| {
        let mut object = json!({
            "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": { "name": "attest" },
            "spec": { "suspend": true, "sources": [{ "name": "a", "url": "https://git.attest.invalid/a.git" }] },
        });
        change(&mut object);
        make("tenure.dev", "v1alpha1", "surfaces", object)
    };
    let helm_release = |namespace: Option<&str>| {
        let object = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": { "name": "attest" },
            "spec": {
                "interval": "1h", "serviceAccountName": names.account(),
                "chartRef": { "kind": "OCIRepository", "name": "none", "namespace": namespace },
            },
        });
        make("helm.toolkit.fluxcd.io", "v2", "helmreleases", object)
    };
    let receiver = |namespace: &str| {
        let object = json!({
            "apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": "Receiver", "metadata": { "name": "attest" },
            "spec": {
                "type": "generic", "secretRef": { "name": "none" },
                "resources": [{ "kind": "GitRepository", "name": "none", "namespace": namespace }],
            },
        });
        make("notification.toolkit.fluxcd.io", "v1", "receivers", object)
    };
    let alert = |namespace: &str| {
        let object = json!({
            "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Alert", "metadata": { "name": "attest" },
            "spec": {
                "providerRef": { "name": "none" },
                "eventSources": [{ "kind": "Kustomization", "name": "*", "namespace": namespace }],
            },
        });
        make("notification.toolkit.fluxcd.io", "v1beta3", "alerts", object)
    };
    let plain = || kustomization(&|_| ());
    let source = |field: &str, value: Value| {
        let mut object = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "attest" },
            "spec": { "interval": "1h", "url": "https://git.attest.invalid/a.git" },
        });
        set(&mut object, "/spec", field, value);
        make("source.toolkit.fluxcd.io", "v1", "gitrepositories", object)
    };
    let references = ExpectedDefense::Rule(Rule::FluxReferences);
    vec![
        Attack::new(
            "kustomization-as-another-account",
            "an owner's Kustomization names another account than the tenant's",
            ExpectedDefense::Rule(Rule::FluxAccount),
            kustomization(&|object| set(object, "/spec", "serviceAccountName", json!("default"))),
            plain(),
        ),
        Attack::new(
            "source-of-a-neighbour",
            "an owner's Kustomization takes another tenant's source",
            references,
            kustomization(&|object| set(object, "/spec/sourceRef", "namespace", json!(other))),
            plain(),
        ),
        Attack::new(
            "dependency-on-a-neighbour",
            "an owner's Kustomization waits for another tenant's",
            references,
            kustomization(&|object| {
                set(
                    object,
                    "/spec",
                    "dependsOn",
                    json!([{ "name": "x", "namespace": other }]),
                )
            }),
            plain(),
        ),
        Attack::new(
            "target-namespace-of-a-neighbour",
            "an owner's Kustomization writes to another tenant's namespace",
            references,
            kustomization(&|object| set(object, "/spec", "targetNamespace", json!(other))),
            plain(),
        ),
        Attack::new(
            "target-namespace-kube-system",
            "an owner's Kustomization writes to kube-system",
            references,
            kustomization(&|object| set(object, "/spec", "targetNamespace", json!("kube-system"))),
            plain(),
        ),
        Attack::new(
            "chart-of-a-neighbour",
            "an owner's HelmRelease takes another tenant's chart",
            references,
            helm_release(Some(&other)),
            helm_release(None),
        ),
        Attack::new(
            "receiver-for-a-neighbour",
            "an owner's Receiver asks another tenant's sources to reconcile",
            references,
            receiver(&other),
            receiver(&home),
        ),
        Attack::new(
            "alert-of-a-neighbour",
            "an owner's Alert tells of another tenant's events",
            references,
            alert(&other),
            alert(&home),
        ),
        Attack::new(
            "another-shard",
            "an owner labels a Kustomization for controllers with other rules",
            ExpectedDefense::Rule(Rule::FluxShard),
            kustomization(&|object| set(object, "/metadata", "labels", json!({ SHARDING_KEY: "elsewhere" }))),
            plain(),
        ),
        Attack::new(
            "surface-as-another-account",
            "an owner's Surface names an account",
            ExpectedDefense::Rule(Rule::FluxAccount),
            surface(&|object| set(object, "/spec", "serviceAccountName", json!("default"))),
            surface(&|_| ()),
        ),
        // If a kind's schema has no such field, the server drops the field before any check.
        Attack::new(
            "variables-of-a-neighbour",
            "an owner's Kustomization takes variables from another tenant's Secret",
            references,
            kustomization(&|object| {
                set(
                    object,
                    "/spec",
                    "postBuild",
                    substitute_from(&json!([{ "kind": "Secret", "name": "x", "namespace": other }])),
                )
            }),
            kustomization(&|object| {
                set(
                    object,
                    "/spec",
                    "postBuild",
                    substitute_from(&json!([{ "kind": "Secret", "name": "x" }])),
                )
            }),
        )
        .seen_by("/spec/postBuild/substituteFrom/0/namespace", json!(other)),
        Attack::new(
            "key-of-a-neighbour",
            "an owner's Kustomization decrypts with another tenant's key",
            references,
            kustomization(&|object| {
                let decryption = json!({ "provider": "sops", "secretRef": { "name": "x", "namespace": other } });
                set(object, "/spec", "decryption", decryption);
            }),
            kustomization(&|object| {
                set(
                    object,
                    "/spec",
                    "decryption",
                    json!({ "provider": "sops", "secretRef": { "name": "x" } }),
                )
            }),
        )
        .seen_by("/spec/decryption/secretRef/namespace", json!(other)),
        Attack::new(
            "kubeconfig-of-a-neighbour",
            "an owner's Kustomization goes to another cluster by another tenant's kubeconfig",
            references,
            kustomization(&|object| {
                set(
                    object,
                    "/spec",
                    "kubeConfig",
                    json!({ "secretRef": { "name": "x", "namespace": other } }),
                )
            }),
            kustomization(&|object| set(object, "/spec", "kubeConfig", json!({ "secretRef": { "name": "x" } }))),
        )
        .seen_by("/spec/kubeConfig/secretRef/namespace", json!(other)),
        Attack::new(
            "verification-by-a-neighbour",
            "an owner's GitRepository is verified by another tenant's keys",
            references,
            source(
                "verify",
                json!({ "mode": "HEAD", "secretRef": { "name": "x", "namespace": other } }),
            ),
            source("verify", json!({ "mode": "HEAD", "secretRef": { "name": "x" } })),
        )
        .seen_by("/spec/verify/secretRef/namespace", json!(other)),
        Attack::new(
            "inclusion-of-a-neighbour",
            "an owner's GitRepository includes another tenant's",
            references,
            source(
                "include",
                json!([{ "repository": { "name": "x", "namespace": other } }]),
            ),
            source("include", json!([{ "repository": { "name": "x" } }])),
        )
        .seen_by("/spec/include/0/repository/namespace", json!(other)),
    ]
}

/// Returns the sources of variables.
fn substitute_from(sources: &Value) -> Value {
    json!({ "substituteFrom": sources })
}
