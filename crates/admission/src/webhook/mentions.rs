//! The objects that name a namespace, from one watch for each kind that may name one. A kind that the cluster does not serve names nothing. If a watch
//! fails for long, the answer is unknown, and then no owner creates a namespace.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use serde_json::Value;
use tenure_cluster::{Client, ClusterError, Resource, WatchEvent, watch};
use tenure_tenancy::mentions::{MENTIONING_KINDS, Mention, MentionIndex, MentioningKind};
use tenure_tenancy::{FactIndex, Settings, TenantFacts};
use tokio::sync::Notify;

use super::facts::{Health, Unknown};

/// How long a watch may be broken before its answers are too old.
const BROKEN: Duration = Duration::from_secs(30);
/// The pause before a kind that the cluster does not serve is looked up again.
const UNSERVED: Duration = Duration::from_secs(30);
/// The pause after a failure of discovery.
const FAILED: Duration = Duration::from_secs(1);

/// The index of mentions, and the health of the watch of each kind.
#[derive(Debug, Default)]
struct State {
    index: MentionIndex,
    health: HashMap<&'static str, Health>,
}

/// The index and the health of its watches. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct KnownMentions {
    settings: Arc<Settings>,
    state: Arc<RwLock<State>>,
}

impl KnownMentions {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings: Arc::new(settings),
            state: Arc::default(),
        }
    }

    /// Returns an object outside a Tenant that names a namespace.
    ///
    /// # Errors
    /// When a watch has not reported everything yet, or is broken for long.
    pub(super) fn find_outside(
        &self,
        facts: &FactIndex,
        tenant: &TenantFacts,
        namespace: &str,
    ) -> Result<Option<Mention>, String> {
        let state = self.state.read();
        for kind in &MENTIONING_KINDS {
            let health = state.health.get(kind.plural).copied().unwrap_or_default();
            if !health.is_synced {
                return Err(format!("not all {} have been seen yet", kind.plural));
            }
            if health.is_broken_for(BROKEN) {
                return Err(format!(
                    "changes of {} have not been seen for more than {} seconds",
                    kind.plural,
                    BROKEN.as_secs()
                ));
            }
        }
        Ok(state.index.find_outside(facts, tenant, namespace))
    }

    /// Checks whether each kind was reported once. A kind that has failed for long is not waited for: then owners create no
    /// namespace.
    ///
    /// # Errors
    /// [`Unknown::Unseen`].
    pub(super) fn check_start(&self) -> Result<(), Unknown> {
        let state = self.state.read();
        let has_started =
            |kind: &MentioningKind| state.health.get(kind.plural).is_some_and(|health| health.has_started());
        let waiting = MENTIONING_KINDS.iter().find(|kind| !has_started(kind));
        waiting.map_or(Ok(()), |kind| Err(Unknown::Unseen(kind.plural)))
    }

    /// Follows all kinds until the future is dropped.
    pub(super) async fn follow(&self, client: &Client) {
        let all = MENTIONING_KINDS.iter().map(|kind| self.follow_kind(client, kind));
        futures::future::join_all(all).await;
    }

    async fn follow_kind(&self, client: &Client, kind: &'static MentioningKind) {
        loop {
            let resource = self.find_resource(client, kind).await;
            self.reset_kind(kind);
            let gone = Notify::new();
            let sink = |event: WatchEvent| {
                let is_gone = matches!(event, WatchEvent::Failed(ClusterError::PathGone { .. }));
                self.apply_event(kind, event);
                if is_gone {
                    gone.notify_one();
                }
            };
            tokio::select! {
                never = watch(client, &resource, None, None, sink) => match never {},
                // Discovery shows whether the kind is no longer served or is served in another
                // version.
                () = gone.notified() => tokio::time::sleep(FAILED).await,
            }
        }
    }

    async fn find_resource(&self, client: &Client, kind: &'static MentioningKind) -> Resource {
        loop {
            match client.resource_in_any_version(&kind.api_version(), kind.kind).await {
                Ok(resource) => return resource,
                Err(ClusterError::NoKindMatch { .. }) => {
                    self.set_unserved(kind);
                    tokio::time::sleep(UNSERVED).await;
                }
                Err(error) => {
                    self.set_broken(kind, &error);
                    tokio::time::sleep(FAILED).await;
                }
            }
        }
    }

    /// Forgets an earlier watch of a kind: a new one reports no deletions from before it began.
    fn reset_kind(&self, kind: &'static MentioningKind) {
        let mut state = self.state.write();
        state.index.forget_kind(kind);
        state.health.entry(kind.plural).or_default().is_synced = false;
    }

    fn apply_event(&self, kind: &'static MentioningKind, event: WatchEvent) {
        match event {
            WatchEvent::Changed(seen) => {
                // For an unreadable object, the index keeps the last readable state.
                if let Ok(object) = seen.read::<Value>() {
                    self.set_object(kind, (&seen.namespace, &seen.name), Some(&object));
                }
            }
            WatchEvent::Deleted { namespace, name, .. } => self.set_object(kind, (&namespace, &name), None),
            WatchEvent::Synced { .. } => self.set_health(kind, |health| {
                health.is_synced = true;
                health.broken_since = None;
            }),
            WatchEvent::Resumed | WatchEvent::Progress { .. } => {
                self.set_health(kind, |health| health.broken_since = None);
            }
            WatchEvent::Failed(error) => self.set_broken(kind, &error),
            WatchEvent::Listing => {}
        }
    }

    fn set_object(&self, kind: &MentioningKind, place: (&str, &str), object: Option<&Value>) {
        self.state.write().index.set_object(&self.settings, kind, place, object);
    }

    fn set_unserved(&self, kind: &'static MentioningKind) {
        let mut state = self.state.write();
        state.index.forget_kind(kind);
        let health = Health {
            is_synced: true,
            broken_since: None,
        };
        state.health.insert(kind.plural, health);
    }

    fn set_broken(&self, kind: &'static MentioningKind, error: &ClusterError) {
        tracing::debug!(%error, "the watch of {} broke", kind.plural);
        self.set_health(kind, |health| {
            health.broken_since.get_or_insert_with(Instant::now);
        });
    }

    fn set_health(&self, kind: &'static MentioningKind, set: impl FnOnce(&mut Health)) {
        set(self.state.write().health.entry(kind.plural).or_default());
    }
}
