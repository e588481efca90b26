//! What is bound in the whole cluster, as it was read: good for a while, for all Tenants. Holds it, and refuses to say what it means.

use std::time::{Duration, Instant};

use tenure_planner::access::audit::{Bindings, Roles};

/// For how long it is good for another Tenant.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// What ClusterRoleBindings give, and what ClusterRoles are.
#[derive(Debug)]
pub(crate) struct WideRights {
    read_at: Instant,
    pub(crate) roles: Roles,
    pub(crate) bindings: Result<Bindings, String>,
}

impl WideRights {
    /// As they are now.
    pub(crate) fn of(roles: Roles, bindings: Result<Bindings, String>) -> Self {
        Self {
            read_at: Instant::now(),
            roles,
            bindings,
        }
    }

    /// Whether they still count.
    pub(crate) fn is_fresh(&self) -> bool {
        self.read_at.elapsed() < GOOD_FOR
    }
}
