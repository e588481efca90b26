//! One Surface's rounds. Keeps the Snapshot from round to round; every choice is the plan's.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::Value;
use tenure_api::metadata::SURFACE_LABEL;
use tenure_api::{GitRepository, Kustomization, ObjectId, Surface};
use tenure_cluster::{ClusterError, EventHistory};
use tenure_planner::surface::{Attempt, Memory, Snapshot, plan};
use tenure_planner::{Live, Next, Object, requested_at};
use tokio::sync::Semaphore;

use crate::dependents::{Answered, carry_out};
use crate::drive::Reconciler;
use crate::key::Key;
use crate::world::World;

/// One Surface's reconciler.
pub(crate) struct SurfaceReconciler {
    world: Arc<World>,
    key: Key,
    snapshot: Option<Snapshot>,
    said: EventHistory,
    answered: Answered,
}

impl SurfaceReconciler {
    pub(crate) fn new(world: Arc<World>, key: Key) -> Self {
        Self {
            world,
            key,
            snapshot: None,
            said: EventHistory::default(),
            answered: Answered::default(),
        }
    }

    fn current(&self) -> Option<Arc<Surface>> {
        self.world
            .caches
            .of::<Surface>()
            .get(&self.key.namespace, &self.key.name)
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
        for child in self.world.caches.of::<GitRepository>().in_namespace(namespace) {
            if labelled(child.labels()) {
                add(serde_json::to_value(child.as_ref()));
            }
        }
        for child in self.world.caches.of::<Kustomization>().in_namespace(namespace) {
            if labelled(child.labels()) {
                add(serde_json::to_value(child.as_ref()));
            }
        }
        children
    }

    async fn observe(&mut self, surface: &Surface) -> &mut Snapshot {
        let placement = self.world.place(&self.key.namespace).await;
        let children = self.children();
        let live = self.answered.observe(children);
        let snapshot = self.snapshot.get_or_insert_with(|| Snapshot {
            surface: surface.clone(),
            placement: placement.clone(),
            live: BTreeMap::new(),
            attempt: Attempt::begin(Timestamp::now(), &surface.metadata),
            memory: Memory::default(),
        });
        snapshot.surface = surface.clone();
        snapshot.placement = placement;
        snapshot.live = live;
        snapshot
    }
}

impl Reconciler for SurfaceReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    async fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.world.lane(&self.key.namespace).await.work)
    }

    async fn round(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(surface) = self.current() else { return Ok(None) };
        // observe
        let snapshot = self.observe(&surface).await;
        // plan
        let plan = plan(snapshot, Timestamp::now());
        tracing::debug!(plan = %plan, "planned");
        snapshot.memory = plan.memory.clone();
        // execute and write
        let take = |answer| {
            if let Some(snapshot) = &mut self.snapshot {
                self.answered.take(&mut snapshot.attempt, answer);
            }
        };
        let said = &mut self.said;
        carry_out(&self.world, surface.as_ref(), &plan, said, take).await?;
        Ok(Some(plan.next))
    }

    fn restart(&mut self) {
        self.answered.clear();
        match (self.current(), &mut self.snapshot) {
            (Some(surface), Some(snapshot)) => snapshot.attempt = Attempt::begin(Timestamp::now(), &surface.metadata),
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
            || self.answered.has_news(&self.children())
    }

    fn forget(&mut self) {
        self.snapshot = None;
        self.answered.forget();
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
