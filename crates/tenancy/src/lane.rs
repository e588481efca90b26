//! Which lane a namespace belongs to, and with which role the lane's own account works there.
//!
//! Refuses to let the pool near Kubernetes' own namespaces, whoever they are said to belong to: only the platform's lane keeps books there,
//! and it can ask for no token there unless an administrator has bound its account to more.

use tenure_api::metadata::{LANE_BOOKS_CLUSTER_ROLE, LANE_CLUSTER_ROLE};
use tenure_api::names::TenantName;

use crate::realm::Placement;
use crate::settings::is_kubernetes_own;

/// One lane, by whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The platform's: its namespace, and Kubernetes' own.
    Platform,
    /// Of the namespaces that are nobody's, and those of which that can't be told.
    Pool,
    /// A tenant's.
    Tenant(TenantName),
}

impl Lane {
    /// What sort of lane it is, as the value of a label.
    #[must_use]
    pub fn sort(&self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Pool => "pool",
            Self::Tenant(_) => "tenant",
        }
    }
}

/// The lane of a namespace.
#[must_use]
pub fn decide_lane(placement: &Placement, namespace: &str) -> Lane {
    match placement {
        Placement::Platform { .. } => Lane::Platform,
        _ if is_kubernetes_own(namespace) => Lane::Platform,
        Placement::Tenant(tenant) => Lane::Tenant(tenant.tenant.clone()),
        Placement::Unclaimed { .. } | Placement::Disputed { .. } => Lane::Pool,
    }
}

/// The ClusterRole that a lane is bound to in a namespace. It follows from the name alone: which role a RoleBinding gives can't be changed,
/// and in a namespace that is being deleted none can be made anew.
#[must_use]
pub fn decide_role(namespace: &str) -> &'static str {
    if is_kubernetes_own(namespace) {
        LANE_BOOKS_CLUSTER_ROLE
    } else {
        LANE_CLUSTER_ROLE
    }
}
