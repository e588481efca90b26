//! The reconciliation of a Kustomization.
//!
//! The phases, each a file, in the order in which a plan passes them; the first that has something to do ends the plan:
//! admit (is it allowed, as which identity, are all set fields implemented) → elsewhere (in which cluster) → prepare (source) → readiness (of dependencies) → retry (is
//! it due, if it failed before) → prepare (rendering) → desired (kinds, tenancy, labels) → namespace_creation → apply, stage by stage → prune → mode (the would-be changes, in a mode
//! without writes) → health → ending (status, events, next time).

mod apply;
mod apply_inputs;
mod apply_mode;
mod changes;
mod claims;
mod contested_fields;
mod context;
mod custom_health;
mod decryption;
mod deletion;
mod deletion_outcome;
mod deletion_wait;
mod dependency_facts;
mod desired;
mod expression_memory;
mod field_takeover;
mod flux_components;
mod guard;
mod health_check;
mod history;
mod ignore;
mod inputs;
mod kube_config;
mod missing_right;
mod namespace_creation;
mod object_action;
mod order;
mod origin;
mod outcome;
mod ownership;
mod preview;
mod prune;
mod readiness;
mod recreate;
mod references;
mod remote_cluster;
mod removal_order;
mod retry;
mod settings;
mod siblings;
mod snapshot_update;
mod step;
mod stored_form;
mod tracking;
mod trigger;
mod types;
mod unmanaged_annotations;
mod validation;
mod watched_objects;

use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::KustomizationStatus;
use tenure_tenancy::ServiceAccount;

use context::Context;
use desired::Desired;
use prune::Pruned;

pub use claims::list_owners;
pub(crate) use decryption::SOPS;
pub use dependency_facts::{DependencyFacts, FoundDependency, WholeKustomization, find_cycle, find_dependencies};
pub(crate) use desired::find_stage;
pub use expression_memory::{DependencyReadiness, ExpressionMemory, HealthVerdict};
pub(crate) use flux_components::keeps_kinds;
pub(crate) use guard::is_guarded;
pub use guard::{Allowed, Guards, PROTECTED, ProtectedKind};
pub use kube_config::TokenAnswer;
pub use preview::{ChangedField, Difference, DifferenceKind, preview_changes};
pub use references::{find_source_namespace, name_dependency, name_source};
pub use remote_cluster::find_other_cluster;
pub use removal_order::find_owner_cycle;
pub use settings::{ApplySettings, StageKind};
pub use siblings::{
    ObjectTurnover, OtherOwner, Sibling, Survey, WantedBy, find_applied_revision, is_idle, survey_siblings,
};
pub use step::{RenderRequest, Step, SurveyRequest};
pub use trigger::{Observed, is_settled};
pub use types::{
    Attempt, AttemptInput, BackOff, DriftCorrection, DriftedField, HealthWait, MatchedDigests, Memory,
    OngoingDeletions, RenderFailure, Rendered, Retry, ServiceAccountFacts, Snapshot, SourceFacts, UnreportedChanges,
    read_allowed_deletion,
};

/// A plan for a Kustomization: carried out by a ServiceAccount,
///
/// ```
/// fn act(plan: &mut tenure_planner::kustomization::Plan, account: tenure_tenancy::ServiceAccount) {
///     plan.identity = Some(account);
/// }
/// ```
///
/// and never by the controller, nor by the account of its lane.
///
/// ```compile_fail,E0308
/// fn act(plan: &mut tenure_planner::kustomization::Plan) {
///     plan.identity = Some(tenure_tenancy::identity::use_for_bookkeeping());
/// }
/// ```
///
/// ```compile_fail,E0308
/// fn act(plan: &mut tenure_planner::kustomization::Plan, lane: tenure_tenancy::LaneAccount) {
///     plan.identity = Some(lane);
/// }
/// ```
pub type Plan = crate::plan::Plan<Step, ServiceAccount, KustomizationStatus, Memory>;

/// The result of a phase. The error is a plan: the next steps, or the end.
type Phase<T> = Result<T, Box<Plan>>;

/// Plans the next steps for a Kustomization.
///
/// # Panics
/// Never: every snapshot leads to a status.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = match run_phases(snapshot, now) {
        Ok(plan) => plan,
        Err(plan) => *plan,
    };
    inputs::restart_if_overtaken(snapshot, &mut plan);
    validation::add_finalizer(snapshot, &mut plan);
    origin::add_origin(snapshot, &mut plan);
    remote_cluster::write_cluster(snapshot, &mut plan, now);
    plan
}

fn run_phases(snapshot: &Snapshot, now: Timestamp) -> Phase<Plan> {
    if snapshot.kustomization.metadata.deletion_timestamp.is_some() {
        return Ok(deletion::plan(snapshot, now));
    }
    let (mut context, desired, pruned) = run_apply_phases(snapshot, now)?;
    apply_mode::report_differences(&mut context, &desired)?;
    health_check::check_health(&mut context, &desired, &pruned)?;
    let mut plan = outcome::plan_succeeded(context, &desired, &pruned);
    flux_components::report_replaced_components(snapshot, &mut plan, &desired, now);
    Ok(plan)
}

/// Runs all phases until every object is as desired and all unwanted ones are gone. In a mode without writes, it runs them until the would-be changes are known.
fn run_apply_phases(snapshot: &Snapshot, now: Timestamp) -> Phase<(Context<'_>, Desired, Pruned)> {
    let mut context = validation::validate(snapshot, now)?;
    remote_cluster::find_cluster(&mut context)?;
    let artifact = apply_inputs::find_artifact(&context)?;
    readiness::check_dependencies(&mut context, &artifact)?;
    retry::check_due(&mut context)?;
    let rendered = apply_inputs::request_rendering(&context, &artifact)?;
    let desired = desired::find_desired(&mut context, &artifact, rendered)?;
    // The turnover is published as soon as it is known: others wait for it.
    context.memory.turnover = Some(Arc::new(siblings::find_turnover(&context, &desired)));
    namespace_creation::create_namespaces(&mut context, &desired)?;
    apply::apply(&mut context, &desired)?;
    let pruned = prune::prune_objects(&mut context, &desired)?;
    Ok((context, desired, pruned))
}
