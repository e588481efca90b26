//! The flags for the budgets of fetches, files and artifacts. The defaults are the controllers'.

use clap::Args;
use tenure_controllers::{BudgetLimit, Budgets};

use crate::quantity::parse_bytes;

/// Memory and disk for repositories. Work beyond what is free waits. Work beyond what a tenant can ever have is refused, with the name of the flag. While few tenants
/// exist, each has an equal part of the memory for all, if its own flag is not given and this part is larger.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "What repositories may take")]
#[group(id = "budgets")]
pub(crate) struct Flags {
    /// Memory for the files of one tenant's repositories, and so the size of the largest repository [default: 64MiB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    tree_memory_per_tenant: Option<u64>,
    /// Memory for the files of all repositories [default: 160MiB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    tree_memory: Option<u64>,
    /// Memory for one tenant's fetches [default: 64MiB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    fetch_memory_per_tenant: Option<u64>,
    /// Memory for all fetches [default: 128MiB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    fetch_memory: Option<u64>,
    /// Memory for the cluster's objects that one tenant's reconciliations read [default: 192MiB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    live_memory_per_tenant: Option<u64>,
    /// Memory for the cluster's objects that all reconciliations read [default: 320MiB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    live_memory: Option<u64>,
    /// Disk for one tenant's artifacts [default: 1GiB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    artifact_storage_per_tenant: Option<u64>,
    /// Disk for all artifacts [default: 8GiB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    artifact_storage: Option<u64>,
}

impl Flags {
    pub(crate) fn budgets(&self) -> Budgets {
        let or = |tenant: Option<u64>, all: Option<u64>, default: BudgetLimit| BudgetLimit {
            tenant: tenant.unwrap_or(default.tenant),
            all: all.unwrap_or(default.all),
            is_divided: default.is_divided && tenant.is_none(),
        };
        let default = Budgets::default();
        Budgets {
            trees: or(self.tree_memory_per_tenant, self.tree_memory, default.trees),
            fetches: or(self.fetch_memory_per_tenant, self.fetch_memory, default.fetches),
            archives: or(
                self.artifact_storage_per_tenant,
                self.artifact_storage,
                default.archives,
            ),
            object_memory: or(self.live_memory_per_tenant, self.live_memory, default.object_memory),
        }
    }
}
