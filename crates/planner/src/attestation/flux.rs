//! Attacks by what Flux's kinds and Surfaces say: whose account they act as, and what they refer to. Kinds that a cluster doesn't serve can't be tried there.

use serde_json::{Value, json};
use tenure_api::metadata::SHARDING_KEY;
use tenure_tenancy::admission::Rule;

use super::rights::set;
use super::{Ask, Attack, Names, Stop, Verb, Who};

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let (home, other) = (names.tenant(), names.neighbour());
    let make = |group: &str, version: &str, plural: &str, object: Value| {
        let path = format!("/apis/{group}/{version}/namespaces/{home}/{plural}");
        Ask::new(Who::Owner, Verb::Create, path, object)
    };
    let kustomization = |change: &dyn Fn(&mut Value)| {
        let mut object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": "attest" },
            "spec": {
                "interval": "1h", "prune": true, "path": "./", "serviceAccountName": names.account(),
                "sourceRef": { "kind": "GitRepository", "name": "none" },
            },
        });
        change(&mut object);
        make("kustomize.toolkit.fluxcd.io", "v1", "kustomizations", object)
    };
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
    let references = Stop::Rule(Rule::FluxReferences);
    vec![
        Attack::new(
            "kustomization-as-another-account",
            "an owner's Kustomization names another account than the tenant's",
            Stop::Rule(Rule::FluxAccount),
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
            Stop::Rule(Rule::FluxShard),
            kustomization(&|object| set(object, "/metadata", "labels", json!({ SHARDING_KEY: "elsewhere" }))),
            plain(),
        ),
        Attack::new(
            "surface-as-another-account",
            "an owner's Surface names an account",
            Stop::Rule(Rule::FluxAccount),
            surface(&|object| set(object, "/spec", "serviceAccountName", json!("default"))),
            surface(&|_| ()),
        ),
    ]
}
