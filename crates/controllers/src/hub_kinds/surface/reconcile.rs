//! The rounds of one Surface. The Snapshot stays from round to round. The plan makes every choice.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::metadata::SURFACE_LABEL;
use tenure_api::{ObjectId, Surface};
use tenure_cluster::{ClusterError, EventHistory};
use tenure_planner::surface::{Attempt, Memory, Snapshot, deploy_key, ownership, plan};
use tenure_planner::{KnownObjects, Live, Next, Object};
use tokio::sync::Semaphore;

use super::{package_rule_trial, source_keys};
use crate::cluster_view::key::Key;
use crate::hub::Hub;
use crate::hub_kinds::plan_steps::carry_out;
use crate::lane::HubApi as _;
use crate::reconcile_loop::object_loop::Reconciler;

/// The reconciler of one Surface.
pub(crate) struct SurfaceReconciler {
    hub: Arc<Hub>,
    key: Key,
    snapshot: Option<Snapshot>,
    event_history: EventHistory,
    answered: KnownObjects,
}

impl SurfaceReconciler {
    pub(crate) fn new(hub: Arc<Hub>, key: Key) -> Self {
        Self {
            hub,
            key,
            snapshot: None,
            event_history: EventHistory::default(),
            answered: KnownObjects::default(),
        }
    }

    fn current(&self) -> Option<Arc<Surface>> {
        self.hub
            .caches
            .get::<Surface>()
            .get(&self.key.namespace, &self.key.name)
    }

    /// Returns the Secrets of approved access for the Surface's sources that name no Secret, by the name of the source.
    fn list_access(&self, surface: &Surface) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for source in &surface.spec.sources {
            if source.secret_ref.is_none()
                && source.deploy_key.is_none()
                && let Some(secret) = self.hub.find_access_secret(&self.key.namespace, source.url.reveal())
            {
                found.insert(source.name.clone(), secret);
            }
        }
        found
    }

    /// Returns the objects in the Surface's namespace that have the Surface's label, from the caches of the namespace's shard.
    fn list_children(&self) -> BTreeMap<ObjectId, Live> {
        let shard = self.hub.find_shard(&self.key.namespace);
        let labelled = shard.map(|shard| shard.list_labelled((SURFACE_LABEL, &self.key.name)));
        let with_id = |object| Some((ObjectId::from_object(&object).ok()?, Live::Present(Object(object))));
        labelled.into_iter().flatten().filter_map(with_id).collect()
    }

    async fn observe(&mut self, surface: &Surface) -> &mut Snapshot {
        let placement = self.hub.read_placement(&self.key.namespace).await;
        let lane_trouble = self.hub.find_lane_trouble(&self.key.namespace);
        let children = self.list_children();
        let access = self.list_access(surface);
        let live = self.answered.merge_watched(children);
        let snapshot = self.snapshot.get_or_insert_with(|| Snapshot {
            surface: surface.clone(),
            placement: placement.clone(),
            live: BTreeMap::new(),
            lane_trouble: None,
            judges_writes: self.hub.context.settings.judges_writes(),
            ownership: None,
            keys: BTreeMap::new(),
            access: BTreeMap::new(),
            attempt: Attempt::new(Timestamp::now(), &surface.metadata),
            memory: Memory::default(),
        });
        snapshot.surface = surface.clone();
        snapshot.placement = placement;
        snapshot.live = live;
        snapshot.lane_trouble = lane_trouble;
        snapshot.access = access;
        snapshot
    }
}

impl Reconciler for SurfaceReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    fn is_admitted(&self) -> bool {
        self.hub.is_admitted(&self.key.namespace)
    }

    async fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.hub.find_lane(&self.key.namespace).await.limits.work)
    }

    async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(surface) = self.current() else { return Ok(None) };
        // observe
        let hub = Arc::clone(&self.hub);
        let namespace = self.key.namespace.clone();
        let snapshot = self.observe(&surface).await;
        let now = Timestamp::now();
        if let Some(account) = ownership::find_due(snapshot, now) {
            snapshot.ownership = Some(ownership::TrialResult {
                at: now,
                account: account.to_string(),
                answer: package_rule_trial::try_package_rule(&hub, &account, &namespace).await,
            });
        }
        source_keys::maintain_keys(&hub, snapshot, &namespace).await;
        // plan
        let plan = plan(snapshot, Timestamp::now());
        tracing::debug!(plan = %plan, "planned");
        snapshot.memory = plan.memory.clone();
        // execute and write
        let take = |answer| {
            if let Some(snapshot) = &mut self.snapshot {
                self.answered.record_answer(&mut snapshot.attempt, answer);
            }
        };
        let event_history = &mut self.event_history;
        carry_out(&self.hub, surface.as_ref(), &plan, event_history, take).await?;
        let Some(snapshot) = &self.snapshot else {
            return Ok(None);
        };
        let now = Timestamp::now();
        Ok(Some(self.answered.check_end(plan.next, &snapshot.attempt, now)))
    }

    fn restart(&mut self) {
        self.answered.clear();
        match (self.current(), &mut self.snapshot) {
            (Some(surface), Some(snapshot)) => {
                snapshot.attempt = Attempt::new(Timestamp::now(), &surface.metadata);
                deploy_key::begin_attempt(snapshot);
            }
            _ => self.snapshot = None,
        }
    }

    async fn needs_attempt(&mut self, _changed: &HashSet<ObjectId>) -> bool {
        let (Some(surface), Some(snapshot)) = (self.current(), &self.snapshot) else {
            return true;
        };
        let lane_trouble = self.hub.find_lane_trouble(&self.key.namespace);
        let placement = self.hub.read_placement(&self.key.namespace).await;
        snapshot.is_overtaken(&surface, &placement, lane_trouble.as_deref())
            || snapshot.access != self.list_access(&surface)
            || self.answered.has_news(&self.list_children())
    }

    fn forget(&mut self) {
        self.snapshot = None;
        self.answered.forget();
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
