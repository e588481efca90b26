//! What the controllers may do for access to hosts of repositories. Owns their rights to the kinds of it; refuses them every Secret: those are read and
//! written as accounts that an administrator names and binds.

use serde_json::{Value, json};

use super::{ControllerChoice, controller_cluster_role_binding_to, controller_role_binding, labels};
use crate::access::{GROUP, TARGETS};
use crate::metadata::PLATFORM_NAMESPACE;

/// The ClusterRole, and its binding.
const ACCESS_ROLE: &str = "tenure-access";
/// The Role in the platform namespace, and its binding.
const RECORDS_ROLE: &str = "tenure-access-records";

/// The rights: what counts in the platform namespace alone is seen there alone. Empty where nobody sees to access.
pub(super) fn list_rights(choice: &ControllerChoice) -> [Value; 4] {
    let seen = json!(["get", "list", "watch"]);
    let (mut everywhere, mut in_platform) = (Vec::new(), Vec::new());
    if choice.has_access() {
        everywhere = vec![
            // Tenants ask in their own namespaces.
            json!({"apiGroups": [GROUP], "resources": ["fluxaccesses"], "verbs": seen}),
            json!({"apiGroups": [GROUP], "resources": ["fluxaccesses/status"], "verbs": ["get", "patch"]}),
            // `record` is what admission asks of who writes requests, targets and statuses.
            json!({"apiGroups": [GROUP], "resources": [TARGETS], "verbs": ["get", "list", "watch", "create", "delete", "record"]}),
            json!({"apiGroups": [GROUP], "resources": [format!("{TARGETS}/status")], "verbs": ["get", "patch"]}),
            // What RoleBindings of a namespace give, where nobody else is to come to a Secret there.
            json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["get"]}),
        ];
        in_platform = vec![
            json!({"apiGroups": [GROUP], "resources": ["fluxaccessgrants", "fluxaccessstandinggrants"], "verbs": seen}),
            // Their finalizers: what was made at a host is ended before its record goes, or told.
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
