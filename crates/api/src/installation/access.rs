//! The rights of the controllers for access to Git hosts. They include no Secret: accounts that an administrator names and binds read and write those.

use serde_json::{Value, json};

use super::{ControllerChoice, controller_cluster_role_binding_to, controller_role_binding, labels};
use crate::access::{GROUP, TARGETS};
use crate::metadata::PLATFORM_NAMESPACE;

/// The name of the controllers' ClusterRole for access, and of its binding.
const ACCESS_ROLE: &str = "tenure-access";
/// The name of the controllers' Role for access in the platform namespace, and of its binding.
const RECORDS_ROLE: &str = "tenure-access-records";

/// Returns the roles of the controllers for access, and their bindings. Objects that count only in the platform
/// namespace are seen only there. The roles are empty if no controller of access runs.
pub(super) fn list_rights(choice: &ControllerChoice) -> [Value; 4] {
    let seen = json!(["get", "list", "watch"]);
    let (mut everywhere, mut in_platform) = (Vec::new(), Vec::new());
    if choice.has_access() {
        everywhere = vec![
            // Tenants ask in their own namespaces.
            json!({"apiGroups": [GROUP], "resources": ["fluxaccesses"], "verbs": seen}),
            json!({"apiGroups": [GROUP], "resources": ["fluxaccesses/status"], "verbs": ["get", "patch"]}),
            // Admission demands the verb `record` for writes of requests, targets and statuses.
            json!({"apiGroups": [GROUP], "resources": [TARGETS], "verbs": ["get", "list", "watch", "create", "delete", "record"]}),
            json!({"apiGroups": [GROUP], "resources": [format!("{TARGETS}/status")], "verbs": ["get", "patch"]}),
            // For the rules of a namespace's RoleBindings, if an entry demands that no other account
            // can read its Secret.
            json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["get"]}),
        ];
        in_platform = vec![
            json!({"apiGroups": [GROUP], "resources": ["fluxaccessgrants", "fluxaccessstandinggrants"], "verbs": seen}),
            // For their finalizers: credentials at a host are revoked before their record is
            // deleted, or reported.
            json!({"apiGroups": [GROUP], "resources": ["accessproviders"], "verbs": ["get", "list", "watch", "patch"]}),
            json!({"apiGroups": [GROUP], "resources": ["fluxaccessrequests"],
                   "verbs": ["get", "list", "watch", "create", "patch", "delete"]}),
            json!({"apiGroups": [GROUP],
                   "resources": ["accessproviders/finalizers", "fluxaccessrequests/finalizers"], "verbs": ["update"]}),
            json!({"apiGroups": [GROUP],
                   "resources": ["accessproviders/status", "fluxaccessgrants/status", "fluxaccessrequests/status",
                                 "fluxaccessstandinggrants/status"],
                   "verbs": ["get", "patch"]}),
            json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}),
        ];
    }
    let role = |kind: &str, metadata: Value, rules: Vec<Value>| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules});
    let inside = json!({"name": RECORDS_ROLE, "namespace": PLATFORM_NAMESPACE, "labels": labels()});
    [
        role(
            "ClusterRole",
            json!({"name": ACCESS_ROLE, "labels": labels()}),
            everywhere,
        ),
        controller_cluster_role_binding_to(ACCESS_ROLE),
        role("Role", inside, in_platform),
        controller_role_binding(RECORDS_ROLE, PLATFORM_NAMESPACE),
    ]
}
