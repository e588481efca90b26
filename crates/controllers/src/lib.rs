//! Observe, execute and the loop: one folder a kind. The planner and tenancy make every decision.
//!
//! ```text
//! watches of our kinds (as the controller) ─▶ hub ─▶ lanes: caches ─┐
//! watches of applied objects (each as the identity ─────────────────┼─▶ mailbox ─▶ drive: one task an object, bounded by its lane
//!                             that applied them)                    │                 │
//! artifacts ────────────────────────────────────────────────────────┘     observe ─▶ plan ─▶ execute ─▶ write status, events
//! ```
//!
//! The *hub* has Tenants, namespaces and Surfaces, and knows the lane of each namespace. A *lane* has the reconciled objects of one tenant, in a
//! *shard* for each namespace. They share no object. The hub passes the watch events of a namespace to its shard. A shard asks the hub through
//! `lane::Surroundings`. The limits for all lanes are handles that each lane gets (`means`). One table, `kinds`, lists all kinds.
//!
//! This crate makes no choice: it executes a step as the identity that the plan names, or not at all. It serves nothing over a network. Nothing that
//! it writes with the controller's own rights comes from a repository.

mod access;
mod access_board;
mod alert;
mod answers;
mod artifact_endpoint;
mod artifact_generator;
mod artifacts;
mod beneath;
mod bounds;
mod bucket;
mod budgets;
mod cache;
mod config;
mod decryption;
mod dependents;
mod dial_line;
mod dial_server;
mod drive;
mod election;
mod elsewhere;
mod entry;
mod estates;
mod execute;
mod external_artifact;
mod figures;
mod fleet;
mod frames;
mod git_repository;
mod grounds;
mod herald;
mod herald_books;
mod hooks;
mod hub;
mod inventories;
mod key;
mod kinds;
mod kustomization;
mod lane;
mod lane_call;
mod lane_door;
mod lane_mode;
mod lane_process;
mod lane_relay;
mod lane_report;
mod lane_spans;
mod lane_starter;
mod lane_table;
mod lease_name;
mod lfs;
mod listeners;
mod live;
mod loan_book;
mod loans;
mod looking;
mod mailbox;
mod manager;
mod means;
mod minting_board;
mod oci_repository;
mod origin;
mod own;
mod pace;
mod pod_line;
mod policies;
mod preview;
mod provider;
mod realm;
mod receiver;
mod receiver_books;
mod recipes;
mod reconciled;
mod render;
mod rights;
mod rooms;
mod seen_files;
mod served;
mod sharding;
mod sight;
mod source;
mod spans;
mod spool;
#[cfg(test)]
mod stage;
mod standing;
mod supervise;
mod surface;
mod switches;
mod tenant;
mod told;
mod trees;
mod turnovers;
mod under_way;
mod wide_rights;

pub use artifact_endpoint::{ArtifactEndpoint, ArtifactRefusal, ServedArtifact, Transfer};
pub use budgets::{Budgets, Share};
pub use config::Config;
pub use election::{Election, run_as_leader};
pub use figures::Figures;
pub use hooks::{Admission, Hooks};
pub use kinds::read_switches;
pub use lane_call::CallError;
pub use lane_door::{LaneCall, LaneDoor, ProvenPod, Unadmitted};
pub use lane_mode::{ApartSettings, LaneMode, LaneProgram, LaneServer, PodSettings, ProcessSettings};
pub use lane_process::{LaneError, LaneProcess};
pub use lane_relay::{LaneRelay, RelayEnd};
pub use lane_spans::{SpanOutbox, SpanSink, TRACED_PARTS, TracedAttempt, TracedPart, TracedTime, TracedWork};
pub use lease_name::LeaseName;
pub use manager::{RunError, run};
pub use origin::{OriginError, Rebuilt, build_applied, build_object};
pub use preview::{FindOther, Preview, PreviewError, Previewed};
pub use render::RenderLimits;
pub use spans::TRACED;
pub use switches::{SwitchError, Switches};
pub use tenure_planner::kustomization::{ApplySettings, Guards, StageKind};
pub use tenure_planner::receiver::{HEADERS, Verdict, WHOLE_BODY};
