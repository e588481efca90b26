//! The known Tenants and namespaces, the use of these namespaces, and the hosts and paths of Ingresses, from four watches. The watch of Ingresses runs only
//! while a Tenant needs it.
//!
//! A watch counts as known after it has reported all existing objects, and until it has been broken for long. Objects that were read for one review are not
//! stored here: only the watch knows which state is newer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use serde_json::Value;
use tenure_admission_rules::{HostClaim, QuotaClaim, Refusal, Sums, collision, quota};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE};
use tenure_api::{ObjectMeta, Tenant};
use tenure_cluster::{Client, RawObject, WatchEvent, watch};
use tenure_tenancy::{FactIndex, IngressIndex, IngressRoutes, NamespaceFacts, Settings, TenantFacts, Usages};
use tokio::sync::watch as changing;

use super::mentions::KnownMentions;

/// After this time, the last report of a broken watch is too old for decisions.
const BROKEN: Duration = Duration::from_secs(30);
/// The shorter limit for the use of namespaces and for Ingresses. It is below the time of a reservation for an unproven sender.
const BROKEN_SOON: Duration = Duration::from_secs(3);
/// The pause before a kind that is not served is looked up again.
const ABSENT: Duration = Duration::from_secs(1);

/// The reason why the facts are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// A watch has not yet reported all its objects.
    #[error("not all {0} have been seen yet")]
    Unseen(&'static str),
    /// A watch is broken.
    #[error("changes of {0} haven't been seen for more than {1} seconds")]
    Old(&'static str, u64),
}

/// The four watched kinds.
#[derive(Clone, Copy, Debug)]
enum WatchedKind {
    Tenants,
    Namespaces,
    Quotas,
    Ingresses,
}

impl WatchedKind {
    fn plural(self) -> &'static str {
        match self {
            Self::Tenants => "Tenants",
            Self::Namespaces => "Namespaces",
            Self::Quotas => "ResourceQuotas",
            Self::Ingresses => "Ingresses",
        }
    }

    /// Returns the longest time that the watch may be broken.
    fn patience(self) -> Duration {
        match self {
            Self::Tenants | Self::Namespaces => BROKEN,
            Self::Quotas | Self::Ingresses => BROKEN_SOON,
        }
    }

    /// Returns the label selector of the watched objects.
    fn labels(self) -> Option<String> {
        match self {
            Self::Tenants | Self::Namespaces | Self::Ingresses => None,
            Self::Quotas => Some(format!("{MANAGED_BY}={MANAGED_BY_TENURE}")),
        }
    }

    fn kind(self) -> (&'static str, &'static str) {
        match self {
            Self::Tenants => ("capsule.clastix.io/v1beta2", "Tenant"),
            Self::Namespaces => ("v1", "Namespace"),
            Self::Quotas => ("v1", "ResourceQuota"),
            Self::Ingresses => ("networking.k8s.io/v1", "Ingress"),
        }
    }
}

/// The health of a watch: whether it has reported all objects, and since when it is broken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Health {
    pub(super) is_synced: bool,
    pub(super) broken_since: Option<Instant>,
}

impl Health {
    pub(super) fn is_broken_for(self, patience: Duration) -> bool {
        self.broken_since.is_some_and(|since| since.elapsed() > patience)
    }

    /// Checks whether the start should wait no longer for the first report of a watch. A watch that has failed for long must not delay the
    /// others: requests that need this watch are denied.
    pub(super) fn has_started(self) -> bool {
        self.is_synced || self.is_broken_for(BROKEN)
    }

    fn check_start(self, plural: &'static str) -> Result<(), Unknown> {
        if self.has_started() {
            Ok(())
        } else {
            Err(Unknown::Unseen(plural))
        }
    }

    fn check(self, followed: WatchedKind) -> Result<(), Unknown> {
        if !self.is_synced {
            return Err(Unknown::Unseen(followed.plural()));
        }
        let patience = followed.patience();
        if self.is_broken_for(patience) {
            return Err(Unknown::Old(followed.plural(), patience.as_secs()));
        }
        Ok(())
    }
}

/// The facts from the four watches, and the health of each watch.
#[derive(Debug)]
struct State {
    /// The facts, changed object by object. A review that still uses an earlier version keeps it, and the next
    /// change then copies the facts.
    facts: Arc<FactIndex>,
    usages: Usages,
    ingresses: IngressIndex,
    tenants: Health,
    namespaces: Health,
    quotas: Health,
    ingresses_health: Health,
    /// True while a Tenant needs the hosts and paths of Ingresses.
    needs_ingresses: changing::Sender<bool>,
}

