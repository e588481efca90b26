//! The lane of a namespace, and the role of the lane's account there.
//!
//! A protected namespace shares its lane with no other namespace, since its accounts are often administrators. Kubernetes' own namespaces belong to the
//! platform's lane. There, the lane writes statuses and events, and may request no token unless an administrator binds it to more.

use tenure_api::metadata::{LANE_BOOKS_CLUSTER_ROLE, LANE_CLUSTER_ROLE};
use tenure_api::names::TenantName;

use crate::placement::Placement;
use crate::settings::is_kubernetes_own;

/// The prefix of the name of a tenant's lane. The tenant's name follows.
pub(crate) const TENANT_LANE: &str = "tenant-";

/// A lane: the group of namespaces whose bookkeeping one account does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The platform namespace, and Kubernetes' own.
    Platform,
    /// The lane of one protected namespace.
    Protected(String),
    /// Namespaces without a tenant, and disputed ones.
    Pool,
    /// A tenant's namespaces.
    Tenant(TenantName),
}

impl Lane {
    /// Returns the value of the lane's label.
    #[must_use]
    pub fn sort(&self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Protected(_) => "protected",
            Self::Pool => "pool",
            Self::Tenant(_) => "tenant",
        }
    }
}

/// Returns the lane of a namespace.
#[must_use]
pub fn decide_lane(placement: &Placement, namespace: &str) -> Lane {
    match placement {
        Placement::Platform { .. } => Lane::Platform,
        _ if is_kubernetes_own(namespace) => Lane::Platform,
        Placement::Tenant(tenant) => Lane::Tenant(tenant.tenant.clone()),
        Placement::Unclaimed { is_protected: true, .. } => Lane::Protected(namespace.to_owned()),
        Placement::Unclaimed { .. } | Placement::Disputed { .. } => Lane::Pool,
    }
}

/// Returns the ClusterRole that a lane is bound to in a namespace. It follows from the name alone: the role of a RoleBinding can't be
/// changed, and in a namespace in deletion no new RoleBinding can be created.
#[must_use]
pub fn decide_role(namespace: &str) -> &'static str {
    if is_kubernetes_own(namespace) {
        LANE_BOOKS_CLUSTER_ROLE
    } else {
        LANE_CLUSTER_ROLE
    }
}
