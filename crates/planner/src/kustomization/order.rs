//! The stage of an object, and its place within the stage: Flux's order, and two stages more. The settings, and not this module, name the kinds of the administrator's
//! own stage.

use std::cmp::Ordering;

use tenure_api::ObjectId;

use crate::plan::Stage;

/// The stages of the apply, in their order.
pub(super) const STAGES: [Stage; 7] = [
    Stage::Definitions,
    Stage::Classes,
    Stage::Roles,
    Stage::Policies,
    Stage::Protections,
    Stage::Custom,
    Stage::Rest,
];

/// Returns the built-in stage in which an object is applied, by its kind.
pub(super) fn find_stage(id: &ObjectId) -> Stage {
    let definition = matches!(
        (id.group.as_str(), id.kind.as_str()),
        ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("", "Namespace")
            | ("rbac.authorization.k8s.io", "ClusterRole")
    );
    if definition {
        Stage::Definitions
    } else if id.kind.ends_with("Class") {
        Stage::Classes
    } else if id.kind == "Role" && id.group == "rbac.authorization.k8s.io" {
        Stage::Roles
    } else if is_policy(id) {
        Stage::Policies
    } else {
        Stage::Rest
    }
}

/// Checks whether an object is a policy that checks later objects without a further program.
fn is_policy(id: &ObjectId) -> bool {
    id.group == "admissionregistration.k8s.io"
        && matches!(
            id.kind.as_str(),
            "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        )
}

/// Checks whether an object bounds others, so that the others must not exist without it.
pub(super) fn is_protection(id: &ObjectId) -> bool {
    matches!(
        (id.group.as_str(), id.kind.as_str()),
        ("", "ResourceQuota" | "LimitRange")
            | ("networking.k8s.io", "NetworkPolicy")
            | ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding")
    )
}

/// Kinds that come first, in this order; all others follow by name.
const FIRST: [&str; 22] = [
    "CustomResourceDefinition",
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];

/// Kinds that come last: they can refuse later objects.
const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Compares two objects by the order in which they are applied; pruning is the reverse.
pub(super) fn compare(one: &ObjectId, other: &ObjectId) -> Ordering {
    find_stage(one)
        .cmp(&find_stage(other))
        .then_with(|| rank_kind(&one.kind).cmp(&rank_kind(&other.kind)))
        .then_with(|| one.group.cmp(&other.group))
        .then_with(|| one.kind.cmp(&other.kind))
        .then_with(|| one.namespace.cmp(&other.namespace))
        .then_with(|| one.name.cmp(&other.name))
}

fn rank_kind(kind: &str) -> usize {
    if let Some(position) = FIRST.iter().position(|first| *first == kind) {
        return position;
    }
    match LAST.iter().position(|last| *last == kind) {
        Some(position) => FIRST.len() + 1 + position,
        None => FIRST.len(),
    }
}
