//! The rights of a lane in a namespace. A lane has an account of its own. Each namespace in which the lane reconciles something has one RoleBinding for this account.
//! The RoleBinding exists before the lane begins, and for as long as the lane works.
//!
//! The controller itself writes everything. The RoleBinding has a finalizer, so it goes last when its namespace is deleted: until then the lane can finish its work. A
//! user who changes or deletes the RoleBinding stops the lane in that namespace only. The controller puts it back, each time after a longer pause. A RoleBinding of the
//! same name that isn't Tenure's stays untouched. An answer to a write is not enough to start a lane: the controller asks the API server, as the lane, whether the lane
//! may work.

mod desired;
mod minting;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tenure_api::{ObjectId, ObjectMeta, ObjectView};
use tenure_tenancy::{Controller, LaneAccount, Placement, identity};

use crate::answer::{Live, WriteAnswer};
use crate::dependents::{self, Dependents, FinalizerRule, NextWrites};
use crate::outcome::add_duration;
pub use crate::plan::Release;
use crate::plan::{Delete, Event, EventKind, EventPlace, Next, Propagation, Request, Withheld};
pub use desired::LaneOwner;
use desired::{DesiredObjects, ExistingBinding};
use minting::review_minting;
pub use minting::{SharedMinting, read_minting_review, write_minting_review};

/// A plan for a lane's rights in a namespace. The plan has no status of its own: events report its problems.
pub type Plan = crate::plan::Plan<Step, Controller, (), Memory>;

/// The pause after the second restoration of the rights, and the longest pause between two.
const PUT_BACK_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// After this time without a change, the next restoration is immediate again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// The first and the longest pause before the next access review: an API server may not know a new RoleBinding yet.
const REVIEW_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// The time until something that failed, or that a watch has to report, is looked at again.
const RETRY: Duration = Duration::from_secs(30);
/// The time after a write until the controller checks the result: a change of another client at the same moment may have been seen before the write.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// A step for a lane's rights.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// A request that the controller sends.
    Request(Request),
    /// A merge patch that removes finalizers from the RoleBinding. Answer: the attempt's `released`.
    Release(Release),
    /// An access review, as the lane: may it work in the namespace? Answer: the attempt's `reviewed`.
    Review(LaneAccount),
    /// A review, as a lane that serves several namespaces: which administrators' tokens may it request in this one? Answer: the attempt's `minting`.
    ReviewMinting(LaneAccount),
}

impl crate::plan::Step for Step {
    fn is_public(&self) -> bool {
        match self {
            Self::Request(request) => request.is_public(),
            Self::Release(_) | Self::Review(_) | Self::ReviewMinting(_) => false,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(request) => request.fmt(formatter),
            Self::Release(release) => write!(formatter, "let {} go", release.target.id.subject()),
            Self::Review(account) => write!(formatter, "ask whether {account} may work here"),
            Self::ReviewMinting(account) => write!(formatter, "ask which administrators' tokens {account} gets here"),
        }
    }
}

/// The known state of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceState {
    /// The namespace exists.
    Present,
    /// The namespace is being deleted: nothing can be created in it any more.
    Ending,
    /// The state isn't known, or isn't known any more.
    Unknown,
}

/// The input of a plan for a lane's rights in one namespace.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The namespace.
    pub namespace: String,
    /// The known state of the namespace.
    pub state: NamespaceState,
    /// Whether the lane has objects to reconcile in the namespace.
    pub is_worked_in: bool,
    /// The owner of the namespace.
    pub placement: Placement,
    /// The Tenant that owns the lane, if any: the lane's account is collected with it.
    pub owner: Option<LaneOwner>,
    /// Whether admission checks writes in the cluster: then no identity of a tenant has set a finalizer on a managed object.
    pub judges_writes: bool,
    /// The account and the RoleBinding, as watches report them. A missing one is requested with [`Request::Read`].
    pub live: BTreeMap<ObjectId, Live>,
    /// The current attempt, and the answers to its steps.
    pub attempt: Attempt,
    /// The state that the last plan left.
    pub memory: Memory,
}

