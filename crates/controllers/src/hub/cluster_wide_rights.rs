//! The cluster-wide bindings as read, valid for a while for all Tenants. Their meaning is decided elsewhere.

use std::time::{Duration, Instant};

use tenure_tenancy::access::bindings::{Bindings, Roles};

/// How long roles and bindings that were read for one Tenant are used for other Tenants.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// The rules of all ClusterRoles and the ClusterRoleBindings, as read at one time.
#[derive(Debug)]
pub(crate) struct ClusterWideRights {
    read_at: Instant,
    pub(crate) roles: Roles,
    pub(crate) bindings: Result<Bindings, String>,
}

impl ClusterWideRights {
    /// Wraps roles and bindings that were read just now.
    pub(crate) fn new(roles: Roles, bindings: Result<Bindings, String>) -> Self {
        Self {
            read_at: Instant::now(),
            roles,
            bindings,
        }
    }

    /// Checks whether the roles and bindings are recent enough to be used.
    pub(crate) fn is_fresh(&self) -> bool {
        self.read_at.elapsed() < GOOD_FOR
    }
}
