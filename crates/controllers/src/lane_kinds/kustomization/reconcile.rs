//! One Kustomization's rounds. Keeps the Snapshot from round to round; every choice is the plan's.

mod attempt_memory;
mod rendering;
mod target_cluster;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::{Kustomization, ObjectId};
use tenure_cluster::{ClusterError, EventHistory, ForeignToken, LaneWorkLimit, ServiceAccount};
use tenure_planner::answer::Reason;
use tenure_planner::kustomization::{
    Attempt, Memory, Observed, OngoingDeletions, Rendered, ServiceAccountFacts, Snapshot, SourceFacts, Step,
    SurveyRequest, is_settled, plan,
};
use tenure_planner::{Answer, FinalizerChange, Live, Next};
use tenure_sources::HeldBytes;
use tenure_tenancy::Placement;
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use super::local_objects::LocalObjects;
use super::observed_objects::{self, ObservedObjects};
use super::referenced_objects::ReferencedObjects;
use super::stored_rendering::StoredRendering;
use super::suspended_attempt::SuspendedAttempt;
use super::{observe, owners};
use crate::cluster_view::key::Key;
use crate::cluster_view::live_objects::{ObservedState, WatchedObjects, read_revision};
use crate::cluster_view::remote_clusters::RemoteCluster;
use crate::context::attempt_marks::AttemptMarks;
use crate::lane::Shard;
use crate::lane_kinds::borrowed_objects::BorrowedObjectTable;
use crate::limits::object_memory::ObjectMemory;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::object_writer::{self, ObjectWriter, WriteResult};
use crate::reconcile_loop::reconciled::Reconciled as _;
use crate::reconcile_loop::step_executor::{execute_steps, fail_request};
use crate::rendering::read_files::ReadFiles;
use crate::telemetry::spans;

/// The reconciler of one Kustomization.
pub(crate) struct KustomizationReconciler {
    shard: Arc<Shard>,
    key: Key,
    snapshot: Option<Box<Snapshot>>,
    held: WatchedObjects,
    /// The objects that it reads in this cluster, if it applies to another one.
    local_objects: LocalObjects,
    /// The other cluster that `held` and `observed` are about.
    cluster: Option<Arc<RemoteCluster>>,
    /// The token that is sent there, if this cluster issued it.
    token: Option<Arc<ForeignToken>>,
    event_history: EventHistory,
    /// Objects that this attempt read or wrote, with their revisions: watches may lag behind, or not report them.
    answered: BTreeMap<ObjectId, (Option<u64>, ObservedState)>,
    /// The objects from which the last plan was made.
    observed: ObservedObjects,
    /// Objects among these with the labels of another Kustomization: its namespace and name.
    labelled: BTreeMap<ObjectId, (String, String)>,
    /// Memory for an attempt's objects, and whether it is for another cluster.
    object_memory: ObjectMemory,
    uses_remote_memory: bool,
    /// The answers and the rendered objects of a waiting attempt.
    suspended: Option<SuspendedAttempt>,
    /// Questions about the other Kustomizations of its source in this attempt.
    asked: Option<SurveyRequest>,
    /// The last rendering: the same artifact, path and namespace give the same objects. An attempt that asks for it takes it out.
    rendered: Option<StoredRendering>,
    /// The files that were rendered.
    seen: Option<Arc<ReadFiles>>,
    /// Memory for the rendered objects.
    room: Option<HeldBytes>,
    /// The rendering of this attempt, if its objects were not kept in memory while it waited.
    begun: Option<Rendered>,
    /// References into other lanes' processes, and whether to ask for them again.
    borrowed_objects: BorrowedObjectTable,
    asks_for_borrowed_objects: bool,
    /// The last acting account: the watched objects were seen by that account.
    acted: Option<ServiceAccount>,
}

impl KustomizationReconciler {
    pub(crate) fn new(shard: Arc<Shard>, key: Key) -> Self {
        Self {
            held: WatchedObjects::new(Arc::clone(&shard.live), key.clone()),
            local_objects: LocalObjects::new(Arc::clone(&shard.live), key.clone()),
            cluster: None,
            token: None,
            object_memory: ObjectMemory::new(shard.context.object_memory.clone()),
            uses_remote_memory: false,
            event_history: EventHistory::default(),
            shard,
            key,
            snapshot: None,
            answered: BTreeMap::new(),
            observed: BTreeMap::new(),
            labelled: BTreeMap::new(),
            suspended: None,
            asked: None,
            rendered: None,
            seen: None,
            room: None,
            begun: None,
            borrowed_objects: BorrowedObjectTable::default(),
            asks_for_borrowed_objects: true,
            acted: None,
        }
    }