/// The facts that are known now. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KnownFacts {
    state: Arc<RwLock<State>>,
    mentions: KnownMentions,
}

impl KnownFacts {
    /// Returns facts without any Tenant or namespace.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            mentions: KnownMentions::new(settings.clone()),
            state: Arc::new(RwLock::new(State {
                facts: Arc::new(FactIndex::new(settings)),
                usages: Usages::default(),
                ingresses: IngressIndex::default(),
                tenants: Health::default(),
                namespaces: Health::default(),
                quotas: Health::default(),
                ingresses_health: Health::default(),
                needs_ingresses: changing::Sender::new(false),
            })),
        }
    }

    /// Returns the facts, if they are complete and recent enough for a decision.
    ///
    /// # Errors
    /// [`Unknown`].
    pub fn known(&self) -> Result<Arc<FactIndex>, Unknown> {
        let state = self.state.read();
        state.namespaces.check(WatchedKind::Namespaces)?;
        state.tenants.check(WatchedKind::Tenants)?;
        Ok(Arc::clone(&state.facts))
    }

    /// Checks whether every watch has reported its objects, so that reviews can begin. A watch that has failed for 30 seconds is not
    /// waited for.
    ///
    /// # Errors
    /// [`Unknown`].
    pub fn check_start(&self) -> Result<(), Unknown> {
        self.known()?;
        let state = self.state.read();
        state.quotas.check_start(WatchedKind::Quotas.plural())?;
        if state.facts.needs_ingresses() {
            state.ingresses_health.check_start(WatchedKind::Ingresses.plural())?;
        }
        drop(state);
        self.mentions.check_start()
    }

    /// Returns the counted use for a claim.
    ///
    /// # Errors
    /// [`Unknown`].
    pub(super) fn add_up(&self, facts: &FactIndex, claim: &QuotaClaim) -> Result<Result<Sums, Refusal>, Unknown> {
        let state = self.state.read();
        state.quotas.check(WatchedKind::Quotas)?;
        Ok(quota::add_up(facts, &state.usages, claim))
    }

    /// Checks whether another known Ingress has a host or path of a claim.
    ///
    /// # Errors
    /// [`Unknown`].
    pub(super) fn collide(&self, facts: &FactIndex, claim: &HostClaim) -> Result<Result<(), Refusal>, Unknown> {
        let state = self.state.read();
        state.ingresses_health.check(WatchedKind::Ingresses)?;
        Ok(collision::check(facts, &state.ingresses, claim))
    }

    /// Returns the index of objects that name namespaces.
    pub(super) fn mentions(&self) -> &KnownMentions {
        &self.mentions
    }

    /// Follows Tenants, namespaces, their use and Ingresses until the future is dropped. The watches use the identity of
    /// the client.
    pub async fn follow(&self, client: Client) {
        futures::future::join5(
            self.follow_one(&client, WatchedKind::Namespaces),
            self.follow_one(&client, WatchedKind::Tenants),
            self.follow_one(&client, WatchedKind::Quotas),
            self.follow_while_needed(&client),
            self.mentions.follow(&client),
        )
        .await;
    }

    /// Follows Ingresses while a Tenant needs them.
    async fn follow_while_needed(&self, client: &Client) {
        let mut needed = self.state.read().needs_ingresses.subscribe();
        while needed.wait_for(|needed| *needed).await.is_ok() {
            tokio::select! {
                () = self.follow_one(client, WatchedKind::Ingresses) => {}
                _no_more = needed.wait_for(|needed| !*needed) => {}
            }
            let mut state = self.state.write();
            state.ingresses = IngressIndex::default();
            state.ingresses_health = Health::default();
        }
    }

    async fn follow_one(&self, client: &Client, followed: WatchedKind) {
        let (api_version, kind) = followed.kind();
        let mut is_logged = false;
        let resource = loop {
            match client.resource(api_version, kind).await {
                Ok(resource) => break resource,
                Err(error) if !is_logged => {
                    is_logged = true;
                    tracing::warn!(%error, "admission webhooks deny all writes that need them until {kind} can be watched");
                }
                Err(_) => {}
            }
            self.set_broken(followed);
            tokio::time::sleep(ABSENT).await;
        };
        let sink = |event: WatchEvent| self.apply_event(followed, event);
        match watch(client, &resource, None, followed.labels().as_deref(), sink).await {}
    }

    fn apply_event(&self, followed: WatchedKind, event: WatchEvent) {
        match event {
            WatchEvent::Changed(seen) if matches!(followed, WatchedKind::Quotas) => {
                let quota = seen.read::<Value>().ok();
                let usages = &mut self.state.write().usages;
                usages.set_quota(&seen.namespace, &seen.name, quota.as_ref());
            }
            WatchEvent::Changed(seen) if matches!(followed, WatchedKind::Ingresses) => {
                // For an unreadable Ingress, the last readable state is kept.
                if let Ok(ingress) = seen.read::<Value>() {
                    let pairs = IngressRoutes::read(&ingress);
                    let index = &mut self.state.write().ingresses;
                    index.set_ingress(&seen.namespace, &seen.name, Some(&pairs));
                }
            }
            WatchEvent::Changed(seen) => {
                // The object is parsed before the lock is taken, so no review waits for it.
                let change = read_change(followed, &seen);
                self.change(change);
            }
            WatchEvent::Deleted { namespace, name, .. } => match followed {
                WatchedKind::Tenants => self.change(Change::TenantGone(name)),
                WatchedKind::Namespaces => {
                    let mut state = self.state.write();
                    state.usages.forget_namespace(&name);
                    state.ingresses.forget_namespace(&name);
                    drop(state);
                    self.change(Change::NamespaceGone(name));
                }
                WatchedKind::Quotas => self.state.write().usages.set_quota(&namespace, &name, None),
                WatchedKind::Ingresses => self.state.write().ingresses.set_ingress(&namespace, &name, None),
            },
            WatchEvent::Synced { .. } => self.set_health(followed, |health| {
                health.is_synced = true;
                health.broken_since = None;
            }),
            WatchEvent::Resumed | WatchEvent::Progress { .. } => {
                self.set_health(followed, |health| health.broken_since = None);
            }
            WatchEvent::Failed(error) => {
                tracing::debug!(%error, "the watch of {} broke", followed.plural());
                self.set_broken(followed);
            }
            WatchEvent::Listing => {}
        }
    }

    /// Applies a change to the facts.
    fn change(&self, change: Change) {
        let mut state = self.state.write();
        change.make(Arc::make_mut(&mut state.facts));
        let needs = state.facts.needs_ingresses();
        state
            .needs_ingresses
            .send_if_modified(|needed| std::mem::replace(needed, needs) != needs);
    }

    fn set_broken(&self, followed: WatchedKind) {
        self.set_health(followed, |health| {
            health.broken_since.get_or_insert_with(Instant::now);
        });
    }

    fn set_health(&self, followed: WatchedKind, set: impl FnOnce(&mut Health)) {
        let mut state = self.state.write();
        set(match followed {
            WatchedKind::Tenants => &mut state.tenants,
            WatchedKind::Namespaces => &mut state.namespaces,
            WatchedKind::Quotas => &mut state.quotas,
            WatchedKind::Ingresses => &mut state.ingresses_health,
        });
    }
}

