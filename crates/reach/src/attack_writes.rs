//! The writes of an attack, as objects for admission to decide.

use serde_json::{Value, json};

use crate::admission::Write;
use crate::kinds::{RBAC, TENANT_GROUP, TENANT_LABEL};
use crate::node::{Identity, Scope};

pub(crate) fn make_token_request(namespace: &str, name: &str) -> Write {
    Write {
        group: "",
        version: "v1",
        kind: "TokenRequest",
        resource: "serviceaccounts",
        subresource: "token",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        old_object: None,
        object: json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": { "name": name, "namespace": namespace },
            "spec": { "audiences": [], "expirationSeconds": 3600 },
        }),
    }
}

/// Returns a binding of a role, as `ClusterRole/admin` or `Role/a/b`, to a subject.
pub(crate) fn make_binding(role: &str, scope: &Scope, subject: &Identity) -> Write {
    let (kind, name) = role.split_once('/').unwrap_or(("ClusterRole", role));
    let name = name.rsplit('/').next().unwrap_or_default();
    let subject = match subject {
        Identity::User(name) => json!({ "apiGroup": RBAC, "kind": "User", "name": name }),
        Identity::Group(name) => json!({ "apiGroup": RBAC, "kind": "Group", "name": name }),
        Identity::Account { namespace, name } => {
            json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
        }
    };
    let namespace = scope.namespace();
    let (binding, resource) = match namespace {
        Some(_) => ("RoleBinding", "rolebindings"),
        None => ("ClusterRoleBinding", "clusterrolebindings"),
    };
    let mut metadata = json!({ "name": "reach" });
    if let (Some(metadata), Some(namespace)) = (metadata.as_object_mut(), namespace) {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    Write {
        group: RBAC,
        version: "v1",
        kind: binding,
        resource,
        subresource: "",
        namespace: namespace.unwrap_or_default().to_owned(),
        name: "reach".to_owned(),
        old_object: None,
        object: json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": binding, "metadata": metadata,
            "roleRef": { "apiGroup": RBAC, "kind": kind, "name": name }, "subjects": [subject],
        }),
    }
}

/// Returns a namespace of a tenant.
pub(crate) fn make_namespace(name: &str, tenant: &str, uid: &str) -> Write {
    Write {
        group: "",
        version: "v1",
        kind: "Namespace",
        resource: "namespaces",
        subresource: "",
        namespace: name.to_owned(),
        name: name.to_owned(),
        old_object: None,
        object: json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": name, "labels": { TENANT_LABEL: tenant, "kubernetes.io/metadata.name": name },
                "ownerReferences": [{ "apiVersion": format!("{TENANT_GROUP}/v1beta2"), "kind": "Tenant", "name": tenant, "uid": uid }],
            },
        }),
    }
}

/// Returns a change of a label of a namespace.
pub(crate) fn make_namespace_change(name: &str, stored: &Value) -> Write {
    let mut changed = stored.clone();
    if let Some(metadata) = changed.get_mut("metadata").and_then(Value::as_object_mut) {
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert("reach.tenure.dev/changed".to_owned(), json!("true"));
        }
    }
    Write {
        group: "",
        version: "v1",
        kind: "Namespace",
        resource: "namespaces",
        subresource: "",
        namespace: name.to_owned(),
        name: name.to_owned(),
        old_object: Some(stored.clone()),
        object: changed,
    }
}

/// Returns an object of Flux that names no account, for the kinds whose controller acts with its own rights then.
pub(crate) fn make_deputy(resource: &str, namespace: &str) -> Option<Write> {
    let (group, version, kind, resource, spec) = match resource {
        "helmreleases" => (
            "helm.toolkit.fluxcd.io",
            "v2",
            "HelmRelease",
            "helmreleases",
            json!({ "interval": "1h", "chartRef": { "kind": "OCIRepository", "name": "reach" } }),
        ),
        "kustomizations" => (
            "kustomize.toolkit.fluxcd.io",
            "v1",
            "Kustomization",
            "kustomizations",
            json!({ "interval": "1h", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "reach" } }),
        ),
        _ => return None,
    };
    Some(Write {
        group,
        version,
        kind,
        resource,
        subresource: "",
        namespace: namespace.to_owned(),
        name: "reach".to_owned(),
        old_object: None,
        object: json!({
            "apiVersion": format!("{group}/{version}"), "kind": kind,
            "metadata": { "name": "reach", "namespace": namespace }, "spec": spec,
        }),
    })
}
