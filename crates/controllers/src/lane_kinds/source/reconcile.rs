//! The rounds of one source, of any kind. The Snapshot stays from round to round. The plan makes every choice.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::ObjectId;
use tenure_cluster::{ClusterError, EventHistory};
use tenure_planner::Next;
use tenure_planner::source::{Attempt, Fetched, Memory, Snapshot, Step, plan};
use tenure_sources::SourceKey;
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use super::Fetching;
use crate::artifacts::storage::make_source_key;
use crate::cluster_view::key::Key;
use crate::context::attempt_marks::AttemptMarks;
use crate::lane::Shard;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::object_writer::{self, ObjectWriter};
use crate::telemetry::spans;

/// The reconciler of one source.
pub(crate) struct SourceReconciler<S: Fetching> {
    shard: Arc<Shard>,
    key: Key,
    snapshot: Option<Snapshot<S>>,
    event_history: EventHistory,
    /// The key of the fetched source, to remove its leftovers after another object has taken its name.
    source: Option<SourceKey>,
}

impl<S: Fetching> SourceReconciler<S> {
    pub(crate) fn new(shard: Arc<Shard>, key: Key) -> Self {
        Self {
            shard,
            key,
            snapshot: None,
            event_history: EventHistory::default(),
            source: None,
        }
    }

    fn current(&self) -> Option<Arc<S>> {
        self.shard.caches.get::<S>().get(&self.key.namespace, &self.key.name)
    }

    fn source(&self) -> Option<SourceKey> {
        make_source_key(S::NAME, self.current()?.metadata()).ok()
    }

    async fn observe(&mut self, repository: &S) -> &mut Snapshot<S> {
        let placement = self.shard.read_placement().await;
        let stored = self.source().and_then(|source| self.shard.artifacts.record(&source));
        let beside = S::observe_beside(&self.shard, repository);
        let least_interval = placement.find_least_interval(&self.shard.context.settings);
        let snapshot = self.snapshot.get_or_insert_with(|| Snapshot {
            repository: repository.clone(),
            placement: placement.clone(),
            stored: None,
            beside: S::RelatedObjects::default(),
            attempt: Attempt::new(Timestamp::now(), repository),
            memory: Memory::default(),
            advertised: self.shard.context.advertised.clone(),
            least_interval,
        });
        snapshot.repository = repository.clone();
        snapshot.placement = placement;
        snapshot.least_interval = least_interval;
        snapshot.stored = stored;
        snapshot.beside = beside;
        snapshot
    }

    /// Removes the stored artifacts of the deleted object that had this name.
    fn remove_leftovers(&mut self) {
        let Some(source) = self.source.take() else { return };
        self.shard.app_tokens.forget(&source);
        if let Err(error) = self.shard.artifacts.remove(&source) {
            tracing::warn!(%error, source = %self.key, "the artifacts of a deleted source could not be removed");
        }
    }
}

impl<S: Fetching> Reconciler for SourceReconciler<S> {
    fn key(&self) -> &Key {
        &self.key
    }

    fn is_admitted(&self) -> bool {
        self.shard.is_admitted()
    }

    async fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.shard.lane().await.limits.fetches)
    }

    async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(repository) = self.current() else {
            return Ok(None);
        };
        let Some(source) = self.source() else { return Ok(None) };
        if self.source.as_ref() != Some(&source) {
            self.remove_leftovers();
            self.source = Some(source.clone());
        }
        // observe
        let snapshot = self.observe(&repository).await;
        // plan
        let plan = spans::begin_plan().in_scope(|| plan(snapshot, Timestamp::now()));
        tracing::debug!(plan = %plan, "planned");
        snapshot.memory = plan.memory.clone();
        // execute
        let lane = self.shard.lane().await;
        let writer = ObjectWriter::new(repository.as_ref());
        if let Some(change) = &plan.finalizer {
            writer.change_finalizer(&self.shard, change).await?;
        }
        // The status reports the fetch before it starts, because a fetch may take a minute.
        if let Some(status) = &plan.status {
            writer.write_status(&self.shard, status).await?;
        }
        for Step::Fetch(request) in &plan.steps {
            let fetch = S::perform_fetch(&self.shard, (&source, &lane), plan.identity.as_ref(), request);
            let answer = fetch.instrument(spans::begin_fetch()).await;
            let new = matches!(answer, Ok(Fetched::Stored { .. }));
            match &answer {
                Ok(Fetched::Stored { artifact, .. }) => spans::note_revision(&artifact.facts.revision),
                Ok(Fetched::Unchanged { revision }) => spans::note_revision(revision),
                Err(_) => {}
            }
            if let Some(snapshot) = &mut self.snapshot {
                snapshot.record_answer(answer);
            }
            if new {
                self.shard.wake_dependents(&self.key);
            }
        }
        // write
        writer
            .write_events(&self.shard, &mut self.event_history, &plan.events)
            .await;
        Ok(Some(plan.next))
    }

    fn marks(&self) -> Option<Arc<AttemptMarks>> {
        Some(Arc::clone(&self.shard.context.attempt_marks))
    }

    async fn report_wait(&self, crashes: u32, until: Timestamp) {
        object_writer::report_wait::<S>(&self.shard, &self.key, crashes, until).await;
    }

    fn restart(&mut self) {
        match (self.current(), &mut self.snapshot) {
            (Some(repository), Some(snapshot)) => {
                snapshot.attempt = Attempt::new(Timestamp::now(), repository.as_ref())
            }
            _ => self.snapshot = None,
        }
    }

    async fn needs_attempt(&mut self, _changed: &HashSet<ObjectId>) -> bool {
        let (Some(repository), Some(snapshot)) = (self.current(), &self.snapshot) else {
            return true;
        };
        let beside = S::observe_beside(&self.shard, &repository);
        snapshot.is_overtaken(repository.as_ref(), &self.shard.read_placement().await, &beside)
    }

    fn forget(&mut self) {
        self.snapshot = None;
        if self.current().is_some() {
            return;
        }
        self.remove_leftovers();
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
