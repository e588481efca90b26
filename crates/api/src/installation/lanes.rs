//! The additional rights of an installation in which each lane has a Pod of its own. They reach no further than needed: Deployments in the platform
//! namespace alone, where the controllers may request every account's token anyway, and one Secret and one ConfigMap.

use serde_json::{Value, json};

use super::{controller_cluster_role_binding_to, controller_role_binding, labels};
use crate::metadata::PLATFORM_NAMESPACE;
use crate::workload::{LANE_AUTHORITY, LANE_SECRET};

/// The Role for the Deployments of lanes and for the certificate that is shown to them, and its binding.
const PODS_ROLE: &str = "tenure-lane-pods";
/// The ClusterRole for reviews of the tokens that lanes show, and its binding.
const REVIEWS_ROLE: &str = "tenure-lane-reviews";

/// Returns the objects for an installation whose controllers make a Pod for each lane, in an order in which
/// they can be applied.
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
                // One exists for each lane. Their names follow from those of Tenants, which no role can know. The controllers' own Deployment
                // is among them: docs/concepts/identities.md explains the consequences.
                {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create", "get", "list", "patch", "delete"]},
                // RBAC can't limit `create` to a name, since such a request has none.
                {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["create"]},
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "update", "patch"], "resourceNames": [LANE_SECRET]},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"], "resourceNames": [LANE_AUTHORITY]}
            ]
        }),
        controller_role_binding(PODS_ROLE, PLATFORM_NAMESPACE),
    ]
}
