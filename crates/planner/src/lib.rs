//! Snapshot in, Plan out: every decision of every reconciler, as pure functions of data and `now`.
//!
//! ```text
//!           ┌────────────── the shell ──────────────┐
//!  observe ─▶ Snapshot ──▶ plan(&Snapshot, now) ──▶ Plan ─▶ execute steps ─▶ answers into the Snapshot ─┐
//!                ▲                                                                                      │
//!                └──────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The shell keeps one Snapshot for each object. It plans, executes the steps in their order as the Plan's identity, writes the answers
//! into the Snapshot and plans again, until [`plan::Next`] says otherwise. No decision hides in that loop. The Plan has the next
//! step, the meaning of a failure, the status, and each omitted action with its reason. The Plan is data and can be printed, tested
//! and shown before anything happens.
//!
//! This crate has no I/O, no clock, no randomness, and no bare errors for users' input (those are statuses). Values of Secrets are in
//! neither the printed nor the serialised form of any type here.

pub mod alert;
pub mod alert_event;
pub mod answer;
pub mod artifact_address;
pub mod artifact_generator;
pub mod attestation_cleanup;
pub mod binding_name;
pub mod bucket;
pub mod certificate_renewal;
pub mod chart_values;
pub mod cluster_config;
mod comparable;
pub mod confidential;
pub mod cycle;
pub mod dependents;
pub mod election;
pub mod enforcement;
pub mod event_recording;
pub mod expression;
pub mod external_artifact;
pub mod fields;
pub mod git_repository;
pub mod health;
pub mod helm_chart;
pub mod helm_repository;
mod immutable;
pub mod interrupted_attempts;
pub mod invariants;
pub mod known_objects;
pub mod kubeconfig;
pub mod kustomization;
pub mod lane_process;
pub mod list_limits;
pub mod merge_patch;
pub mod named_rights;
pub mod object;
pub mod oci_repository;
mod outcome;
pub mod overlay;
pub mod package;
pub mod package_recovery;
pub mod package_settings;
pub mod package_source;
pub mod package_values;
pub mod panic_report;
pub mod plan;
mod pointer;
pub mod policies;
pub mod provider;
pub mod receiver;
pub mod recorded_objects;
mod redaction;
pub mod refusal;
pub mod render_inputs;
pub mod rights;
pub mod sharding;
pub mod source;
pub mod surface;
pub mod target;
pub mod tenant;
pub mod uninstallation;
pub mod validation_plan;

pub use answer::{Answer, Failure, Live, WriteAnswer};
pub use known_objects::KnownObjects;
pub use object::{Object, Origin, RenderedObject};
pub use outcome::read_requested_at;
pub use overlay::Overlay;
pub use plan::{Event, EventKind, EventPlace, FinalizerChange, Next, Plan, Request, Status, Withheld};
pub use render_inputs::RenderInputs;
