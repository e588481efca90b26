//! The rights of the table's actors in RBAC: everything with the objects of the cases, and the rights that the table adds.

use serde_json::{Value, json};

use crate::accesses;
use crate::table::FLUX;

/// Returns the ClusterRole `writes`.
pub(crate) fn write_all() -> Value {
    let all = json!(["get", "create", "update", "patch", "delete"]);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "writes" },
        "rules": [
            { "apiGroups": [""], "verbs": all, "resources": [
                "namespaces", "namespaces/status", "namespaces/finalize", "pods", "pods/ephemeralcontainers", "secrets",
                "configmaps", "serviceaccounts/token", "persistentvolumeclaims", "persistentvolumes", "services",
                "services/status"
            ] },
            { "apiGroups": ["apps"], "verbs": all, "resources": ["deployments", "deployments/scale", "deployments/status"] },
            { "apiGroups": ["rbac.authorization.k8s.io"], "verbs": all, "resources": ["clusterroles"] },
            { "apiGroups": ["networking.k8s.io"], "verbs": all, "resources": ["ingresses", "ingresses/status"] },
            { "apiGroups": ["capsule.clastix.io"], "verbs": all, "resources": ["tenants", "tenants/status"] },
            {
                "apiGroups": FLUX.map(|(_, version, _)| version.split_once('/').unwrap().0),
                "verbs": all, "resources": FLUX.map(|(_, _, plural)| plural)
            },
            { "apiGroups": ["source.toolkit.fluxcd.io"], "verbs": all, "resources": ["ocirepositories/status"] },
            {
                "apiGroups": ["tenure.dev"], "verbs": all, "resources": accesses::KINDS.map(|kind| format!("{}/status", accesses::plural_of(kind)))
            },
            { "apiGroups": ["cozystack.io"], "verbs": all, "resources": [
                "packages", "packages/status", "packagesources", "packagesources/status", "packagevalues"
            ] }
        ]
    })
}

/// Returns the ClusterRole `writes-here`, which actors have in single namespaces. An actor with this right in all namespaces would belong
/// to the platform.
pub(crate) fn write_here() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "writes-here" },
        "rules": [{
            "apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["get", "create", "update", "patch", "delete"]
        }]
    })
}

/// The namespaces in which actors have `writes-here`.
pub(crate) const HERE: [&str; 2] = ["blue", "nobody"];

/// Returns `VERB RESOURCE[/NAME]` as a rule.
pub(crate) fn write_rule(right: &str) -> Value {
    let (verb, what) = right.split_once(' ').unwrap();
    let (resource, name) = what
        .split_once('/')
        .map_or((what, None), |(resource, name)| (resource, Some(name)));
    let mut rule = json!({ "apiGroups": ["*"], "resources": [resource], "verbs": [verb] });
    if let Some(name) = name {
        rule["resourceNames"] = json!([name]);
    }
    rule
}
