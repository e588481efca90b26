//! Observe, execute and the loop: one folder a kind. The planner and tenancy make every decision.
//!
//! ```text
//! watches of our kinds (as the controller) ─▶ hub ─▶ lanes: caches ─┐
//! watches of applied objects (each as the identity ─────────────────┼─▶ mailbox ─▶ object loop: one task an object, bounded by its lane
//!                             that applied them)                    │                 │
//! artifacts ────────────────────────────────────────────────────────┘     observe ─▶ plan ─▶ execute ─▶ write status, events
//! ```
//!
//! The *hub* has Tenants, namespaces and Surfaces, and knows the lane of each namespace. A *lane* has the reconciled objects of one tenant, in a
//! *shard* for each namespace. They share no object. The hub passes the watch events of a namespace to its shard. A shard asks the hub through
//! `lane::HubApi`. The limits for all lanes are handles that each lane gets (`context`). One table, `kind_table`, lists all kinds.
//!
//! This crate makes no choice: it executes a step as the identity that the plan names, or not at all. It serves nothing over a network. Nothing that
//! it writes with the controller's own rights comes from a repository.

mod artifacts;
mod cluster_view;
mod context;
mod endpoints;
mod git_access;
mod hub;
mod hub_kinds;
mod inspection;
mod kind_table;
mod lane;
mod lane_kinds;
mod lane_process;
mod lane_protocol;
mod limits;
mod manager;
mod notifications;
mod reconcile_loop;
mod rendering;
mod sharding;
mod telemetry;
#[cfg(test)]
mod test_hub;

pub use context::config::Config;
pub use context::enabled_kinds::{EnabledKinds, EnabledKindsError};
pub use context::lane_settings::{ApartSettings, LaneMode, LaneProgram, LaneServer, PodSettings, ProcessSettings};
pub use endpoints::artifact_endpoint::{ArtifactEndpoint, ArtifactRefusal, ServedArtifact, Transfer};
pub use endpoints::lane_endpoint::{LaneConnection, LaneEndpoint, PodRefusal, ProvenPod};
pub use endpoints::receiver_endpoint::{AdmittedRequest, ReceiverEndpoint};
pub use inspection::object_origin::{
    OriginError, RebuiltObjects, build_applied, build_object, check_applied, render_applied,
};
pub use inspection::preview::{FindOther, Preview, PreviewError, PreviewResult};
pub use kind_table::read_switches;
pub use lane_process::pod_relay::{LaneRelay, RelayEnd};
pub use lane_process::{LaneError, LaneProcess};
#[cfg(any(test, fuzzing))]
pub use lane_protocol::fuzzing;
pub use lane_protocol::greeting::GreetingError;
pub use limits::budgets::{BudgetLimit, Budgets};
pub use manager::election::{Election, run_as_leader};
pub use manager::lease_name::LeaseName;
pub use manager::{RunError, run};
pub use rendering::renderer::RenderLimits;
pub use telemetry::lane_spans::{
    SpanOutbox, SpanSink, TRACED_PARTS, TracedAttempt, TracedPart, TracedTime, TracedWork,
};
pub use telemetry::metrics::Metrics;
pub use telemetry::spans::TRACED;
pub use tenure_planner::kustomization::{ApplySettings, Guards, StageKind};
pub use tenure_planner::package_settings::Settings as PackageSettings;
pub use tenure_planner::receiver::{HEADERS, Verdict, WHOLE_BODY};
