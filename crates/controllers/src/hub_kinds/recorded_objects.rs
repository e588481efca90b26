//! Code that the reconcilers of Packages and PackageSources share: the objects that their statuses record, as watches and answers report them, and the
//! execution of a plan about them. It makes no choice.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use ring::rand::{SecureRandom as _, SystemRandom};
use tenure_api::{ObjectId, ObjectMeta};
use tenure_cluster::{Client, ClusterError, EventHistory};
use tenure_planner::recorded_objects::{Attempt, Replace, Step};
use tenure_planner::{Failure, FinalizerChange, Live, Next, Plan, Request, WriteAnswer};
use tenure_tenancy::ServiceAccount;

use crate::cluster_view::key::Key;
use crate::cluster_view::live_objects::{LiveObjects, ObservedState, WatchedObjects, read_revision};
use crate::hub::Hub;
use crate::reconcile_loop::cluster_answers::{self, RefusalDetail};
use crate::reconcile_loop::object_writer::{ObjectWriter, WriteResult};
use crate::reconcile_loop::reconciled::Reconciled;
use crate::reconcile_loop::step_executor::{execute_steps, fail_request};

/// The pause before another try when the operating system gives no randomness.
const WITHOUT_RANDOMNESS: std::time::Duration = std::time::Duration::from_secs(30);

/// The objects that one Package or PackageSource records or is about to create.
#[derive(Debug)]
pub(super) struct RecordedObjects {
    held: WatchedObjects,
    /// Objects that this attempt read or wrote, with their revisions: watches may lag behind.
    answered: BTreeMap<ObjectId, (Option<u64>, ObservedState)>,
    /// The objects from which the last plan was made.
    observed: BTreeMap<ObjectId, ObservedState>,
    /// Whether a watch reported a later state than an answer of this attempt. An attempt writes an object once, so another attempt has to look at it.
    is_overtaken: bool,
}

impl RecordedObjects {
    pub(super) fn new(live: Arc<LiveObjects>, key: Key) -> Self {
        Self {
            held: WatchedObjects::new(live, key),
            answered: BTreeMap::new(),
            observed: BTreeMap::new(),
            is_overtaken: false,
        }
    }

    /// Returns the known state of the objects for the next plan.
    pub(super) fn observe(&mut self) -> BTreeMap<ObjectId, Live> {
        self.observed.clear();
        for id in self.held.list_watched() {
            if let Some(found) = self.held.find_newer(id, None) {
                self.observed.insert(id.clone(), found);
            }
        }
        for (id, (revision, answer)) in &self.answered {
            let seen = self.observed.get(id);
            let newer = seen.filter(|_| self.held.find_newer(id, *revision).is_some());
            match newer {
                Some(newer) => self.is_overtaken |= !newer.is_same(answer) && newer.read() != answer.read(),
                None => {
                    self.observed.insert(id.clone(), answer.clone());
                }
            }
        }
        let parsed = self.observed.iter().map(|(id, known)| (id.clone(), known.read()));
        parsed.collect()
    }

    /// Checks whether one of the changed objects differs from its state in the last plan. The report of an own write doesn't.
    pub(super) fn has_news(&self, changed: &HashSet<ObjectId>) -> bool {
        changed.iter().any(|id| {
            let Some(now) = self.held.last_reported(id) else {
                return false;
            };
            let before = self.observed.get(id);
            before.is_none_or(|before| !before.is_same(&now) && before.read() != now.read())
        })
    }

    /// Begins another attempt at once after a plan that ends one, if an object has changed since the attempt wrote it. The watch may not report that
    /// change again.
    pub(super) fn check_end(&self, next: Next) -> Next {
        match next {
            Next::Done(_) if self.is_overtaken => Next::Restart,
            next => next,
        }
    }

    /// Forgets the answers of the last attempt.
    pub(super) fn begin_attempt(&mut self) {
        self.answered.clear();
        self.is_overtaken = false;
    }

    /// Stops all watching, and forgets all objects.
    pub(super) fn release(&mut self) {
        self.held.release();
        self.answered.clear();
        self.observed.clear();
        self.is_overtaken = false;
    }

    fn record_answer(&mut self, id: ObjectId, answer: Live) {
        let revision = answer.object().map(read_revision);
        let known = ObservedState::from_answer(answer);
        if let (Some(revision), ObservedState::Object(json)) = (revision, &known) {
            self.held.store_answer(&id, revision, Arc::clone(json));
        }
        self.answered.insert(id, (revision, known));
    }
}