    /// Checks whether it applies to another cluster.
    fn targets_remote_cluster(&self) -> bool {
        self.current()
            .is_some_and(|kustomization| kustomization.spec.kube_config.is_some())
    }

    fn current(&self) -> Option<Arc<Kustomization>> {
        self.shard
            .caches
            .get::<Kustomization>()
            .get(&self.key.namespace, &self.key.name)
    }

    /// Brings the snapshot up to date.
    async fn observe(&mut self, kustomization: &Kustomization, turns: &LaneWorkLimit) {
        let shard = &self.shard;
        let placement = shard.read_placement().await;
        if std::mem::take(&mut self.asks_for_borrowed_objects) {
            renew_borrowed_objects(&mut self.borrowed_objects, shard, &placement, kustomization).await;
        }
        let references = ReferencedObjects::new(shard, &placement, &self.borrowed_objects);
        let source = observe::observe_source(references, kustomization);
        let dependencies = observe::observe_dependencies(references, kustomization);
        let cycle = observe::observe_cycle(references, kustomization);
        let endings = observe::observe_endings(shard, references, kustomization).await;
        let before = std::mem::take(&mut self.observed);
        for id in self.held.list_watched() {
            if let Some(found) = self.held.find_newer(id, None) {
                self.observed.insert(id.clone(), found);
            }
        }
        for (id, (revision, answer)) in &self.answered {
            let overtaken = self.observed.contains_key(id) && self.held.find_newer(id, *revision).is_some();
            if !overtaken {
                self.observed.insert(id.clone(), answer.clone());
            }
        }
        let parsed = self
            .snapshot
            .as_mut()
            .map(|snapshot| std::mem::take(&mut snapshot.live));
        let before = (&before, parsed.unwrap_or_default());
        self.object_memory.begin_round();
        self.object_memory
            .prepare(observed_objects::estimate_parsed_bytes(&self.observed))
            .await;
        let read = || observed_objects::parse_objects(&self.observed, before, &self.object_memory);
        let live = turns.run(observed_objects::count_bytes(&self.observed), read).await;
        self.object_memory.release_unused();
        self.labelled = owners::list_labelled(&self.key, &live);
        let cluster = self.cluster.as_ref().map(|cluster| cluster.cluster.as_str());
        let (owners, rivals) = owners::ask_owners(shard, &self.key, &self.labelled, cluster).await;
        let here = self.local_objects.read_objects();
        let survey = self.asked.as_ref();
        let survey = survey.map(|request| observe::observe_siblings(shard, kustomization, request));
        let least_interval = placement.find_least_interval(&shard.context.settings);
        let snapshot = self.snapshot.get_or_insert_with(|| {
            Box::new(Snapshot {
                kustomization: kustomization.clone(),
                placement: placement.clone(),
                source: SourceFacts::NotFound,
                grants: shard.context.settings.reference_grants.clone(),
                dependencies: BTreeMap::new(),
                cycle: None,
                service_account: ServiceAccountFacts::NotLooked,
                endings: OngoingDeletions::default(),
                kinds: BTreeMap::new(),
                live: BTreeMap::new(),
                here: BTreeMap::new(),
                guards: shard.context.guards.clone(),
                settings: shard.context.applying.clone(),
                strict_sops: shard.context.strict_sops,
                least_interval,
                owners: BTreeMap::new(),
                rivals: BTreeMap::new(),
                survey: None,
                attempt: Attempt::new(Timestamp::now(), kustomization),
                memory: Memory::default(),
            })
        });
        snapshot.kustomization = kustomization.clone();
        snapshot.placement = placement;
        snapshot.least_interval = least_interval;
        snapshot.source = source;
        snapshot.dependencies = dependencies;
        snapshot.cycle = cycle;
        snapshot.endings = endings;
        snapshot.live = live;
        snapshot.here = here;
        snapshot.owners = owners;
        snapshot.rivals = rivals;
        snapshot.survey = survey;
    }

