//! The account of a helm-controller that `tenure up` starts.

use serde_json::{Value, json};

use super::labels;

/// The namespace of helm-controller and of its account, as Flux has it.
pub const HELM_CONTROLLER_NAMESPACE: &str = "flux-system";
/// The name of its account.
pub const HELM_CONTROLLER_ACCOUNT: &str = "helm-controller";
/// The name of the binding with its rights. A binding of Flux has another name, and stays unchanged.
const BINDING: &str = "tenure-helm-controller";

/// Returns the account, its namespace, and the binding to `cluster-admin`: charts have objects of every kind. A HelmRelease with `serviceAccountName` is installed with the
/// rights of that account instead.
#[must_use]
pub fn helm_controller() -> [Value; 3] {
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HELM_CONTROLLER_NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
               "metadata": {"name": HELM_CONTROLLER_ACCOUNT, "namespace": HELM_CONTROLLER_NAMESPACE, "labels": labels()},
               "automountServiceAccountToken": false}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": BINDING, "labels": labels()},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": HELM_CONTROLLER_ACCOUNT, "namespace": HELM_CONTROLLER_NAMESPACE}]
        }),
    ]
}
