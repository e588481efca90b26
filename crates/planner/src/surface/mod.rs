//! How a Surface is reconciled: it becomes GitRepositories and Kustomizations beside it, and its status tells what became of them.
//!
//! What it generates is written by the account of its lane, with its narrow rights on these two kinds; what the repositories contain is
//! applied by the Kustomizations, as the surface's identity. A Surface needs no finalizer: what it generates is owned by it and
//! collected with it, and what the Kustomizations then do with their objects is their deletion policy's to say. The keys of its sources are
//! written by an account of their own ([`deploy_key`]), and never by the lane.

mod children;
pub mod deploy_key;
pub mod ownership;
mod status;
mod validate;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::metadata::SURFACE_LABEL;
use tenure_api::{ObjectId, ObjectView, Surface, SurfaceStatus};
use tenure_tenancy::surface::decide_tier;
use tenure_tenancy::{DenialReason, LaneAccount, Placement, identity};

use crate::answer::Live;
use crate::dependents::{self, Dependents, FinalizerRule, Verdict, Wanted, Writes};
pub use crate::dependents::{Attempt, Memory};
use crate::plan::{Next, Request};
pub use children::name_kustomizations;
pub(crate) use children::name_repository;

/// A plan for a Surface: carried out by the account of its lane,
///
/// ```
/// fn act(plan: &mut tenure_planner::surface::Plan, account: tenure_tenancy::LaneAccount) {
///     plan.identity = Some(account);
/// }
/// ```
///
/// and never by the controller, whose rights are in all namespaces.
///
/// ```compile_fail,E0308
/// fn act(plan: &mut tenure_planner::surface::Plan) {
///     plan.identity = Some(tenure_tenancy::identity::use_for_bookkeeping());
/// }
/// ```
pub type Plan = crate::plan::Plan<Request, LaneAccount, SurfaceStatus, Memory>;

/// How soon it is asked again who may act, when nothing told that it changed.
const IDENTITY_INTERVAL: Duration = Duration::from_secs(30);
/// How soon a refused write is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// What is known when a plan is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The Surface as last read, status included.
    pub surface: Surface,
    /// Whose its namespace is.
    pub placement: Placement,
    /// The GitRepositories and Kustomizations of its namespace: all that bear the label `tenure.dev/surface` with its name. One that
    /// it wants and that is not here is asked for by [`Request::Read`].
    #[serde(default)]
    pub live: BTreeMap<ObjectId, Live>,
    /// Why the lane of its namespace is down, in words; nothing of it is reconciled meanwhile.
    #[serde(default)]
    pub lane_trouble: Option<String>,
    /// What came of the last try to take from a platform's chart what is its own ([`ownership::find_due`]).
    #[serde(default)]
    pub ownership: Option<ownership::Tried>,
    /// What is known of the keys of its sources, by the sources' names ([`deploy_key::list_due`]).
    #[serde(default)]
    pub keys: BTreeMap<String, deploy_key::KeyFacts>,
    /// The Secrets beside it with which approved access was delivered, by the names of the sources that are of such a project.
    #[serde(default)]
    pub access: BTreeMap<String, String>,
    /// Whether admission checks writes in the cluster: then no identity of a tenant has set a finalizer on a managed object.
    #[serde(default)]
    pub is_guarded: bool,
    /// This attempt, and the answers to its steps.
    pub attempt: Attempt,
    /// What the last plan left.
    #[serde(default)]
    pub memory: Memory,
}

impl Snapshot {
    /// Whether something besides what it generates has changed so that another plan could say something else.
    #[must_use]
    pub fn is_overtaken(&self, surface: &Surface, placement: &Placement, lane_trouble: Option<&str>) -> bool {
        let metadata = &surface.metadata;
        self.attempt.generation != metadata.generation
            || self.attempt.requested_at != crate::read_requested_at(metadata)
            || self.surface.metadata.uid != metadata.uid
            || self.surface.metadata.deletion_timestamp != metadata.deletion_timestamp
            || self.placement != *placement
            || self.lane_trouble.as_deref() != lane_trouble
    }
}

