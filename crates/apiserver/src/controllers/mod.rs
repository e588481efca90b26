//! Owns the controllers that every cluster has: namespaces and what they are given, ServiceAccount tokens in Secrets,
//! garbage collection, ClusterRole aggregation, the end of Events, and, if switched on, the status of workloads that
//! nothing runs. And, beside the dispatcher, the end of CustomResourceDefinitions, which takes as long as what they define.
//!
//! One watch over the whole store feeds a pure `Dispatcher`, which turns changes into tasks; `run` carries tasks
//! out through the registry, as any client of the API would. So new kinds need nothing, a change is acted on at once,
//! and an idle server does no work at all. Refuses to decide in the loop: decisions are functions in `garbage`,
//! `namespace`, `service_account`, `expiry`, `workload` and `authorization`.

mod definitions;
mod dispatch;
mod expiry;
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
