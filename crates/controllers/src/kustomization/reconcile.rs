//! One Kustomization's rounds. Keeps the Snapshot from round to round; every choice is the plan's.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tenure_api::{Kustomization, ObjectId};
use tenure_cluster::{Client, ClusterError, Identity};
use tenure_planner::answer::KindAnswer;
use tenure_planner::kustomization::{Attempt, Memory, Rendered, ServiceAccountFacts, Snapshot, SourceFacts, plan};
use tenure_planner::plan::RenderRequest;
use tenure_planner::{FinalizerChange, Live, Next, Step, WriteAnswer, digest, requested_at};
use tokio::sync::Semaphore;

use super::observe;
use crate::cache::number;
use crate::drive::Reconciler;
use crate::execute::{Answer, execute};
use crate::key::Key;
use crate::live::revision_of;
use crate::own::Own;
use crate::render;
use crate::world::World;

/// One Kustomization's reconciler.
pub(crate) struct KustomizationReconciler {
    world: Arc<World>,
    key: Key,
    snapshot: Option<Snapshot>,
    /// What this attempt read or wrote, with its revision: watches may be behind it, or not tell of it at all.
    answered: BTreeMap<ObjectId, (Option<u64>, Live)>,
    /// What was rendered last: the same artifact, path and namespace render to the same.
    rendered: Option<Rendered>,
}

impl KustomizationReconciler {
    pub(crate) fn new(world: Arc<World>, key: Key) -> Self {
        Self {
            world,
            key,
            snapshot: None,
            answered: BTreeMap::new(),
            rendered: None,
        }
    }

    fn current(&self) -> Option<Arc<Kustomization>> {
        self.world.kustomizations.get(&self.key.namespace, &self.key.name)
    }

    /// Brings the snapshot up to date.
    async fn observe(&mut self, kustomization: &Kustomization) -> &mut Snapshot {
        let world = &self.world;
        let placement = world.place(&self.key.namespace).await;
        let source = observe::source(world, kustomization);
        let dependencies = observe::dependencies(world, kustomization);
        let mut live: BTreeMap<ObjectId, Live> = BTreeMap::new();
        for id in world.live.watched(&self.key) {
            if let Some(found) = world.live.newer(&self.key, &id, None) {
                live.insert(id, found);
            }
        }
        for (id, (revision, answer)) in &self.answered {
            let overtaken = live.contains_key(id) && world.live.newer(&self.key, id, *revision).is_some();
            if !overtaken {
                live.insert(id.clone(), answer.clone());
            }
        }
        let snapshot = self.snapshot.get_or_insert_with(|| Snapshot {
            kustomization: kustomization.clone(),
            placement: placement.clone(),
            source: SourceFacts::NotFound,
            dependencies: BTreeMap::new(),
            service_account: ServiceAccountFacts::NotLooked,
            kinds: BTreeMap::new(),
            live: BTreeMap::new(),
            attempt: Attempt::begin(Timestamp::now(), kustomization),
            memory: Memory::default(),
        });
        snapshot.kustomization = kustomization.clone();
        snapshot.placement = placement;
        snapshot.source = source;
        snapshot.dependencies = dependencies;
        snapshot.live = live;
        snapshot
    }

    /// The client to execute steps with; nothing when there is no token, which the next plan is told.
    async fn client(&mut self, identity: Option<&Identity>) -> Option<Client> {
        let identity = identity?;
        if identity.service_account().is_none() {
            // No plan says so. If one did, what a repository contains would be applied with the controller's rights.
            if let Some(snapshot) = &mut self.snapshot {
                snapshot.service_account =
                    ServiceAccountFacts::Refused("the controller applies nothing as itself".to_owned());
            }
            return None;
        }
        let facts = match self.world.clients.for_identity(identity).await {
            Ok(client) => {
                if let Some(snapshot) = &mut self.snapshot {
                    snapshot.service_account = ServiceAccountFacts::Usable;
                }
                return Some(client);
            }
            Err(ClusterError::IdentityMissing { .. }) => ServiceAccountFacts::NotFound,
            Err(error) => ServiceAccountFacts::Refused(error.to_string()),
        };
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.service_account = facts;
        }
        None
    }

    async fn render(&mut self, request: &RenderRequest, kustomization: &Kustomization) {
        let same = |rendered: &&Rendered| {
            rendered.artifact_digest == request.artifact_digest
                && rendered.path == request.path
                && rendered.overlay == request.overlay
                && rendered.outcome.is_ok()
        };
        let rendered = match self.rendered.as_ref().filter(same) {
            Some(rendered) => rendered.clone(),
            None => {
                let Some(source) = observe::source_key(kustomization) else {
                    return;
                };
                let Some(snapshot) = &self.snapshot else { return };
                let world = &self.world;
                let permits = &world.lanes.of(&snapshot.placement, &self.key.namespace).renderings;
                let rendered = render::render(&world.artifacts, &source, request, permits, world.render_timeout).await;
                self.rendered = Some(rendered.clone());
                rendered
            }
        };
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.attempt.rendered = Some(rendered);
        }
    }

    fn take(&mut self, answer: Answer) {
        let Some(snapshot) = &mut self.snapshot else { return };
        match answer {
            Answer::Kind(kind, answer) => {
                snapshot.kinds.insert(kind, answer);
            }
            Answer::Live(id, answer) => self.answered(id, answer),
            Answer::DryRun(id, answer) => {
                snapshot.attempt.dry_runs.insert(id, answer);
            }
            Answer::Applied(id, answer) => {
                snapshot.attempt.applied.insert(id.clone(), answer.clone());
                if let WriteAnswer::Done(object) = answer {
                    if id.kind == "CustomResourceDefinition" {
                        // What was unknown may be served now.
                        snapshot
                            .kinds
                            .retain(|_, answer| !matches!(answer, KindAnswer::Unknown));
                    }
                    self.answered(id, Live::Present(object));
                }
            }
            Answer::TakenOver(id, answer) => {
                snapshot.attempt.taken_over.insert(id.clone(), answer.clone());
                if let WriteAnswer::Done(object) = answer {
                    self.answered(id, Live::Present(object));
                }
            }
            Answer::Deleted(id, answer) => {
                snapshot.attempt.deleted.insert(id, answer);
            }
        }
    }

    fn answered(&mut self, id: ObjectId, answer: Live) {
        let revision = match &answer {
            Live::Present(object) => {
                self.world.live.seed(&self.key, &id, &object.0);
                Some(revision_of(&object.0))
            }
            Live::Absent | Live::Failed(_) => None,
        };
        self.answered.insert(id, (revision, answer));
    }
}