/// Executes a plan for an object. Returns whether the object still exists. `remember` stores the plan's memory, unless nothing of the plan may be
/// remembered.
pub(super) async fn carry_out<R, M>(
    hub: &Hub,
    object: &R,
    mut plan: Plan<Step, ServiceAccount, R::Status, M>,
    (objects, attempt): (&mut RecordedObjects, &mut Attempt),
    event_history: &mut EventHistory,
    remember: impl FnOnce(M),
) -> Result<bool, ClusterError>
where
    R: Reconciled<Home = Hub>,
{
    let writer = ObjectWriter::new(object);
    if let Some(change) = &plan.finalizer {
        if matches!(change, FinalizerChange::Remove(_)) {
            // While the object exists.
            writer.write_events(hub, event_history, &plan.events).await;
            writer.change_finalizer(hub, change).await?;
            return Ok(true);
        }
        if writer.change_finalizer(hub, change).await? == WriteResult::Gone {
            return Ok(false);
        }
    }
    // An intent that isn't stored has no effect.
    if plan.status_first
        && let Some(status) = &plan.status
        && writer.write_status(hub, status).await? == WriteResult::Gone
    {
        return Ok(false);
    }
    remember(plan.memory);
    let platform = &hub.context.settings.platform_namespace;
    match &plan.identity {
        Some(account) => {
            let lane = hub.find_lane(platform).await.access();
            if matches!(plan.next, Next::Wait(_) | Next::Done(_)) {
                objects.held.hold(account, &lane, &plan.watch).await;
            } else {
                // Before the writes: a watch reports each change once, to the holders that it has at that time.
                objects.held.watch_also(account, &lane, &plan.watch).await;
            }
        }
        None => objects.held.release(),
    }
    if let Some(account) = plan.identity.take()
        && !plan.steps.is_empty()
    {
        match hub.act_as(&account.into(), platform).await {
            Ok(client) => execute(hub, &client, plan.steps, plan.deadline, objects, attempt).await,
            Err(error) => fail_steps(plan.steps, &cluster_answers::read_failure(&error), objects, attempt),
        }
    }
    if let Some(status) = plan.status.as_ref().filter(|_| !plan.status_first) {
        writer.write_status(hub, status).await?;
    }
    writer.write_events(hub, event_history, &plan.events).await;
    Ok(true)
}

/// Executes the steps in their order.
async fn execute(
    hub: &Hub,
    client: &Client,
    steps: Vec<Step>,
    deadline: Option<Timestamp>,
    objects: &mut RecordedObjects,
    attempt: &mut Attempt,
) {
    let mut requests: Vec<Request> = Vec::new();
    for step in steps {
        match step {
            Step::Request(request) => requests.push(request),
            Step::Replace(replace) => {
                send(hub, client, &std::mem::take(&mut requests), deadline, objects, attempt).await;
                let (id, answer) = send_replacement(client, replace).await;
                if let Some((id, live)) = attempt.take_replaced(id, answer) {
                    objects.record_answer(id, live);
                }
            }
        }
    }
    send(hub, client, &requests, deadline, objects, attempt).await;
}

/// Answers the steps of an account that has no token.
fn fail_steps(steps: Vec<Step>, failure: &Failure, objects: &mut RecordedObjects, attempt: &mut Attempt) {
    for step in steps {
        match step {
            Step::Request(request) => {
                for answer in fail_request(&request, failure.reason.clone(), &failure.message) {
                    if let Some((id, live)) = attempt.take(answer) {
                        objects.record_answer(id, live);
                    }
                }
            }
            Step::Replace(replace) => {
                // A failed write says nothing about the object.
                let failed = WriteAnswer::Failed(failure.clone());
                let _nothing_is_implied = attempt.take_replaced(replace.target.id, failed);
            }
        }
    }
}

async fn send(
    hub: &Hub,
    client: &Client,
    requests: &[Request],
    deadline: Option<Timestamp>,
    objects: &mut RecordedObjects,
    attempt: &mut Attempt,
) {
    for answer in execute_steps(&hub.context.clients, client, requests, deadline, None).await {
        if let Some((id, live)) = attempt.take(answer) {
            objects.record_answer(id, live);
        }
    }
}

async fn send_replacement(client: &Client, replace: Replace) -> (ObjectId, WriteAnswer) {
    let id = replace.target.id;
    let answer = client.replace(&replace.object.0, &replace.manager).await;
    let answer = cluster_answers::read_write(answer, &RefusalDetail::about(client, &id));
    (id, answer)
}

/// Drops the parsed objects of an attempt that has ended. The next attempt reads them again.
pub(super) fn drop_objects(attempt: &mut Attempt, metadata: &ObjectMeta) {
    // Its trigger stays.
    let mut kept = Attempt::begin(attempt.started, metadata);
    kept.generation = attempt.generation;
    kept.requested_at = attempt.requested_at.take();
    *attempt = kept;
}

/// Returns 256 random bits, or `None` if the operating system has none.
pub(super) fn make_proof() -> Option<String> {
    let mut bytes = [0_u8; 32];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => Some(hex::encode(bytes)),
        Err(_) => None,
    }
}

/// Returns the next time if the operating system gives no randomness. A user could guess a proof without it.
pub(super) fn wait_for_randomness(key: &Key) -> Next {
    tracing::error!(object = %key, "the operating system gives no random bytes; the object waits");
    let now = Timestamp::now();
    Next::Done(Some(now.checked_add(WITHOUT_RANDOMNESS).unwrap_or(now)))
}