impl Snapshot {
    /// Checks whether admission prevents tenants from setting finalizers on managed objects in this namespace. The rule holds in tenants' namespaces only.
    fn is_checked(&self) -> bool {
        self.judges_writes && matches!(self.placement, Placement::Tenant(_))
    }
}

/// One attempt, from a trigger until [`Next::Done`].
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Answers to requests.
    pub asked: dependents::Attempt,
    /// The answer to [`Step::Release`].
    pub released: Option<WriteAnswer>,
    /// The answer to [`Step::Review`], or the reason for its absence.
    pub reviewed: Option<Result<bool, String>>,
    /// The answer to [`Step::ReviewMinting`]: names of ServiceAccounts, `*` for all. An error is the API server's message.
    pub minting: Option<Result<Vec<String>, String>>,
}

impl Attempt {
    /// Starts a new attempt.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            asked: dependents::Attempt::new(now, &ObjectMeta::default()),
            released: None,
            reviewed: None,
            minting: None,
        }
    }
}

/// The state that the shell carries from plan to plan. Its loss costs some requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Refused writes that wait for their next try.
    refused: dependents::Memory,
    /// The account whose rights were in place last.
    held: Option<LaneAccount>,
    /// Whether the API server has confirmed the rights, and nothing has changed since.
    confirmed: bool,
    /// The number of denials in a row.
    denials: u32,
    put_back: Option<PutBack>,
    /// The last reported problem.
    reported_problem: String,
    minting: Option<SharedMinting>,
    /// The lane of the last review of administrators' tokens, and the time of the next review.
    minting_due: Option<(LaneAccount, Timestamp)>,
}

/// The restorations of a lane's rights after changes by others: their number, and the time of the last one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PutBack {
    times: u32,
    at: Timestamp,
    /// The earliest time of the next restoration.
    until: Timestamp,
}

impl Memory {
    /// Returns the lane that may work in the namespace now.
    #[must_use]
    pub fn admitted_account(&self) -> Option<&LaneAccount> {
        self.held.as_ref().filter(|_| self.confirmed)
    }

    /// Returns the administrators whose tokens a lane of several namespaces may request in this one.
    #[must_use]
    pub fn shared_minting(&self) -> Option<&SharedMinting> {
        let found = self.minting.as_ref();
        found.filter(|found| self.admitted_account() == Some(&found.lane))
    }

    fn forget_old(&mut self, now: Timestamp) {
        self.refused.forget_old(now);
        self.put_back = self
            .put_back
            .filter(|last| now < add_duration(last.at, FORGOTTEN_AFTER));
    }

    /// Counts a restoration of the rights, and sets the earliest time of the next one.
    fn count_put_back(&mut self, now: Timestamp) {
        let times = self.put_back.map_or(0, |last| last.times).saturating_add(1);
        // The first two restorations are immediate: one for an edit by mistake, and one for a wrong attempt to undo it.
        let pause = match times {
            1 => Duration::ZERO,
            times => lengthen_pause(PUT_BACK_PAUSES, times.saturating_sub(2)),
        };
        self.put_back = Some(PutBack {
            times,
            at: now,
            until: add_duration(now, pause),
        });
    }
}

fn lengthen_pause((first, longest): (Duration, Duration), times: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times.min(16))).min(longest)
}

