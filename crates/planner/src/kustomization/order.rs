//! In which stage an object is applied, and in which order within it: Flux's, and one stage more.

use std::cmp::Ordering;

use tenure_api::ObjectId;

/// A stage of the apply. Each is complete, and its objects ready, before the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// CustomResourceDefinitions, Namespaces and ClusterRoles: others cannot be stored, or not be allowed, without them.
    Definitions,
    /// Kinds that end in `Class`: others refer to them by name.
    Classes,
    /// Roles: unless it may bind anything, an identity can't even dry-run a RoleBinding before the Role is there. (Flux has this
    /// stage for ClusterRoles only.)
    Roles,
    /// Everything else.
    Rest,
}

impl Stage {
    pub(super) const ALL: [Stage; 4] = [Stage::Definitions, Stage::Classes, Stage::Roles, Stage::Rest];

    pub(super) fn of(id: &ObjectId) -> Self {
        let definition = matches!(
            (id.group.as_str(), id.kind.as_str()),
            ("apiextensions.k8s.io", "CustomResourceDefinition")
                | ("", "Namespace")
                | ("rbac.authorization.k8s.io", "ClusterRole")
        );
        if definition {
            Self::Definitions
        } else if id.kind.ends_with("Class") {
            Self::Classes
        } else if id.kind == "Role" && id.group == "rbac.authorization.k8s.io" {
            Self::Roles
        } else {
            Self::Rest
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Definitions => "definitions",
            Self::Classes => "classes",
            Self::Roles => "roles",
            Self::Rest => "rest",
        }
    }
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
    Stage::of(one)
        .cmp(&Stage::of(other))
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
