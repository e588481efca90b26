//! What an installation has besides in which each lane has a Pod of its own: what the controllers may do for them. Refuses rights that reach beyond:
//! Deployments in the platform namespace alone, where the controllers may ask for every account's token anyhow, and of Secrets and ConfigMaps one each.

use serde_json::{Value, json};

use super::{controller_cluster_role_binding_to, controller_role_binding, labels};
use crate::metadata::PLATFORM_NAMESPACE;
use crate::workload::{LANE_AUTHORITY, LANE_SECRET};

/// The Role of whoever writes the Deployments of lanes and keeps the certificate that is shown to them, and its binding.
const PODS_ROLE: &str = "tenure-lane-pods";
/// The ClusterRole of whoever asks whose a token is that a lane shows, and its binding.
const REVIEWS_ROLE: &str = "tenure-lane-reviews";

/// What is installed where the controllers make a Pod for each lane, in an order in which it can be applied.
#[must_use]
pub fn lane_pods() -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": REVIEWS_ROLE, "labels": labels()},
            "rules": [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]
        }),
        controller_cluster_role_binding_to(REVIEWS_ROLE),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": PODS_ROLE, "namespace": PLATFORM_NAMESPACE, "labels": labels()},
            "rules": [
                // There is one for each lane, whose names follow from those of Tenants, which no role can know. The controllers' own Deployment
                // is among them: docs/concepts/identities.md says what that comes to.
                {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create", "get", "list", "patch", "delete"]},
                // Who may create is not bound to a name: a request to create has none that RBAC could look at.
                {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["create"]},
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "update", "patch"], "resourceNames": [LANE_SECRET]},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"], "resourceNames": [LANE_AUTHORITY]}
            ]
        }),
        controller_role_binding(PODS_ROLE, PLATFORM_NAMESPACE),
    ]
}
