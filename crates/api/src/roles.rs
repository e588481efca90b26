//! The ClusterRoles that Tenure brings, as data: what a tenant's identities may do in its namespaces.

use serde_json::{Value, json};

use crate::metadata::{MANAGED_BY, MANAGED_BY_TENURE, NAMESPACE_DELETER_CLUSTER_ROLE, TENANT_GITOPS_CLUSTER_ROLE};

/// What a tenant's GitOps ServiceAccount may do in each of the tenant's namespaces: the kinds that applications are made of.
///
/// Left out on purpose: Flux's and Tenure's own kinds (a repository must not be able to add another identity's work), `exec` and
/// `attach`, ResourceQuota and LimitRange (they bound the tenant), tokens, and everything cluster-scoped. Roles and RoleBindings
/// are in: Kubernetes' own escalation check keeps them within what the ServiceAccount holds.
#[must_use]
pub fn tenant_gitops_cluster_role() -> Value {
    let all = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": TENANT_GITOPS_CLUSTER_ROLE, "labels": { MANAGED_BY: MANAGED_BY_TENURE } },
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["configmaps", "persistentvolumeclaims", "pods", "podtemplates", "replicationcontrollers", "secrets", "serviceaccounts", "services"],
                "verbs": all
            },
            { "apiGroups": [""], "resources": ["events"], "verbs": ["get", "list", "watch", "create", "patch"] },
            { "apiGroups": [""], "resources": ["endpoints", "limitranges", "resourcequotas"], "verbs": ["get", "list", "watch"] },
            { "apiGroups": ["apps"], "resources": ["daemonsets", "deployments", "replicasets", "statefulsets"], "verbs": all },
            { "apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": all },
            { "apiGroups": ["batch"], "resources": ["cronjobs", "jobs"], "verbs": all },
            { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"] },
            { "apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "networkpolicies"], "verbs": all },
            { "apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": all },
            { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings", "roles"], "verbs": all }
        ]
    })
}

/// Every ClusterRole that Tenure brings.
#[must_use]
pub fn cluster_roles() -> Vec<Value> {
    vec![namespace_deleter_cluster_role(), tenant_gitops_cluster_role()]
}

/// Capsule's own second default role of an owner: deleting the namespace itself.
#[must_use]
pub fn namespace_deleter_cluster_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": NAMESPACE_DELETER_CLUSTER_ROLE, "labels": { MANAGED_BY: MANAGED_BY_TENURE } },
        "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["delete"] }]
    })
}
