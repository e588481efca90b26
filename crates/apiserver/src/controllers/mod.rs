//! The controllers of every cluster: namespaces and their default objects, ServiceAccount tokens in Secrets, garbage
//! collection, ClusterRole aggregation, expiry of Events, and optionally the status of workloads. The deletion of
//! CustomResourceDefinitions runs beside the dispatcher, because it takes as long as the deletion of their objects.
//!
//! One watch over the whole store feeds a pure `Dispatcher`, which turns changes into tasks. `run` executes tasks
//! through the registry, as any client of the API would. So new kinds need no code, changes take effect at once, and
//! an idle server does no work. The loop makes no decisions: they are functions in `garbage`, `namespace`,
//! `service_account`, `expiry`, `workload` and `authorization`.

mod definitions;
mod dispatch;
mod expiry;
mod found_objects;
mod garbage;
mod namespace;
mod object_name;
mod policy_types;
mod queue;
mod run;
mod service_account;
mod tasks;
mod workload;

pub(crate) use definitions::start as start_emptying_definitions;
pub(crate) use run::{Settings, start};