/// What to do about a Surface.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let metadata = &snapshot.surface.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let mut plan = Plan::idle(name_subject(snapshot), snapshot.memory.clone());
    plan.memory.forget_old(now);
    if metadata.deletion_timestamp.is_some() {
        plan.next = Next::Forget;
        return plan;
    }
    let spec = &snapshot.surface.spec;
    let tier = match decide_tier(&snapshot.placement, namespace) {
        Ok(tier) => tier,
        Err(denial) => {
            return status::tell_refusal(
                snapshot,
                now,
                None,
                denial.reason.as_str(),
                denial.message,
                Some(IDENTITY_INTERVAL),
            );
        }
    };
    let account =
        match identity::decide_for_surface(&snapshot.placement, namespace, spec.service_account_name.as_deref()) {
            Ok(account) => account,
            Err(denial) => {
                let again = (denial.reason == DenialReason::IdentityMissing).then_some(IDENTITY_INTERVAL);
                return status::tell_refusal(snapshot, now, Some(tier), denial.reason.as_str(), denial.message, again);
            }
        };
    if let Err(denial) = validate::validate_surface(&snapshot.surface, &snapshot.placement) {
        return status::tell_refusal(snapshot, now, Some(tier), denial.reason.as_str(), denial.message, None);
    }
    if snapshot.attempt.generation != metadata.generation
        || snapshot.attempt.requested_at != crate::read_requested_at(metadata)
    {
        plan.next = Next::Restart;
        return plan;
    }
    if let Some(trouble) = &snapshot.lane_trouble {
        return status::tell_lane_trouble(snapshot, now, trouble);
    }
    let children = children::list_children(snapshot, tier, account.name());
    plan.identity = Some(identity::decide_for_lane(&snapshot.placement, namespace));
    plan.watch = children.iter().map(|child| child.wanted.watched()).collect();
    match write(snapshot, now, &children, &mut plan) {
        Err(problems) => status::tell_not_written(snapshot, now, tier, &account, &children, plan, problems),
        Ok(()) if !plan.steps.is_empty() => {
            plan.next = Next::Again;
            plan
        }
        Ok(()) => status::tell_written(snapshot, now, tier, &account, &children, plan),
    }
}

/// Whether the Surface may live where it does, somebody acts for it, and its spec makes sense: what nothing is made from otherwise.
fn is_valid(snapshot: &Snapshot) -> bool {
    let surface = &snapshot.surface;
    let namespace = surface.metadata.namespace.as_deref().unwrap_or_default();
    let named = surface.spec.service_account_name.as_deref();
    identity::decide_for_surface(&snapshot.placement, namespace, named).is_ok()
        && validate::validate_surface(surface, &snapshot.placement).is_ok()
}

/// What to write and delete; an error names what cannot be.
fn write(
    snapshot: &Snapshot,
    now: Timestamp,
    children: &[children::Child],
    plan: &mut Plan,
) -> Result<(), Vec<String>> {
    let mut problems = Vec::new();
    let mut dependents = Dependents {
        owner: "Surface",
        live: &snapshot.live,
        attempt: &snapshot.attempt,
        memory: &mut plan.memory,
        now,
        finalizers: FinalizerRule {
            is_guarded: snapshot.is_guarded,
            listed: "",
        },
        lingering: BTreeMap::new(),
    };
    let judge = |live: &Value, wanted: &Wanted| {
        if !is_child(snapshot, live) {
            Verdict::Foreign("was not made by this surface: rename the source, or delete it")
        } else if dependents::is_as_desired(live, &wanted.object) {
            Verdict::AsWanted
        } else {
            Verdict::Differs
        }
    };
    let wanted = children.iter().map(|child| &child.wanted);
    let applies = match dependents.writes(wanted, judge, &mut plan.withheld, &mut problems) {
        Writes::ReadFirst(reads) => {
            plan.steps = reads;
            return Ok(());
        }
        // Nothing is deleted while something could not be written.
        Writes::Apply(_) if !problems.is_empty() => return Err(problems),
        Writes::Apply(applies) => applies,
    };
    let mut stale = dependents.deletions(
        |id| children.iter().any(|child| child.wanted.id == *id),
        |live| is_child(snapshot, live),
        "the surface no longer has this source",
        &mut problems,
    );
    // Kustomizations before the repositories that they use.
    stale.sort_by_key(|delete| delete.target.id.kind != "Kustomization");
    let mut lingering = Vec::new();
    let held = dependents.neutralize_lingering(
        |id| children.iter().any(|child| child.wanted.id == *id),
        |live| is_child(snapshot, live),
        &mut lingering,
    );
    lingering.extend(dependents.list_lingering());
    plan.steps = applies;
    plan.steps.extend(held);
    plan.steps.extend(stale.into_iter().map(Request::Delete));
    if plan.steps.is_empty() {
        problems.extend(lingering);
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Whether an object was made by this surface: by label and by ownerReference with its uid.
fn is_child(snapshot: &Snapshot, object: &Value) -> bool {
    let metadata = &snapshot.surface.metadata;
    ObjectView::of(object).find_label(SURFACE_LABEL) == metadata.name.as_deref()
        && dependents::is_owned_by(object, "Surface", metadata)
}

fn name_subject(snapshot: &Snapshot) -> String {
    crate::ending::name_subject("Surface", &snapshot.surface.metadata)
}
