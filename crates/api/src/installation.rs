//! What an installation consists of, as data: the kinds, the platform namespace, the controller's ServiceAccount and its rights.
//! The embedded control plane applies it at every start, `deploy/` is written from it. It refuses rights that nothing uses.

use serde_json::{Value, json};

use crate::crds::{CrdError, crds};
use crate::metadata::{
    CAPSULE_LEASE, CONTROLLER_LEASE, CONTROLLER_SERVICE_ACCOUNT, KUSTOMIZE_CONTROLLER_LEASE, MANAGED_BY,
    MANAGED_BY_TENURE, PLATFORM_NAMESPACE, SOURCE_CONTROLLER_LEASE,
};
use crate::roles::cluster_roles;

/// The Role of whoever leads, and its binding.
const LEADER_ROLE: &str = "tenure-leader";

/// Everything, in an order in which it can be applied.
///
/// # Errors
/// [`CrdError`]; a test keeps it from happening.
pub fn objects() -> Result<Vec<Value>, CrdError> {
    let mut objects = crds()?;
    objects.extend(cluster_roles());
    objects.extend([
        namespace(),
        service_account(),
        controller_cluster_role(),
        controller_cluster_role_binding(),
        leader_role(),
        leader_role_binding(),
    ]);
    Ok(objects)
}

/// A Pod here could have the token of the controllers' account: only Pods that are confined themselves may be here.
fn namespace() -> Value {
    let mut labels = labels();
    if let Some(labels) = labels.as_object_mut() {
        for mode in ["enforce", "audit", "warn"] {
            labels.insert(format!("pod-security.kubernetes.io/{mode}"), json!("restricted"));
        }
    }
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLATFORM_NAMESPACE, "labels": labels}})
}

fn service_account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount",
           "metadata": {"name": CONTROLLER_SERVICE_ACCOUNT, "namespace": PLATFORM_NAMESPACE, "labels": labels()}})
}

/// What the controller may do with its own rights. It reads no Secret and writes no workload: those are made and read as the
/// ServiceAccount that acts.
///
/// Two rights are wide, and are what an installation has to trust it with: `serviceaccounts/token`, without which it could act as
/// nobody, and `bind`, without which it could not give a Tenant's owners their ClusterRoles in the tenant's namespaces.
fn controller_cluster_role() -> Value {
    let generated = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": CONTROLLER_SERVICE_ACCOUNT, "labels": labels()},
        "rules": [
            {"apiGroups": ["tenure.dev"], "resources": ["surfaces"], "verbs": ["get", "list", "watch", "update", "patch"]},
            {"apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": ["get", "list", "watch", "update", "patch"]},
            {"apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["gitrepositories"], "verbs": generated},
            {"apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": generated},
            {"apiGroups": ["tenure.dev"], "resources": ["surfaces/status", "surfaces/finalizers"], "verbs": ["get", "update", "patch"]},
            {"apiGroups": ["capsule.clastix.io"], "resources": ["tenants/status", "tenants/finalizers"], "verbs": ["get", "update", "patch"]},
            {"apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["gitrepositories/status", "gitrepositories/finalizers"],
             "verbs": ["get", "update", "patch"]},
            {"apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations/status", "kustomizations/finalizers"],
             "verbs": ["get", "update", "patch"]},
            // A Tenant's home namespace is made when it is not there.
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch", "create", "patch"]},
            {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
            {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": generated},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"]},
            {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
            // Who else reconciles the same kinds.
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"],
             "resourceNames": [SOURCE_CONTROLLER_LEASE, KUSTOMIZE_CONTROLLER_LEASE, CAPSULE_LEASE]}
        ]
    })
}

/// What a leader does with its Lease. Who may create is not bound to a name: a request to create has none that RBAC could look at.
fn leader_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": LEADER_ROLE, "namespace": PLATFORM_NAMESPACE, "labels": labels()},
        "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "patch"],
             "resourceNames": [CONTROLLER_LEASE]}
        ]
    })
}

fn leader_role_binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": LEADER_ROLE, "namespace": PLATFORM_NAMESPACE, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": LEADER_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": CONTROLLER_SERVICE_ACCOUNT, "namespace": PLATFORM_NAMESPACE}]
    })
}

fn controller_cluster_role_binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": CONTROLLER_SERVICE_ACCOUNT, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CONTROLLER_SERVICE_ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": CONTROLLER_SERVICE_ACCOUNT, "namespace": PLATFORM_NAMESPACE}]
    })
}

fn labels() -> Value {
    json!({MANAGED_BY: MANAGED_BY_TENURE})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The invariant "no controller's rights for a tenant", as far as RBAC can say it.
    #[test]
    fn the_controller_reads_no_secret_and_writes_no_workload() {
        let role = controller_cluster_role();
        for rule in role["rules"].as_array().expect("rules") {
            let texts = |field: &str| -> Vec<String> {
                rule[field]
                    .as_array()
                    .expect("a list")
                    .iter()
                    .map(|text| text.as_str().expect("text").to_owned())
                    .collect()
            };
            assert!(
                !texts("resources")
                    .iter()
                    .any(|resource| ["*", "secrets", "configmaps"].contains(&resource.as_str())),
                "{rule}"
            );
            assert!(
                !texts("apiGroups")
                    .iter()
                    .any(|group| ["*", "apps", "batch"].contains(&group.as_str())),
                "{rule}"
            );
            assert!(
                !texts("verbs")
                    .iter()
                    .any(|verb| ["*", "impersonate", "escalate"].contains(&verb.as_str())),
                "{rule}"
            );
        }
    }

    #[test]
    fn everything_can_be_written() {
        let objects = objects().expect("objects");
        assert!(
            objects
                .iter()
                .all(|object| object["kind"].is_string() && object["metadata"]["name"].is_string())
        );
    }
}