/// The current state of a Tenant or namespace, or its removal.
pub(super) enum Change {
    Tenant(TenantFacts),
    TenantGone(String),
    Namespace(NamespaceFacts),
    NamespaceGone(String),
}

impl Change {
    /// Applies the change to an index.
    pub(super) fn make(self, facts: &mut FactIndex) {
        match self {
            Self::Tenant(tenant) => facts.set_tenant(tenant),
            Self::TenantGone(name) => facts.remove_tenant(&name),
            Self::Namespace(namespace) => facts.set_namespace(namespace),
            Self::NamespaceGone(name) => facts.remove_namespace(&name),
        }
    }
}

/// An object of which only the metadata is read.
#[derive(serde::Deserialize)]
struct Head {
    #[serde(default)]
    metadata: ObjectMeta,
}

fn read_change(followed: WatchedKind, seen: &RawObject) -> Change {
    let head = || seen.read::<Head>().map(|head| head.metadata).unwrap_or_default();
    match followed {
        // An unreadable Tenant exists, but has no owners.
        WatchedKind::Tenants => Change::Tenant(seen.read::<Tenant>().map_or_else(
            |_| TenantFacts {
                name: seen.name.clone(),
                uid: head().uid.unwrap_or_default(),
                ..TenantFacts::default()
            },
            |tenant| TenantFacts::from(&tenant),
        )),
        WatchedKind::Namespaces | WatchedKind::Quotas | WatchedKind::Ingresses => {
            let mut facts = NamespaceFacts::from(&head());
            facts.name.clone_from(&seen.name);
            Change::Namespace(facts)
        }
    }
}
