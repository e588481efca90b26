//! Limits of the controllers' memory and disk: for one tenant, and for all together. This module has the defaults and the names of the settings.

use serde::{Deserialize, Serialize};
use tenure_sources::{BudgetLimits, ByteBudget};

/// A limit of memory or disk in bytes, for one tenant and for all tenants together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLimit {
    /// For one tenant.
    pub tenant: u64,
    /// For all together.
    pub all: u64,
    /// Whether a tenant may have more while few lanes exist: an equal part of `all`. True for the defaults of memory, false for disk and for the value of an administrator.
    pub is_divided: bool,
}

impl BudgetLimit {
    fn budget(self, what: &'static str, settings: (&'static str, &'static str)) -> ByteBudget {
        let limits = BudgetLimits {
            what,
            lane: self.tenant,
            all: self.all,
            lane_setting: settings.0,
            all_setting: settings.1,
            is_half: false,
        };
        if self.is_divided {
            ByteBudget::new_divided(limits)
        } else {
            ByteBudget::new(limits)
        }
    }
}

/// The budgets of the controllers. With the defaults the whole process stays below 600 MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    /// Files of repositories in memory, while something is rendered from them and for a moment after.
    pub trees: BudgetLimit,
    /// Running fetches, in memory: lists from servers, and the objects of packs.
    pub fetches: BudgetLimit,
    /// Archives and packs on disk.
    pub archives: BudgetLimit,
    /// Objects of the cluster that reconciliations read, in memory.
    pub object_memory: BudgetLimit,
}

impl Default for Budgets {
    fn default() -> Self {
        let share = |tenant, all| BudgetLimit {
            tenant,
            all,
            is_divided: true,
        };
        Self {
            trees: share(64 << 20, 160 << 20),
            fetches: share(64 << 20, 128 << 20),
            // Archives stay after the work: a tenant that was alone would leave nothing to others.
            archives: BudgetLimit {
                is_divided: false,
                ..share(1 << 30, 8 << 30)
            },
            object_memory: share(192 << 20, 320 << 20),
        }
    }
}

impl Budgets {
    /// Returns the memory limit of one tenant.
    pub(crate) fn count_memory_of_one(&self) -> u64 {
        let shares = [self.trees, self.fetches, self.object_memory];
        shares
            .iter()
            .fold(0, |sum, share| sum.saturating_add(share.tenant.min(share.all)))
    }

    pub(crate) fn tree_budget(&self) -> ByteBudget {
        let settings = ("--tree-memory-per-tenant", "--tree-memory");
        self.trees.budget("files of repositories in memory", settings)
    }

    pub(crate) fn fetch_budget(&self) -> ByteBudget {
        let settings = ("--fetch-memory-per-tenant", "--fetch-memory");
        self.fetches.budget("fetches in memory", settings)
    }

    pub(crate) fn archives(&self) -> ByteBudget {
        let settings = ("--artifact-storage-per-tenant", "--artifact-storage");
        self.archives.budget("artifacts on disk", settings)
    }

    pub(crate) fn object_memory(&self) -> ByteBudget {
        let settings = ("--live-memory-per-tenant", "--live-memory");
        self.object_memory
            .budget("objects that reconciliations look at", settings)
    }
}

/// Limits concurrent unpacking of packs: it uses processors, and no tenant gets more than half of them.
pub(crate) fn make_unpacking() -> ByteBudget {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let share = BudgetLimit {
        tenant: (processors / 2).max(1),
        all: processors,
        is_divided: false,
    };
    share.budget("packs being unpacked", ("the processors per tenant", "the processors"))
}
