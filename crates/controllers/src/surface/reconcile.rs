//! One Surface's rounds. Keeps the Snapshot from round to round; every choice is the plan's.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::Value;
use tenure_api::metadata::SURFACE_LABEL;
use tenure_api::{ObjectId, Surface};
use tenure_cluster::ClusterError;
use tenure_planner::kustomization::requested_at;
use tenure_planner::surface::{Attempt, Snapshot, plan};
use tenure_planner::{Live, Next, Object, WriteAnswer};
use tokio::sync::Semaphore;

use crate::drive::Reconciler;
use crate::execute::{Answer, execute};
use crate::key::Key;
use crate::own::Own;
use crate::world::World;

/// One Surface's reconciler.
pub(crate) struct SurfaceReconciler {
    world: Arc<World>,
    key: Key,
    snapshot: Option<Snapshot>,
    /// What this attempt read or wrote and no watch has told of yet.
    answered: BTreeMap<ObjectId, Live>,
    /// What the surface generated, when the last attempt ended.
    seen: BTreeMap<ObjectId, Live>,
}

impl SurfaceReconciler {
    pub(crate) fn new(world: Arc<World>, key: Key) -> Self {
        Self {
            world,
            key,
            snapshot: None,
            answered: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    fn current(&self) -> Option<Arc<Surface>> {
        self.world.surfaces.get(&self.key.namespace, &self.key.name)
    }

    /// The GitRepositories and Kustomizations beside it that bear its label.
    fn children(&self) -> BTreeMap<ObjectId, Live> {
        let namespace = &self.key.namespace;
        let mut children = BTreeMap::new();
        let labelled = |labels: &BTreeMap<String, String>| labels.get(SURFACE_LABEL) == Some(&self.key.name);
        let mut add = |object: serde_json::Result<Value>| {
            if let Ok(object) = object
                && let Ok(id) = ObjectId::of(&object)
            {
                children.insert(id, Live::Present(Object(object)));
            }
        };
        for child in self.world.repositories.in_namespace(namespace) {
            if labelled(child.labels()) {
                add(serde_json::to_value(child.as_ref()));
            }
        }
        for child in self.world.kustomizations.in_namespace(namespace) {
            if labelled(child.labels()) {
                add(serde_json::to_value(child.as_ref()));
            }
        }
        children
    }

    async fn observe(&mut self, surface: &Surface) -> &mut Snapshot {
        let placement = self.world.place(&self.key.namespace).await;
        let mut live = self.children();
        for (id, answer) in &self.answered {
            live.entry(id.clone()).or_insert_with(|| answer.clone());
        }
        let snapshot = self.snapshot.get_or_insert_with(|| Snapshot {
            surface: surface.clone(),
            placement: placement.clone(),
            live: BTreeMap::new(),
            attempt: Attempt::begin(Timestamp::now(), surface),
        });
        snapshot.surface = surface.clone();
        snapshot.placement = placement;
        snapshot.live = live;
        snapshot
    }

    fn take(&mut self, answer: Answer) {
        let Some(snapshot) = &mut self.snapshot else { return };
        match answer {
            Answer::Live(id, answer) => {
                self.answered.insert(id, answer);
            }
            Answer::Applied(id, answer) => {
                if let WriteAnswer::Done(object) = &answer {
                    self.answered.insert(id.clone(), Live::Present(object.clone()));
                }
                snapshot.attempt.applied.insert(id, answer);
            }
            Answer::Deleted(id, answer) => {
                snapshot.attempt.deleted.insert(id, answer);
            }
            Answer::Kind(..) | Answer::DryRun(..) | Answer::TakenOver(..) => {}
        }
    }
}

impl Reconciler for SurfaceReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    async fn permits(&self) -> Arc<Semaphore> {
        let placement = self.world.place(&self.key.namespace).await;
        Arc::clone(&self.world.lanes.of(&placement, &self.key.namespace).work)
    }

    async fn round(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(surface) = self.current() else { return Ok(None) };
        // observe
        let snapshot = self.observe(&surface).await;
        // plan
        let plan = plan(snapshot, Timestamp::now());
        tracing::debug!(plan = %plan, "planned");
        self.seen = self.children();
        // execute
        let status = serde_json::to_value(&surface.status).unwrap_or(Value::Null);
        let own = Own::new(&self.key, &surface.metadata, status);
        if let Some(change) = &plan.finalizer {
            own.change_finalizer(&self.world, change).await?;
        }
        if let (false, Some(identity)) = (plan.steps.is_empty(), &plan.identity) {
            let client = self.world.clients.for_identity(identity).await?;
            for answer in execute(&self.world.clients, &client, &plan.steps).await {
                self.take(answer);
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
        match (self.current(), &mut self.snapshot) {
            (Some(surface), Some(snapshot)) => snapshot.attempt = Attempt::begin(Timestamp::now(), &surface),
            _ => self.snapshot = None,
        }
    }

    async fn triggered(&mut self, _changed: &HashSet<ObjectId>) -> bool {
        let (Some(surface), Some(snapshot)) = (self.current(), &self.snapshot) else {
            return true;
        };
        let metadata = &surface.metadata;
        snapshot.attempt.generation != metadata.generation
            || snapshot.attempt.requested_at != requested_at(metadata)
            || snapshot.surface.metadata.uid != metadata.uid
            || snapshot.surface.metadata.deletion_timestamp != metadata.deletion_timestamp
            || snapshot.placement != self.world.place(&self.key.namespace).await
            || self.seen != self.children()
    }

    fn forget(&mut self) {
        self.snapshot = None;
        self.answered.clear();
        self.seen.clear();
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
