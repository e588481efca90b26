//! What an installation consists of, as data: the kinds, the platform namespace, the controller's ServiceAccount and its rights.
//! The embedded control plane applies it at every start, `deploy/` is written from it. It refuses rights that nothing uses.

use serde_json::{Value, json};

use crate::crds::{CrdError, crds};
use crate::metadata::{
    CAPSULE_LEASE, CONTROLLER_LEASE, CONTROLLER_SERVICE_ACCOUNT, KUSTOMIZE_CONTROLLER_LEASE, LANE_BOOKS_CLUSTER_ROLE,
    LANE_CLUSTER_ROLE, MANAGED_BY, MANAGED_BY_TENURE, NAMESPACE_DELETER_CLUSTER_ROLE, PLATFORM_NAMESPACE,
    SOURCE_CONTROLLER_LEASE, TENANT_GITOPS_CLUSTER_ROLE,
};
use crate::roles::cluster_roles;

/// The Role of whoever leads, and its binding.
const LEADER_ROLE: &str = "tenure-leader";
/// The Role of whoever asks for the tokens of lanes, and its binding.
const LANE_TOKENS_ROLE: &str = "tenure-lane-tokens";
/// The Role of whoever writes events about Tenants, and its binding.
const EVENTS_ROLE: &str = "tenure-events";
/// Where events about objects are that are in no namespace.
const EVENTS_NAMESPACE: &str = "default";
/// Capsule's ClusterRole of owners, beside the one that lets them delete namespaces.
const OWNER_CLUSTER_ROLE: &str = "admin";

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
        controller_role_binding(LEADER_ROLE, PLATFORM_NAMESPACE),
        lane_tokens_role(),
        controller_role_binding(LANE_TOKENS_ROLE, PLATFORM_NAMESPACE),
        events_role(),
        controller_role_binding(EVENTS_ROLE, EVENTS_NAMESPACE),
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

/// What the controller may do with its own rights, in the whole cluster: see what is reconciled, keep Tenants, and give each lane its
/// account and its RoleBindings. It writes no object of a kind that lanes reconcile, asks for no token outside the platform namespace, reads
/// no Secret and writes no workload.
///
/// One right is wide, and is what an installation has to trust it with: RoleBindings in all namespaces, since a tenant's may be any. What
/// they may bind is a list (`bind` by `resourceNames`): a ClusterRole that a Tenant names besides has to be added by an administrator.
fn controller_cluster_role() -> Value {
    let seen = json!(["get", "list", "watch"]);
    let generated = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": CONTROLLER_SERVICE_ACCOUNT, "labels": labels()},
        "rules": [
            // One watch a kind for all lanes: it says what there is to do, and whose; what is done is done by lanes.
            {"apiGroups": ["tenure.dev"], "resources": ["surfaces"], "verbs": seen},
            {"apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["buckets", "gitrepositories", "ocirepositories"], "verbs": seen},
            {"apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": seen},
            {"apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": ["get", "list", "watch", "update", "patch"]},
            {"apiGroups": ["capsule.clastix.io"], "resources": ["tenants/status", "tenants/finalizers"], "verbs": ["get", "update", "patch"]},
            // A Tenant's home namespace is made when it is not there.
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch", "create", "patch"]},
            // A Tenant's, in its home namespace, and those of lanes. In which namespaces isn't known before there are Tenants.
            {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": generated},
            // Without it, nobody may bind a ClusterRole whose rights he doesn't have himself.
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"],
             "resourceNames": list_bound_cluster_roles()},
            // Who else reconciles the same kinds.
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"],
             "resourceNames": [SOURCE_CONTROLLER_LEASE, KUSTOMIZE_CONTROLLER_LEASE, CAPSULE_LEASE]}
        ]
    })
}

/// The ClusterRoles that the controller binds: those of lanes, of a tenant's GitOps ServiceAccount, and an owner's that are Capsule's default.
fn list_bound_cluster_roles() -> [&'static str; 5] {
    [
        LANE_CLUSTER_ROLE,
        LANE_BOOKS_CLUSTER_ROLE,
        TENANT_GITOPS_CLUSTER_ROLE,
        OWNER_CLUSTER_ROLE,
        NAMESPACE_DELETER_CLUSTER_ROLE,
    ]
}

/// How the controller comes to the tokens of lanes, whose accounts are in the platform namespace. Their names follow from those of Tenants,
/// so they can't stand here; and where lanes act themselves, a lane's token is what it is for.
fn lane_tokens_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": LANE_TOKENS_ROLE, "namespace": PLATFORM_NAMESPACE, "labels": labels()},
        "rules": [{"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}]
    })
}

/// Events about Tenants, which are in no namespace.
fn events_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": EVENTS_ROLE, "namespace": EVENTS_NAMESPACE, "labels": labels()},
        "rules": [{"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}]
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

/// Binds the controller to a Role of the same namespace.
fn controller_role_binding(role: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
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

    fn list_rules(role: &Value) -> Vec<Value> {
        role["rules"].as_array().expect("rules").clone()
    }

    fn list_texts(rule: &Value, field: &str) -> Vec<String> {
        let texts = rule[field].as_array().into_iter().flatten();
        texts.map(|text| text.as_str().expect("text").to_owned()).collect()
    }

    /// The invariant "no controller's rights for a tenant", as far as RBAC can say it.
    #[test]
    fn neither_the_controller_nor_a_lane_reads_a_secret_or_writes_a_workload() {
        use crate::roles::{lane_books_cluster_role, lane_cluster_role};
        for role in [
            controller_cluster_role(),
            lane_tokens_role(),
            events_role(),
            lane_cluster_role(),
            lane_books_cluster_role(),
        ] {
            for rule in list_rules(&role) {
                let has = |field: &str, refused: &[&str]| {
                    list_texts(&rule, field)
                        .iter()
                        .any(|text| refused.contains(&text.as_str()))
                };
                assert!(!has("resources", &["*", "secrets", "configmaps", "roles"]), "{rule}");
                assert!(!has("apiGroups", &["*", "apps", "batch"]), "{rule}");
                assert!(!has("verbs", &["*", "impersonate", "escalate"]), "{rule}");
            }
        }
    }

    /// What lanes do with tokens of their own, the controller can't do in their place.
    #[test]
    fn the_controller_has_no_right_that_only_lanes_need() {
        for rule in list_rules(&controller_cluster_role()) {
            let groups = list_texts(&rule, "apiGroups");
            let resources = list_texts(&rule, "resources");
            assert!(
                !resources.iter().any(|resource| resource == "serviceaccounts/token"),
                "{rule}"
            );
            assert!(!resources.iter().any(|resource| resource == "events"), "{rule}");
            if groups
                .iter()
                .any(|group| group.ends_with(".fluxcd.io") || group == "tenure.dev")
            {
                assert_eq!(list_texts(&rule, "verbs"), ["get", "list", "watch"], "{rule}");
            }
            if list_texts(&rule, "verbs").iter().any(|verb| verb == "bind") {
                let names = list_texts(&rule, "resourceNames");
                assert_eq!(names, list_bound_cluster_roles(), "{rule}");
                assert!(!names.iter().any(|name| name == "cluster-admin"), "{rule}");
            }
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