/// Plans the next steps for a lane's rights in a namespace.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = Plan::idle(format!("Lane/{}", snapshot.namespace), snapshot.memory.clone());
    plan.memory.forget_old(now);
    plan.identity = Some(identity::use_for_bookkeeping());
    let wanting = DesiredObjects::from_snapshot(snapshot);
    plan.watch = vec![wanting.account.make_watched(), wanting.binding.make_watched()];
    if snapshot.state == NamespaceState::Unknown {
        plan.memory.confirmed = false;
        plan.next = Next::Forget;
        return plan;
    }
    let found = wanting.judge_binding(snapshot);
    if !snapshot.is_worked_in {
        plan.memory.confirmed = false;
        return give_back(snapshot, now, &wanting, &found, plan);
    }
    let is_applied = |id| matches!(snapshot.attempt.asked.applied.get(id), Some(WriteAnswer::Done(_)));
    let is_in_place = found == ExistingBinding::AsWanted || is_applied(&wanting.binding.id);
    // A RoleBinding that is being deleted gives rights for as long as it exists.
    if (!is_in_place && found != ExistingBinding::Going) || snapshot.memory.held.as_ref() != Some(&wanting.lane) {
        plan.memory.confirmed = false;
    }
    // The account of another lane in the RoleBinding is no tampering: the namespace has changed hands.
    let is_tampered = !is_in_place && snapshot.memory.held.as_ref() == Some(&wanting.lane);
    if is_tampered
        && !snapshot.attempt.asked.applied.contains_key(&wanting.binding.id)
        && let Some(last) = plan.memory.put_back.filter(|last| now < last.until)
    {
        plan.withheld.push(Withheld {
            what: wanting.binding.id.subject(),
            why: format!(
                "it was changed or deleted from outside {} times; it is put back at {}",
                last.times, last.until
            ),
        });
        plan.next = Next::Done(Some(last.until));
        return plan;
    }
    if found == ExistingBinding::Going && !is_in_place {
        return release_binding(snapshot, now, &wanting, plan);
    }
    put_in_place(snapshot, now, &wanting, is_tampered, plan)
}

/// Writes the account and the RoleBinding, and then asks the API server whether the lane may work in the namespace.
fn put_in_place(
    snapshot: &Snapshot,
    now: Timestamp,
    wanting: &DesiredObjects,
    is_tampered: bool,
    mut plan: Plan,
) -> Plan {
    let mut problems = Vec::new();
    let mut dependents = Dependents {
        owner: "Lane",
        live: &snapshot.live,
        attempt: &snapshot.attempt.asked,
        memory: &mut plan.memory.refused,
        now,
        finalizers: FinalizerRule {
            judges_writes: snapshot.is_checked(),
            listed: "",
        },
        lingering: BTreeMap::new(),
    };
    // In a namespace that is being deleted, the RoleBinding is being deleted as well. Its finalizer holds it, so it can still be corrected.
    let is_going = |id| {
        let live = snapshot.live.get(id).and_then(Live::object);
        live.is_some_and(|live| ObjectView::new(live).is_being_deleted())
    };
    let mut applies = Vec::new();
    let mut objects = vec![&wanting.account];
    if !is_going(&wanting.binding.id) {
        objects.push(&wanting.binding);
    } else if wanting.judge_binding(snapshot) == ExistingBinding::Another {
        applies.extend(dependents.write(&wanting.binding, &mut problems));
    }
    let judge = |live: &Value, object: &crate::dependents::Wanted| wanting.judge_live(live, object);
    let requests = match dependents.plan_writes(objects.into_iter(), judge, &mut plan.withheld, &mut problems) {
        NextWrites::ReadFirst(requests) => requests,
        NextWrites::Apply(mut requests) => {
            requests.extend(applies);
            let is_written =
                |request: &Request| matches!(request, Request::Apply(apply) if apply.id == wanting.binding.id);
            if is_tampered && requests.iter().any(is_written) {
                plan.memory.count_put_back(now);
            }
            requests
        }
    };
    if !requests.is_empty() {
        plan.steps = requests.into_iter().map(Step::Request).collect();
        plan.next = Next::Again;
        return plan;
    }
    if !problems.is_empty() {
        return tell_problems(snapshot, now, problems, plan);
    }
    if !plan.withheld.is_empty() {
        // The account is being deleted; a watch will report its end.
        plan.memory.confirmed = false;
        plan.next = Next::Done(Some(add_duration(now, RETRY)));
        return plan;
    }
    plan.memory.held = Some(wanting.lane.clone());
    if !snapshot.attempt.asked.applied.is_empty() {
        plan.next = Next::Done(Some(add_duration(now, LOOK_AGAIN)));
    }
    if plan.memory.confirmed {
        if wanting.is_shared() {
            review_minting(snapshot, now, wanting, &mut plan);
        }
        return plan;
    }
    match &snapshot.attempt.reviewed {
        None => {
            plan.steps = vec![Step::Review(wanting.lane.clone())];
            plan.next = Next::Again;
        }
        Some(Ok(true)) => {
            plan.memory.confirmed = true;
            plan.memory.denials = 0;
            plan.memory.reported_problem.clear();
            tell_put_back(snapshot, &mut plan);
            if wanting.is_shared() {
                review_minting(snapshot, now, wanting, &mut plan);
            }
        }
        Some(answer) => {
            let pause = lengthen_pause(REVIEW_PAUSES, plan.memory.denials);
            plan.memory.denials = plan.memory.denials.saturating_add(1);
            plan.withheld.push(Withheld {
                what: format!("work in namespace {}", snapshot.namespace),
                why: match answer {
                    Ok(_) => format!("the API server says that {} may not work there (yet)", wanting.lane),
                    Err(problem) => format!("the API server can't be asked as {}: {problem}", wanting.lane),
                },
            });
            plan.next = Next::Done(Some(add_duration(now, pause)));
        }
    }
    plan
}

