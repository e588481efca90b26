//! The rounds of one ArtifactGenerator. The Snapshot stays from round to round. The plan makes every choice.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::{ArtifactGenerator, ExternalArtifact, ObjectId};
use tenure_cluster::{ClusterError, EventHistory, LaneAccess};
use tenure_planner::artifact_generator::{FolderRequest, MatchedFolders, Plan, Snapshot, SourceState, Step, plan};
use tenure_planner::dependents::Attempt;
use tenure_planner::{KnownObjects, Next, Request};
use tenure_sources::SourceKey;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::observe;
use crate::cluster_view::key::Key;
use crate::context::attempt_marks::AttemptMarks;
use crate::lane::Shard;
use crate::lane_kinds::borrowed_objects::BorrowedObjectTable;
use crate::lane_kinds::reference_lookup::ReferenceLookup;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::object_writer::{self, ObjectWriter};
use crate::reconcile_loop::reconciled::Reconciled as _;
use crate::reconcile_loop::step_executor::execute_steps;

/// How long a search for folders waits for memory for the files.
const SEARCH_PATIENCE: Duration = Duration::from_secs(60);

/// The reconciler of one ArtifactGenerator.
pub(crate) struct GeneratorReconciler {
    shard: Arc<Shard>,
    key: Key,
    snapshot: Option<Snapshot>,
    event_history: EventHistory,
    answered: KnownObjects,
    /// References into other lanes' processes, and whether to ask for them again.
    borrowed_objects: BorrowedObjectTable,
    asks_for_loans: bool,
}

impl GeneratorReconciler {
    pub(crate) fn new(shard: Arc<Shard>, key: Key) -> Self {
        Self {
            shard,
            key,
            snapshot: None,
            event_history: EventHistory::default(),
            answered: KnownObjects::default(),
            borrowed_objects: BorrowedObjectTable::default(),
            asks_for_loans: true,
        }
    }

    fn current(&self) -> Option<Arc<ArtifactGenerator>> {
        self.shard
            .caches
            .get::<ArtifactGenerator>()
            .get(&self.key.namespace, &self.key.name)
    }

    async fn observe(&mut self, generator: &ArtifactGenerator) -> &mut Snapshot {
        let placement = self.shard.read_placement().await;
        let lookup = ReferenceLookup::new(&self.shard, &placement);
        if std::mem::take(&mut self.asks_for_loans) {
            let named = observe::list_lent(lookup, generator);
            self.borrowed_objects.renew(&self.shard, named, |_| {}).await;
        }
        let sources = observe::observe_sources(lookup, &self.borrowed_objects, generator);
        let cycle = observe::observe_circle(lookup, generator);
        self.shard.listen(&self.key, observe::list_foreign(lookup, generator));
        let shards = self.shard.lane().await.list_shards().into_iter();
        let others = shards.filter(|shard| shard.namespace != self.key.namespace);
        let elsewhere = others.map(|shard| shard.generator_reports.count_bytes()).sum();
        let live = self
            .answered
            .merge_watched(observe::list_children(&self.shard, generator));
        let stored = observe::list_stored(&self.shard, generator);
        let memory = self.snapshot.as_ref().map(|snapshot| snapshot.memory.clone());
        let attempt = self.snapshot.take().map(|snapshot| snapshot.attempt);
        self.snapshot.insert(Snapshot {
            generator: generator.clone(),
            judges_writes: self.shard.context.settings.judges_writes(),
            grants: self.shard.context.settings.reference_grants.clone(),
            room: self.shard.generator_reports.find_room(&self.key.name, elsewhere),
            placement,
            sources,
            cycle,
            live,
            stored,
            attempt: attempt.unwrap_or_else(|| Attempt::new(Timestamp::now(), &generator.metadata)),
            memory: memory.unwrap_or_default(),
        })
    }

    /// Stores the recipes of the plan for the generator's ExternalArtifacts, and wakes the ExternalArtifacts if the recipes changed.
    fn store_report(&self, plan: &Plan) {
        let Some(recipes) = plan.memory.recipes.clone() else {
            return;
        };
        for name in self.shard.generator_reports.store(&self.key.name, recipes) {
            let made = Key::new(ExternalArtifact::KIND, &self.key.namespace, &name);
            self.shard.context.mailboxes.wake(&made);
        }
    }