    fn take_answer(&mut self, answer: Answer) {
        let live = self
            .snapshot
            .as_mut()
            .and_then(|snapshot| snapshot.record_answer(answer));
        if let Some((id, live)) = live {
            self.record_answer(id, live);
        }
    }

    fn record_answer(&mut self, id: ObjectId, answer: Live) {
        let revision = answer.object().map(read_revision);
        let known = ObservedState::from_answer(answer);
        if let (Some(revision), ObservedState::Object(json)) = (revision, &known) {
            self.held.store_answer(&id, revision, Arc::clone(json));
        }
        self.answered.insert(id, (revision, known));
    }

    /// Executes one round: observe, plan, execute, write.
    async fn work(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(kustomization) = self.current() else {
            return Ok(None);
        };
        let key = self.key.clone();
        let lane = self.shard.lane().await;
        let turns = lane.limits.turns.clone();
        // observe
        self.observe(&kustomization, &turns).await;
        // plan
        let bytes = self.bytes();
        let Some(snapshot) = &self.snapshot else {
            return Ok(None);
        };
        let bytes = bytes.saturating_add(snapshot.estimate_expression_work());
        let planned = turns.run(bytes, || plan(snapshot, Timestamp::now()));
        let mut plan = planned.instrument(spans::begin_plan()).await;
        let attempted = plan.status.as_ref();
        if let Some(revision) = attempted.and_then(|status| status.last_attempted_revision.as_deref()) {
            spans::note_revision(revision);
        }
        tracing::debug!(plan = %plan, "planned");
        if let Some(account) = &plan.identity
            && self
                .acted
                .replace(account.clone())
                .is_some_and(|before| before != *account)
        {
            // Objects that another account saw are not for this account, which may lack the right to read them.
            self.held.release();
            self.local_objects.release();
            return Ok(Some(Next::Restart));
        }
        let mut unreachable = None;
        if let Some(account) = &plan.identity {
            match self
                .switch_cluster(plan.target.as_deref(), account, &kustomization, &lane)
                .await
            {
                Ok(true) => {}
                // Facts of another cluster say nothing about this one.
                Ok(false) => return Ok(Some(Next::Restart)),
                Err(problem) => unreachable = Some(problem),
            }
        }
        let Some(snapshot) = &self.snapshot else {
            return Ok(None);
        };
        let awaited = snapshot.list_relevant().into_iter();
        let awaited = awaited.map(|(namespace, name)| Key::new(Kustomization::KIND, &namespace, &name));
        let foreign = ReferencedObjects::new(&self.shard, &snapshot.placement, &self.borrowed_objects)
            .list_foreign(&kustomization);
        self.shard.listen(&key, awaited.chain(foreign).collect());
        if let Some(turnover) = &plan.memory.turnover {
            self.shard.report_turnover(&key, turnover);
        }
        // execute
        let writer = ObjectWriter::new(kustomization.as_ref());
        if let Some(change) = &plan.finalizer {
            if matches!(change, FinalizerChange::Remove(_)) {
                // Events about its end are written while the object exists. A process that crashes in between writes them again.
                writer
                    .write_events(&self.shard, &mut self.event_history, &plan.events)
                    .await;
            }
            let written = writer.change_finalizer(&self.shard, change).await?;
            if matches!(change, FinalizerChange::Remove(_)) {
                return Ok(Some(plan.next));
            }
            if written == WriteResult::Gone {
                return Ok(None);
            }
        }
        if let Some(account) = &plan.identity {
            if matches!(plan.next, Next::Wait(_) | Next::Done(_)) {
                self.local_objects.hold(account, &lane.access(), &plan.watch_here).await;
            }
            if unreachable.is_some() {
                self.held.release();
            } else if matches!(plan.next, Next::Wait(_) | Next::Done(_)) {
                self.held.hold(account, &lane.access(), &plan.watch).await;
            } else if !plan.watch.is_empty() {
                // Before the apply: a shared watch reports each change once, to the holders that it has at that time.
                self.held.watch_also(account, &lane.access(), &plan.watch).await;
            }
        }
        if plan.status_first
            && let Some(status) = &plan.status
            && writer.write_status(&self.shard, status).await? == WriteResult::Gone
        {
            return Ok(None);
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.memory = plan.memory.clone();
        }
        let mut requests = Vec::new();
        for step in std::mem::take(&mut plan.steps) {
            match step {
                Step::Render(request) => {
                    let rendering = self.render(&request, &kustomization);
                    rendering.instrument(spans::begin_rendering()).await;
                }
                Step::Survey(request) => self.asked = Some(request),
                Step::ReadHere(target) => {
                    if !self
                        .read_here(&target, plan.identity.as_ref(), &lane, plan.deadline)
                        .await
                    {
                        return Ok(Some(Next::Again));
                    }
                }
                Step::OrderToken(order) => self.order_token(order, &lane).await,
                Step::Ask(request) => requests.push(request),
            }
        }
        if !requests.is_empty() {
            let answers = match (&unreachable, self.client(plan.identity.as_ref(), &lane).await) {
                (Some(problem), _) => {
                    let fail = |request| fail_request(request, Reason::Unreachable, problem);
                    requests.iter().flat_map(fail).collect()
                }
                (None, Some((clients, client))) => {
                    let executed =
                        execute_steps(&clients, &client, &requests, plan.deadline, Some(&self.object_memory));
                    executed.instrument(spans::begin_requests()).await
                }
                // The next plan reports the problem with the identity.
                (None, None) => return Ok(Some(Next::Again)),
            };
            let bytes = self.bytes();
            let take = || answers.into_iter().for_each(|answer| self.take_answer(answer));
            turns.run(bytes, take).await;
        }
        // write
        if !plan.status_first
            && let Some(status) = &plan.status
        {
            writer.write_status(&self.shard, status).await?;
        }
        writer
            .write_events(&self.shard, &mut self.event_history, &plan.events)
            .await;
        if matches!(plan.next, Next::Wait(_) | Next::Done(_)) {
            self.keep_rendered(&plan.next, &lane);
        }
        Ok(Some(plan.next))
    }
}

