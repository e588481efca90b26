//! In which stage an object is applied, and in which order within it: Flux's, and two stages more. Which kinds have the stage that is an
//! administrator's own is not known here.

use std::cmp::Ordering;

use tenure_api::ObjectId;

use crate::plan::Stage;

/// The stages of the apply.
pub(super) const STAGES: [Stage; 7] = [
    Stage::Definitions,
    Stage::Classes,
    Stage::Roles,
    Stage::Policies,
    Stage::Protections,
    Stage::Custom,
    Stage::Rest,
];

/// The stage in which an object is applied.
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

/// Whether an object judges what comes after it, without a program of somebody's that has to be there first.
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

/// Whether an object keeps others within bounds, so that these must not be there without it.
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

/// Kinds that come last: they can refuse what comes after them.
const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Compares two objects by the order in which they are applied; pruning is the reverse.
pub(super) fn compare(one: &ObjectId, other: &ObjectId) -> Ordering {
    find_stage(one)
        .cmp(&find_stage(other))
        .then_with(|| rank(&one.kind).cmp(&rank(&other.kind)))
        .then_with(|| one.group.cmp(&other.group))
        .then_with(|| one.kind.cmp(&other.kind))
        .then_with(|| one.namespace.cmp(&other.namespace))
        .then_with(|| one.name.cmp(&other.name))
}

fn rank(kind: &str) -> usize {
    if let Some(position) = FIRST.iter().position(|first| *first == kind) {
        return position;
    }
    match LAST.iter().position(|last| *last == kind) {
        Some(position) => FIRST.len() + 1 + position,
        None => FIRST.len(),
    }
}