impl Reconciler for KustomizationReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    async fn permits(&self) -> Arc<Semaphore> {
        let placement = self.world.place(&self.key.namespace).await;
        Arc::clone(&self.world.lanes.of(&placement, &self.key.namespace).work)
    }

    async fn round(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(kustomization) = self.current() else {
            return Ok(None);
        };
        let key = self.key.clone();
        // observe
        let snapshot = self.observe(&kustomization).await;
        // plan
        let plan = plan(snapshot, Timestamp::now());
        tracing::debug!(plan = %plan, "planned");
        snapshot.memory = plan.memory.clone();
        // execute
        let status = serde_json::to_value(&kustomization.status).unwrap_or(Value::Null);
        let own = Own::new(&key, &kustomization.metadata, status);
        if let Some(change) = &plan.finalizer {
            own.change_finalizer(&self.world, change).await?;
            if matches!(change, FinalizerChange::Remove(_)) {
                own.write_events(&self.world, &plan.events).await;
                return Ok(Some(plan.next));
            }
        }
        let ends = matches!(plan.next, Next::Wait(_) | Next::Done(_));
        // Before anything is applied: a watch that others hold already tells of a change once, to whom it knows then.
        if (ends || !plan.watch.is_empty())
            && let Some(identity) = &plan.identity
        {
            self.world
                .live
                .hold(&key, &self.world.clients, identity, &plan.watch)
                .await;
        }
        for step in &plan.steps {
            if let Step::Render(request) = step {
                self.render(request, &kustomization).await;
            }
        }
        if plan.steps.iter().any(|step| !matches!(step, Step::Render(_))) {
            match self.client(plan.identity.as_ref()).await {
                Some(client) => {
                    for answer in execute(&self.world.clients, &client, &plan.steps).await {
                        self.take(answer);
                    }
                }
                // The next plan says what is wrong with the identity.
                None => return Ok(Some(Next::Again)),
            }
        }
        // write
        if let Some(status) = &plan.status {
            own.write_status(&self.world, status).await?;
        }
        own.write_events(&self.world, &plan.events).await;
        Ok(Some(plan.next))
    }

    fn restart(&mut self) {
        self.answered.clear();
        let Some(kustomization) = self.current() else {
            self.snapshot = None;
            return;
        };
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.attempt = Attempt::begin(Timestamp::now(), &kustomization);
            snapshot.service_account = ServiceAccountFacts::NotLooked;
            // Asking again costs no request, and a definition may have gone.
            snapshot.kinds.clear();
        }
    }

    async fn triggered(&mut self, changed: &HashSet<ObjectId>) -> bool {
        let (Some(kustomization), Some(snapshot)) = (self.current(), &self.snapshot) else {
            return true;
        };
        let metadata = &kustomization.metadata;
        if snapshot.attempt.generation != metadata.generation
            || snapshot.attempt.requested_at != requested_at(metadata)
            || snapshot.kustomization.metadata.uid != metadata.uid
            || snapshot.kustomization.metadata.deletion_timestamp != metadata.deletion_timestamp
            || observe::source_changed(&snapshot.source, &observe::source(&self.world, &kustomization))
            || snapshot.dependencies != observe::dependencies(&self.world, &kustomization)
            || snapshot.placement != self.world.place(&self.key.namespace).await
        {
            return true;
        }
        // Health is looked at only if it was asked for; otherwise a status that changes is nobody's drift.
        let health = kustomization.spec.wait || !kustomization.spec.health_checks.is_empty();
        changed.iter().any(|id| {
            let settled = snapshot.memory.settled.get(id).map(|settled| settled.live.as_str());
            match self.world.live.newer(&self.key, id, None) {
                Some(Live::Present(object)) if settled.is_some() => {
                    let same = settled == Some(digest::of(&digest::comparable(&object.0)).as_str());
                    let known = self.answered.get(id).and_then(|(revision, _)| *revision);
                    !same || (health && known != Some(number_of(&object.0)))
                }
                Some(_) => true,
                None => false,
            }
        })
    }

    fn look_again(&mut self) {
        self.answered.clear();
    }

    fn forget(&mut self) {
        self.world.live.release(&self.key);
        self.snapshot = None;
        self.rendered = None;
        self.answered.clear();
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}

fn number_of(object: &Value) -> u64 {
    number(
        object
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .unwrap_or_default(),
    )
}
