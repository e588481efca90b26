//! The cluster to which a Kustomization applies: this one, or that of `spec.kubeConfig`. The module decides which cluster an inventory belongs to, and handles a change
//! of the cluster.
//!
//! A step of the plan reads the address (`kube_config`), as the ServiceAccount that the Kustomization acts as here. An inventory names objects, and every cluster may
//! have objects of the same names. So the status also names the cluster of the inventory. In another cluster, the inventory is neither pruned nor forgotten until a
//! user has decided about the change. No other credentials are used for another cluster.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::metadata::CLUSTER;
use tenure_api::{Kustomization, KustomizationStatus, ObjectId, ObjectMeta, reason};
use tenure_tenancy::{Placement, ServiceAccount};

use super::context::Context;
use super::kube_config::UnknownTarget;
use super::step::Step;
use super::types::Snapshot;
use super::{Phase, Plan, inputs, kube_config, outcome, prune};
use crate::answer::Live;
use crate::outcome::join_names;
use crate::plan::{EventKind, Next, Request, Watched};
use crate::target::Target;

/// The name of this cluster in the annotation.
const HERE: &str = "here";
/// The most bytes of names in an event.
const NAMED: usize = 700;

impl Snapshot {
    /// Returns the placement that bounds the writes. In another cluster, the rights of its user are the bound.
    pub(crate) fn find_bounds(&self) -> Cow<'_, Placement> {
        if is_elsewhere(self) {
            Cow::Owned(self.placement.elsewhere())
        } else {
            Cow::Borrowed(&self.placement)
        }
    }

    /// Finds the known state of an object of this cluster.
    pub(super) fn find_here(&self, id: &ObjectId) -> Option<&Live> {
        if is_elsewhere(self) {
            self.here.get(id)
        } else {
            self.live.get(id)
        }
    }
}

/// Checks whether the Kustomization applies to another cluster.
pub(super) fn is_elsewhere(snapshot: &Snapshot) -> bool {
    snapshot.kustomization.spec.kube_config.is_some()
}

/// Lists the objects to read and watch in this cluster besides the applied ones.
pub(super) fn list_beside(snapshot: &Snapshot) -> Vec<Watched> {
    if is_elsewhere(snapshot) {
        return Vec::new();
    }
    inputs::list_targets(snapshot)
}

/// Lists the objects to read and watch in this cluster while the Kustomization applies to another one.
pub(super) fn list_local_objects(snapshot: &Snapshot) -> Vec<Watched> {
    if !is_elsewhere(snapshot) {
        return Vec::new();
    }
    let mut here = inputs::list_targets(snapshot);
    here.extend(kube_config::find_object(snapshot));
    here.sort();
    here.dedup();
    here
}

/// Returns a step that reads an object of this cluster.
pub(super) fn read_here(snapshot: &Snapshot, target: Watched) -> Step {
    if is_elsewhere(snapshot) {
        Step::ReadHere(target)
    } else {
        Step::Ask(Request::Read(target))
    }
}

/// The reason why nothing can be applied to the target cluster.
pub(super) enum TargetError {
    /// The plan must execute this step first.
    Ask(Box<Step>),
    /// The address or the credentials are missing or unusable.
    Failed {
        /// The message.
        message: String,
        /// True if an answer is missing, so that the same plan may succeed later.
        transient: bool,
    },
    /// The inventory is of another cluster, and no user has explained the change.
    Changed(String),
    /// The inventory is of another cluster, and a user has decided that its objects stay there.
    Left,
}

/// Returns the cluster to apply to, if it isn't this one.
pub(super) fn resolve_target(
    snapshot: &Snapshot,
    identity: &ServiceAccount,
) -> Result<Option<Arc<Target>>, TargetError> {
    let target = kube_config::read_target(snapshot, identity).map_err(|unknown| match unknown {
        UnknownTarget::Ask(step) => TargetError::Ask(step),
        UnknownTarget::Failed { message, transient } => TargetError::Failed { message, transient },
    })?;
    let target = target.map(Arc::new);
    let (Some(before), now) = (find_inventory_cluster(snapshot), target.as_deref().map(Target::cluster)) else {
        return Ok(target);
    };
    if before == now {
        return Ok(target);
    }
    let now = now.as_deref().unwrap_or(HERE);
    match read_cluster(&snapshot.kustomization.metadata) {
        Some(("same", recorded)) if recorded == now => Ok(target),
        Some(("new", recorded)) if recorded == now => Err(TargetError::Left),
        _ => Err(TargetError::Changed(format!(
            "the inventory is of {}, and {} leads to {}: nothing is applied or deleted in either. If that is the same cluster by another \
             address or authority, annotate this Kustomization with {CLUSTER}: \"same {now}\", and its objects are kept and pruned as \
             before; if it is another cluster, with {CLUSTER}: \"new {now}\", and what is in the old one is left there; or go back, and \
             delete it there first",
            before.as_deref().map_or("this cluster", |_| "another cluster"),
            if is_elsewhere(snapshot) {
                "spec.kubeConfig"
            } else {
                "a spec without kubeConfig"
            },
            target
                .as_deref()
                .map_or_else(|| "this one".to_owned(), ToString::to_string),
        ))),
    }
}