/// Reports an event beside the RoleBinding about its restoration, once the lane works again and can write it.
fn tell_put_back(snapshot: &Snapshot, plan: &mut Plan) {
    let Some(last) = plan
        .memory
        .put_back
        .filter(|last| last.at >= snapshot.attempt.asked.started)
    else {
        return;
    };
    let next = match last.until.duration_since(last.at) {
        pause if pause.is_zero() => "at once".to_owned(),
        pause => format!("after {} seconds", pause.as_secs()),
    };
    plan.events.push(Event {
        kind: EventKind::Warning,
        reason: "LaneRightsPutBack".to_owned(),
        message: format!(
            "this RoleBinding, without which nothing is reconciled in namespace {}, was changed or deleted from outside; it was put back, and the next time that is done {next}",
            snapshot.namespace
        ),
        annotations: BTreeMap::new(),
        place: EventPlace::Beside,
    });
}

/// Reports for the platform that a lane can't work in a namespace: the lane itself can't report it there.
fn tell_problems(snapshot: &Snapshot, now: Timestamp, problems: Vec<String>, mut plan: Plan) -> Plan {
    plan.memory.confirmed = false;
    let mut message = format!(
        "nothing is reconciled in namespace {}, since its lane has no rights there: {}",
        snapshot.namespace,
        problems.join("; ")
    );
    if snapshot.state == NamespaceState::Ending {
        message.push_str(
            "; it is being deleted, so they can't be given again: remove the finalizers from the remaining objects, or it stays",
        );
    }
    if plan.memory.reported_problem != message {
        plan.memory.reported_problem.clone_from(&message);
        plan.events.push(Event {
            kind: EventKind::Warning,
            reason: "LaneWithoutRights".to_owned(),
            message,
            annotations: BTreeMap::new(),
            place: EventPlace::Platform,
        });
    }
    for problem in problems {
        plan.withheld.push(Withheld {
            what: format!("work in namespace {}", snapshot.namespace),
            why: problem,
        });
    }
    let retry = add_duration(now, RETRY);
    plan.next = Next::Done(Some(plan.memory.refused.next().map_or(retry, |next| next.min(retry))));
    plan
}