    async fn execute(&mut self, plan: &Plan) -> Result<(), ClusterError> {
        let mut requests: Vec<Request> = Vec::new();
        for step in &plan.steps {
            match step {
                Step::Request(request) => requests.push(request.clone()),
                Step::FindFolders(request) => {
                    let found = self.find_folders(request).await;
                    if let Some(snapshot) = &mut self.snapshot {
                        snapshot.memory.take_folders(request, found);
                    }
                }
            }
        }
        let Some(account) = plan.identity.clone().filter(|_| !requests.is_empty()) else {
            return Ok(());
        };
        let (context, lane) = (&self.shard.context, self.shard.lane().await);
        let access = LaneAccess {
            account,
            ..lane.access()
        };
        let client = context.clients.for_lane(&access);
        let answers = execute_steps(&context.clients, &client, &requests, plan.deadline, None).await;
        if let Some(snapshot) = &mut self.snapshot {
            for answer in answers {
                self.answered.record_answer(&mut snapshot.attempt, answer);
            }
        }
        Ok(())
    }

    /// Finds the folders of an artifact that match a pattern, on a thread for blocking work.
    async fn find_folders(&self, request: &FolderRequest) -> Result<MatchedFolders, String> {
        let source = &request.source;
        let SourceState::Stored { uid, artifact } = &source.state else {
            return Err(format!("source '{}' has nothing stored", source.describe()));
        };
        let key = SourceKey::new(&source.kind, &source.namespace, &source.name, uid);
        let key = key.map_err(|error| error.to_string())?;
        let lane = self.shard.lane().await;
        let wanted = (&key, artifact.facts.digest.as_str());
        let tree = self
            .shard
            .artifacts
            .tree(wanted, &lane.limits.name, Instant::now() + SEARCH_PATIENCE)
            .await;
        let tree = tree.map_err(|error| error.to_string())?;
        let pattern = request.pattern.clone();
        let finding = tokio::task::spawn_blocking(move || {
            let found = pattern.find_matches(tree.list_folders().into_iter());
            found.map_err(str::to_owned)
        });
        finding.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

impl Reconciler for GeneratorReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    fn is_admitted(&self) -> bool {
        self.shard.is_admitted()
    }

    async fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.shard.lane().await.limits.work)
    }

    async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(generator) = self.current() else {
            return Ok(None);
        };
        // observe
        let snapshot = self.observe(&generator).await;
        // plan
        let plan = plan(snapshot, Timestamp::now());
        tracing::debug!(plan = %plan, "planned");
        snapshot.memory = plan.memory.clone();
        // execute
        self.store_report(&plan);
        let writer = ObjectWriter::new(generator.as_ref());
        if let Some(change) = &plan.finalizer {
            writer.change_finalizer(&self.shard, change).await?;
        }
        self.execute(&plan).await?;
        // write
        if let Some(status) = &plan.status {
            writer.write_status(&self.shard, status).await?;
        }
        writer
            .write_events(&self.shard, &mut self.event_history, &plan.events)
            .await;
        let Some(snapshot) = &self.snapshot else {
            return Ok(None);
        };
        let now = Timestamp::now();
        Ok(Some(self.answered.check_end(plan.next, &snapshot.attempt, now)))
    }

    fn marks(&self) -> Option<Arc<AttemptMarks>> {
        Some(Arc::clone(&self.shard.context.attempt_marks))
    }

    async fn report_wait(&self, crashes: u32, until: Timestamp) {
        object_writer::report_wait::<ArtifactGenerator>(&self.shard, &self.key, crashes, until).await;
    }

    fn restart(&mut self) {
        self.answered.clear();
        self.asks_for_loans = true;
        match (self.current(), &mut self.snapshot) {
            (Some(generator), Some(snapshot)) => {
                snapshot.attempt = Attempt::new(Timestamp::now(), &generator.metadata);
            }
            _ => self.snapshot = None,
        }
    }

    async fn needs_attempt(&mut self, _changed: &HashSet<ObjectId>) -> bool {
        let (Some(generator), Some(snapshot)) = (self.current(), &self.snapshot) else {
            return true;
        };
        let placement = self.shard.read_placement().await;
        let lookup = ReferenceLookup::new(&self.shard, &placement);
        let named = observe::list_lent(lookup, &generator);
        self.borrowed_objects.renew(&self.shard, named, |_| {}).await;
        let sources = observe::observe_sources(lookup, &self.borrowed_objects, &generator);
        let cycle = observe::observe_circle(lookup, &generator);
        let stored = observe::list_stored(&self.shard, &generator);
        snapshot.is_overtaken(&generator, &placement, &sources, cycle.as_deref(), &stored)
            || self.answered.has_news(&observe::list_children(&self.shard, &generator))
    }

    fn forget(&mut self) {
        self.shard.listen(&self.key, BTreeSet::new());
        self.shard.generator_reports.forget(&self.key.name);
        self.snapshot = None;
        (self.borrowed_objects, self.asks_for_loans) = (BorrowedObjectTable::default(), true);
        self.answered.forget();
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
