//! The cluster-wide bindings as read, valid for a while for all Tenants. Their meaning is decided elsewhere.

use std::time::{Duration, Instant};

use tenure_tenancy::access::bindings::{Bindings, Roles};

/// How long they are valid for other Tenants.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// The rules of ClusterRoles, and the ClusterRoleBindings.
#[derive(Debug)]
pub(crate) struct ClusterWideRights {
    read_at: Instant,
    pub(crate) roles: Roles,
    pub(crate) bindings: Result<Bindings, String>,
}

impl ClusterWideRights {
    /// Creates the value, read now.
    pub(crate) fn new(roles: Roles, bindings: Result<Bindings, String>) -> Self {
        Self {
            read_at: Instant::now(),
            roles,
            bindings,
        }
    }

    /// Checks whether they are still valid.
    pub(crate) fn is_fresh(&self) -> bool {
        self.read_at.elapsed() < GOOD_FOR
    }
}
