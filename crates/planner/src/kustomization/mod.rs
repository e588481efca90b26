//! How a Kustomization is reconciled.
//!
//! The phases, each a file, in the order in which a plan passes them; the first that has something to do ends the plan:
//! admit (may it, by whom, is everything that is set implemented) → prepare (source, dependencies, rendering) → desired (kinds,
//! tenancy, labels) → apply, stage by stage → prune → health → ending (status, events, next time).

mod admit;
mod apply;
mod contest;
mod context;
mod deletion;
mod desired;
mod ending;
mod health_check;
mod history;
mod order;
mod prepare;
mod prune;
mod takeover;
mod tracking;
mod types;

use jiff::Timestamp;

pub use types::{
    ArtifactFacts, Attempt, BackOff, DependencyFacts, DriftedField, Memory, RenderFailure, Rendered, Reversal,
    ServiceAccountFacts, Settled, Snapshot, SourceFacts, Waiting,
};

/// A plan for a Kustomization.
pub type Plan = crate::plan::Plan<Memory>;

/// Ends a phase with a plan: there is something to do, or nothing more can be done.
type Phase<T> = Result<T, Box<Plan>>;

/// What to do about a Kustomization.
///
/// # Panics
/// Never: whatever the snapshot holds becomes a status.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = match phases(snapshot, now) {
        Ok(plan) => plan,
        Err(plan) => *plan,
    };
    admit::add_finalizer(snapshot, &mut plan);
    plan
}

fn phases(snapshot: &Snapshot, now: Timestamp) -> Phase<Plan> {
    if snapshot.kustomization.metadata.deletion_timestamp.is_some() {
        return Ok(deletion::plan(snapshot, now));
    }
    let mut context = admit::admit(snapshot, now)?;
    let artifact = prepare::source(&context)?;
    prepare::dependencies(&context, &artifact)?;
    let rendered = prepare::render(&context, &artifact)?;
    let desired = desired::desired(&mut context, &artifact, rendered)?;
    apply::apply(&mut context, &desired)?;
    let pruned = prune::prune(&mut context, &desired)?;
    health_check::check(&mut context, &desired, &pruned)?;
    Ok(ending::succeeded(context, &desired, &pruned))
}
