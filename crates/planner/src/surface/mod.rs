//! The reconciliation of a Surface: it generates GitRepositories and Kustomizations in the Surface's namespace, and the Surface's status reports their state.
//!
//! The account of the lane writes the generated objects, with narrow rights on these two kinds. The Kustomizations apply the content of the repositories, as the
//! surface's identity. A Surface needs no finalizer: it owns the generated objects, and they are collected with it. The deletion policy of each Kustomization then
//! decides about its objects. An account of its own writes the keys of the sources ([`deploy_key`]), and the lane never does.

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
use crate::dependents::{self, Dependents, FinalizerRule, NextWrites, Verdict, Wanted};
pub use crate::dependents::{Attempt, Memory};
use crate::plan::{Next, Request};
pub use children::{name_kustomizations, name_repository};

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

/// The time until the identity is decided again, if no watch reported a change.
const IDENTITY_INTERVAL: Duration = Duration::from_secs(30);
/// The time until a refused write is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The input of a plan for a Surface.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The Surface as last read, status included.
    pub surface: Surface,
    /// The owner of the Surface's namespace.
    pub placement: Placement,
    /// The GitRepositories and Kustomizations of the namespace whose label `tenure.dev/surface` has the Surface's name. A wanted one that is missing here is requested
    /// with [`Request::Read`].
    #[serde(default)]
    pub live: BTreeMap<ObjectId, Live>,
    /// The reason why the lane of the namespace is down, if it is. Nothing is reconciled meanwhile.
    #[serde(default)]
    pub lane_trouble: Option<String>,
    /// The result of the last trial to take a platform chart's fields over ([`ownership::find_due`]).
    #[serde(default)]
    pub ownership: Option<ownership::TrialResult>,
    /// The known facts about the keys of the sources, by the sources' names ([`deploy_key::list_due`]).
    #[serde(default)]
    pub keys: BTreeMap<String, deploy_key::KeyFacts>,
    /// The Secrets in the Surface's namespace that hold approved access, by the names of the sources of such a project.
    #[serde(default)]
    pub access: BTreeMap<String, String>,
    /// Whether admission checks writes in the cluster: then no identity of a tenant has set a finalizer on a managed object.
    #[serde(default)]
    pub judges_writes: bool,
    /// The current attempt, and the answers to its steps.
    pub attempt: Attempt,
    /// The state that the last plan left.
    #[serde(default)]
    pub memory: Memory,
}

impl Snapshot {
    /// Checks whether a fact other than the generated objects has changed since the last plan, so that another plan could differ.
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

/// Plans the next steps for a Surface.
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
            return status::report_refusal(
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
                return status::report_refusal(
                    snapshot,
                    now,
                    Some(tier),
                    denial.reason.as_str(),
                    denial.message,
                    again,
                );
            }
        };
    if let Err(denial) = validate::validate_surface(&snapshot.surface, &snapshot.placement) {
        return status::report_refusal(snapshot, now, Some(tier), denial.reason.as_str(), denial.message, None);
    }
    if snapshot.attempt.generation != metadata.generation
        || snapshot.attempt.requested_at != crate::read_requested_at(metadata)
    {
        plan.next = Next::Restart;
        return plan;
    }
    if let Some(trouble) = &snapshot.lane_trouble {
        return status::report_lane_problem(snapshot, now, trouble);
    }
    let children = children::list_children(snapshot, tier, account.name());
    plan.identity = Some(identity::decide_for_lane(&snapshot.placement, namespace));
    plan.watch = children.iter().map(|child| child.wanted.make_watched()).collect();
    match write(snapshot, now, &children, &mut plan) {
        Err(problems) => status::report_write_failures(snapshot, now, tier, &account, &children, plan, problems),
        Ok(()) if !plan.steps.is_empty() => {
            plan.next = Next::Again;
            plan
        }
        Ok(()) => status::report_success(snapshot, now, tier, &account, &children, plan),
    }
}

/// Checks whether the Surface may live in its namespace, has an identity, and has a valid spec. Otherwise nothing is generated.
fn is_valid(snapshot: &Snapshot) -> bool {
    let surface = &snapshot.surface;
    let namespace = surface.metadata.namespace.as_deref().unwrap_or_default();
    let named = surface.spec.service_account_name.as_deref();
    identity::decide_for_surface(&snapshot.placement, namespace, named).is_ok()
        && validate::validate_surface(surface, &snapshot.placement).is_ok()
}

/// Writes and deletes the generated objects; an error names the objects that failed.
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
            judges_writes: snapshot.judges_writes,
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
    let applies = match dependents.plan_writes(wanted, judge, &mut plan.withheld, &mut problems) {
        NextWrites::ReadFirst(reads) => {
            plan.steps = reads;
            return Ok(());
        }
        // Nothing is deleted while a write has failed.
        NextWrites::Apply(_) if !problems.is_empty() => return Err(problems),
        NextWrites::Apply(applies) => applies,
    };
    let mut stale = dependents.plan_deletions(
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

/// Checks whether an object was made by this surface: by label and by ownerReference with its uid.
fn is_child(snapshot: &Snapshot, object: &Value) -> bool {
    let metadata = &snapshot.surface.metadata;
    ObjectView::new(object).find_label(SURFACE_LABEL) == metadata.name.as_deref()
        && dependents::is_owned_by(object, "Surface", metadata)
}

fn name_subject(snapshot: &Snapshot) -> String {
    crate::outcome::name_subject("Surface", &snapshot.surface.metadata)
}