/// Handles a RoleBinding that is being deleted in a namespace that stays. It gives rights until it is gone. So it is corrected first, or emptied if the lane reconciles
/// nothing in the namespace. Then it loses its finalizer, and is re-created.
fn release_binding(snapshot: &Snapshot, now: Timestamp, wanting: &DesiredObjects, mut plan: Plan) -> Plan {
    if !snapshot.attempt.asked.applied.contains_key(&wanting.binding.id)
        && let Some(correction) = wanting.correct_going(snapshot)
    {
        plan.steps = vec![Step::Request(correction)];
        plan.next = Next::Again;
        return plan;
    }
    if snapshot.attempt.released.is_none()
        && let Some(release) = wanting.plan_release(snapshot)
    {
        plan.steps = vec![Step::Release(release)];
        plan.next = Next::Again;
        return plan;
    }
    if let Some(message) = wanting.describe_held(snapshot) {
        plan.withheld.push(Withheld {
            what: wanting.binding.id.subject(),
            why: message.clone(),
        });
        if plan.memory.reported_problem != message {
            plan.memory.reported_problem.clone_from(&message);
            plan.events.push(Event {
                kind: EventKind::Warning,
                reason: "LaneRightsHeld".to_owned(),
                message,
                annotations: BTreeMap::new(),
                place: EventPlace::Platform,
            });
        }
    }
    // A watch reports when the RoleBinding is gone.
    plan.next = Next::Done(Some(add_duration(now, RETRY)));
    plan
}

/// Removes the RoleBinding, because the lane reconciles nothing in the namespace any more. Then the namespace can be deleted, too.
fn give_back(
    snapshot: &Snapshot,
    now: Timestamp,
    wanting: &DesiredObjects,
    found: &ExistingBinding,
    mut plan: Plan,
) -> Plan {
    let live = snapshot.live.get(&wanting.binding.id);
    if live.is_none() && snapshot.memory.held.is_some() {
        // Watches find the RoleBinding by its label, and a user may have removed the label.
        plan.steps = vec![Step::Request(Request::Read(wanting.binding.make_watched()))];
        plan.next = Next::Again;
        return plan;
    }
    if let Some(Live::Failed(failure)) = live {
        // The RoleBinding may exist, and would then block the deletion of its namespace for ever.
        plan.withheld.push(Withheld {
            what: wanting.binding.id.subject(),
            why: format!("it is unknown whether it exists: {}", failure.message),
        });
        plan.next = Next::Done(Some(add_duration(now, RETRY)));
        return plan;
    }
    let Some(live) = live.and_then(Live::object).filter(|live| desired::is_lanes(live)) else {
        plan.next = Next::Forget;
        return plan;
    };
    let is_going = *found == ExistingBinding::Going || ObjectView::new(live).is_being_deleted();
    if is_going {
        return release_binding(snapshot, now, wanting, plan);
    }
    plan.next = Next::Done(Some(add_duration(now, RETRY)));
    if !snapshot.attempt.asked.deleted.contains_key(&wanting.binding.id) {
        plan.steps = vec![Step::Request(Request::Delete(Delete {
            target: wanting.binding.make_watched(),
            uid: ObjectView::new(live).find_text("/metadata/uid").map(str::to_owned),
            resource_version: None,
            propagation: Propagation::Background,
            why: "nothing is reconciled in the namespace any more".to_owned(),
        }))];
        plan.next = Next::Again;
    }
    plan
}

/// Writes the lane's review about itself: may it write events in a namespace? Every lane may, with whatever kinds, by the role that gives all its other rights.
#[must_use]
pub fn write_review(namespace: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "namespace": namespace, "verb": "create", "group": "", "resource": "events",
        } },
    })
}

/// Reads the answer to [`write_review`].
#[must_use]
pub fn read_review(answer: &Value) -> bool {
    answer
        .pointer("/status/allowed")
        .and_then(Value::as_bool)
        .unwrap_or(false)
}

#[cfg(test)]
mod tests;
