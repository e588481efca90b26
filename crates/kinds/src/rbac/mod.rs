//! The group `rbac.authorization.k8s.io`. One file or folder for each kind; code for several groups is elsewhere.

mod binding;
mod cluster_role;
mod cluster_role_binding;
mod role;
mod role_binding;
mod rules;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[
    &cluster_role::CLUSTER_ROLE,
    &cluster_role_binding::CLUSTER_ROLE_BINDING,
    &role::ROLE,
    &role_binding::ROLE_BINDING,
];