/// Reads the annotation with which a user decides about a changed target cluster: the decision, and the cluster for which it holds.
pub(super) fn read_cluster(metadata: &ObjectMeta) -> Option<(&str, &str)> {
    let annotation = metadata.annotations.as_ref()?.get(CLUSTER)?;
    let (word, cluster) = annotation.trim().split_once(' ')?;
    Some((word, cluster.trim()))
}

fn has_entries(status: Option<&KustomizationStatus>) -> bool {
    let inventory = status.and_then(|status| status.inventory.as_ref());
    inventory.is_some_and(|inventory| !inventory.entries.is_empty())
}

/// Returns the cluster of the inventory: `None` if the inventory is empty, and `Some(None)` for this cluster.
fn find_inventory_cluster(snapshot: &Snapshot) -> Option<Option<String>> {
    let status = snapshot.kustomization.status.as_ref();
    has_entries(status).then(|| find_other_cluster(&snapshot.kustomization))
}

/// Returns the other cluster that a Kustomization's inventory belongs to, by its status. Returns nothing for an inventory of this cluster.
#[must_use]
pub fn find_other_cluster(kustomization: &Kustomization) -> Option<String> {
    let conditions = &kustomization.status.as_ref()?.conditions;
    let condition = condition::find(conditions, condition::APPLIED_ELSEWHERE)?;
    condition.message.split_whitespace().next().map(str::to_owned)
}

/// Sets the target cluster of the plan, and checks that the inventory belongs to this cluster.
pub(super) fn find_cluster(context: &mut Context<'_>) -> Phase<()> {
    match resolve_target(context.snapshot, &context.identity) {
        Ok(target) => {
            let cluster = target.as_deref().map(Target::cluster);
            if context.memory.cluster != cluster {
                // These facts were found in another cluster.
                context.memory.settled.clear();
                context.memory.reversals.clear();
                context.memory.backed_off.clear();
                context.memory.confirmed.clear();
                context.memory.waiting = None;
                context.memory.cluster = cluster;
            }
            if target.is_some() {
                context.target = target;
                context.watch = super::watched_objects::list_tracked(context.snapshot);
            }
            Ok(())
        }
        Err(TargetError::Ask(step)) => Err(context.fork().plan_again(vec![*step])),
        Err(TargetError::Failed { message, transient }) => {
            let reason = reason::RECONCILIATION_FAILED;
            Err(outcome::fail_with(context.fork(), reason, message, transient))
        }
        Err(TargetError::Changed(message)) => {
            Err(outcome::plan_stalled(context.fork(), reason::CLUSTER_CHANGED, message))
        }
        Err(TargetError::Left) => Err(leave_cluster(context.fork())),
    }
}

/// Begins an inventory of another cluster, and reports which objects stay in the old one.
fn leave_cluster(context: Context<'_>) -> Box<Plan> {
    let snapshot = context.snapshot;
    let mut status = context.status();
    let left: Vec<String> = prune::list_entries(status.inventory.as_ref())
        .iter()
        .map(|target| target.id.subject())
        .collect();
    status.inventory = None;
    condition::remove(&mut status.conditions, condition::APPLIED_ELSEWHERE);
    let message = format!(
        "these are left in the cluster that was applied to before: {}",
        join_names(&left, NAMED)
    );
    let mut plan = context.into_plan(Next::Restart);
    plan.events.push(outcome::make_event(
        EventKind::Warning,
        reason::CLUSTER_CHANGED,
        message,
        None,
    ));
    plan.status = outcome::find_status_change(snapshot, &status);
    Box::new(plan)
}

/// Writes the cluster of the inventory into the status, with the write of the inventory.
pub(super) fn write_cluster(snapshot: &Snapshot, plan: &mut Plan, now: Timestamp) {
    let metadata = &snapshot.kustomization.metadata;
    if metadata.deletion_timestamp.is_some() {
        return;
    }
    let before = snapshot.kustomization.status.as_ref();
    let Some(mut status) = plan.status.clone().or_else(|| before.cloned()) else {
        return;
    };
    let has_entries = has_entries(Some(&status));
    match &plan.target {
        Some(target) if has_entries => {
            let message = format!(
                "{} is the cluster that the inventory is of: the address and the authority of spec.kubeConfig",
                target.cluster()
            );
            let entry = (
                condition::APPLIED_ELSEWHERE,
                ConditionStatus::True,
                reason::OTHER_CLUSTER,
                message.as_str(),
            );
            crate::outcome::set_condition(&mut status.conditions, metadata, now, entry);
        }
        // The inventory is empty or belongs to this cluster, so the condition is removed. It stays while the inventory belongs to another cluster.
        Some(_) => condition::remove(&mut status.conditions, condition::APPLIED_ELSEWHERE),
        None if !is_elsewhere(snapshot) && (!has_entries || is_recorded_here(snapshot)) => {
            condition::remove(&mut status.conditions, condition::APPLIED_ELSEWHERE);
        }
        None => return,
    }
    if let Some(changed) = outcome::find_status_change(snapshot, &status) {
        plan.status = Some(changed);
    }
}

fn is_recorded_here(snapshot: &Snapshot) -> bool {
    read_cluster(&snapshot.kustomization.metadata) == Some(("same", HERE))
}