/// Asks again about a Kustomization's references into other lanes' processes.
async fn renew_borrowed_objects(
    borrowed_objects: &mut BorrowedObjectTable,
    shard: &Arc<Shard>,
    placement: &Placement,
    kustomization: &Kustomization,
) {
    let named = ReferencedObjects::new(shard, placement, borrowed_objects).list_foreign(kustomization);
    // A cycle of dependencies goes through the references of other objects.
    let look_on = |borrowed_objects: &BorrowedObjectTable| {
        let _the_snapshots_own = observe::observe_cycle(
            ReferencedObjects::new(shard, placement, borrowed_objects),
            kustomization,
        );
    };
    borrowed_objects.renew(shard, named, look_on).await;
}

impl Reconciler for KustomizationReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    fn is_admitted(&self) -> bool {
        self.shard.is_admitted()
    }

    async fn permits(&self) -> Arc<Semaphore> {
        let bounds = &self.shard.lane().await.limits;
        Arc::clone(if self.targets_remote_cluster() {
            &bounds.elsewhere
        } else {
            &bounds.work
        })
    }

    /// Returns the semaphore for unhurried work: a commit that changes none of its files, or a new process that only confirms settled objects.
    /// Kustomizations with changes go first.
    async fn low_priority(&self) -> Option<Arc<Semaphore>> {
        let kustomization = self.current()?;
        let SourceFacts::Found {
            artifact: Some(artifact),
            ..
        } = observe::observe_source(
            ReferencedObjects::new(&self.shard, &self.shard.read_placement().await, &self.borrowed_objects),
            &kustomization,
        )
        else {
            return None;
        };
        let is_low_priority = match &self.rendered {
            None => self.snapshot.is_none() && is_settled(&kustomization, &artifact),
            Some(rendered) => {
                let is_another = artifact.digest != rendered.artifact_digest();
                is_another && self.is_same_in(&artifact.digest, &kustomization).await
            }
        };
        is_low_priority.then_some(Arc::clone(&self.shard.lane().await.limits.low_priority))
    }

    async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
        self.reserve_memory().await;
        let next = self.work().await;
        match &next {
            Ok(Some(Next::Again | Next::Restart)) => {}
            Ok(Some(Next::Done(_))) => self.release_memory(true).await,
            _ => self.release_memory(false).await,
        }
        next
    }

    fn marks(&self) -> Option<Arc<AttemptMarks>> {
        Some(Arc::clone(&self.shard.context.attempt_marks))
    }

    async fn report_wait(&self, crashes: u32, until: Timestamp) {
        object_writer::report_wait::<Kustomization>(&self.shard, &self.key, crashes, until).await;
    }

    fn restart(&mut self) {
        self.answered.clear();
        self.local_objects.forget_answers();
        let suspended = self.suspended.take().and_then(SuspendedAttempt::into_rendering);
        self.object_memory.begin_attempt();
        self.asked = None;
        self.begun = None;
        self.asks_for_borrowed_objects = true;
        let Some(kustomization) = self.current() else {
            self.snapshot = None;
            return;
        };
        let snapshot = self.snapshot.as_mut();
        let rendered = snapshot.and_then(|snapshot| snapshot.restart(Timestamp::now(), &kustomization));
        if let Some(rendered) = rendered.and_then(StoredRendering::from_success).or(suspended) {
            self.rendered = Some(rendered);
        }
    }

    async fn needs_attempt(&mut self, changed: &HashSet<ObjectId>) -> bool {
        let (Some(kustomization), Some(snapshot)) = (self.current(), &self.snapshot) else {
            return true;
        };
        let shard = &self.shard;
        let asked = self.asked.as_ref().filter(|_| snapshot.survey.is_some());
        let survey = asked.map(|request| observe::observe_siblings(shard, &kustomization, request));
        let placement = shard.read_placement().await;
        renew_borrowed_objects(&mut self.borrowed_objects, shard, &placement, &kustomization).await;
        let references = ReferencedObjects::new(shard, &placement, &self.borrowed_objects);
        let now = Observed {
            kustomization: &kustomization,
            placement: &placement,
            source: &observe::observe_source(references, &kustomization),
            dependencies: &observe::observe_dependencies(references, &kustomization),
            endings: &observe::observe_endings(shard, references, &kustomization).await,
            survey: survey.as_ref(),
        };
        if snapshot.is_overtaken(&now) {
            return true;
        }
        if !snapshot.owners.is_empty() {
            let cluster = self.cluster.as_ref().map(|cluster| cluster.cluster.as_str());
            let (owners, rivals) = owners::ask_owners(shard, &self.key, &self.labelled, cluster).await;
            if snapshot.is_overtaken_by(&owners, &rivals) {
                return true;
            }
        }
        if self.local_objects.is_another(snapshot, changed) {
            return true;
        }
        let mut compared = Vec::new();
        for id in changed {
            // Reported objects are compared with the objects of the last plan: opening a watch is no change, and neither is the echo of an own write.
            // A change reported before its stream broke counts too.
            let Some(now) = self.held.last_reported(id) else {
                continue;
            };
            match self.observed.get(id) {
                None if snapshot.was_read_by_failed_attempt(id) => return true,
                Some(before) if !before.is_same(&now) => compared.push((id, before, now)),
                _ => {}
            }
        }
        let turns = self.shard.lane().await.limits.turns.clone();
        for (id, before, now) in compared {
            let differs = || snapshot.is_another(id, &before.read(), &now.read());
            if turns.run(before.len().saturating_add(now.len()), differs).await {
                return true;
            }
        }
        false
    }

    fn needs_polling(&self) -> bool {
        !self.held.all_synced() || !self.local_objects.all_synced()
    }

    fn prepare_poll(&mut self) {
        self.answered.clear();
        self.local_objects.forget_answers();
    }

    fn forget(&mut self) {
        self.held.release();
        self.local_objects.release();
        self.shard.turnover_reports.forget(&self.key);
        self.shard.listen(&self.key, BTreeSet::new());
        self.asked = None;
        self.snapshot = None;
        (self.rendered, self.seen) = (None, None);
        self.room = None;
        self.begun = None;
        (self.borrowed_objects, self.asks_for_borrowed_objects) = (BorrowedObjectTable::default(), true);
        self.answered.clear();
        self.observed.clear();
        self.labelled.clear();
        self.suspended = None;
        self.object_memory.give_back();
        self.go_to(None);
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
