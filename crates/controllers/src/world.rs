//! What all reconcilers share: clients, caches, watches, artifacts, lanes. Owns no decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::DynamicObject;
use tenure_api::{Kustomization, Tenant};
use tenure_cluster::{Client, Clients};
use tenure_planner::kustomization::{Guards, Turnover};
use tenure_sources::{ByteBudget, Policy, StorageError};
use tenure_tenancy::{Placement, Realm, Settings};
use tokio_util::sync::CancellationToken;

use crate::artifacts::Artifacts;
use crate::cache::{Cache, Caches};
use crate::config::Config;
use crate::inventories::Inventories;
use crate::key::Key;
use crate::lanes::{Lane, Lanes};
use crate::live::LiveObjects;
use crate::mailbox::Mailboxes;
use crate::realm::Placements;
use crate::render::Renderings;
use crate::turnovers::Turnovers;
use crate::under_way::UnderWay;

/// How long changes of Tenants and namespaces are gathered before everybody is told.
const GATHERED: Duration = Duration::from_millis(10);

/// The objects of one kind that look at a changed one of any kind.
pub(crate) type ListDependents = fn(&World, &Key) -> Vec<Key>;

/// What all reconcilers share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) clients: Clients,
    pub(crate) controller: Client,
    pub(crate) settings: Settings,
    pub(crate) platform_sources: Policy,
    pub(crate) tenant_sources: Policy,
    pub(crate) renderings: Renderings,
    pub(crate) guards: Guards,
    /// The objects of the kinds that are reconciled.
    pub(crate) caches: Caches,
    pub(crate) namespaces: Cache<Namespace>,
    /// Those that bear the label of a Tenant.
    pub(crate) role_bindings: Cache<DynamicObject>,
    /// Those that bear the label of a Tenant.
    pub(crate) service_accounts: Cache<DynamicObject>,
    pub(crate) artifacts: Artifacts,
    pub(crate) live: Arc<LiveObjects>,
    /// Which Kustomizations name which objects.
    pub(crate) inventories: Inventories,
    /// What Kustomizations of one source tell each other.
    pub(crate) turnovers: Turnovers,
    pub(crate) under_way: Arc<UnderWay>,
    pub(crate) lanes: Lanes,
    /// Room for the objects that reconciliations look at.
    pub(crate) looking: ByteBudget,
    pub(crate) mailboxes: Arc<Mailboxes>,
    /// Cancelled once everything that is there has been seen.
    pub(crate) ready: CancellationToken,
    placements: Placements,
    /// Whether those who depend on whose a namespace is are about to be told.
    realm_news: Arc<AtomicBool>,
    /// Who looks at an object that changed, asked of each kind.
    dependents: Vec<ListDependents>,
}

impl World {
    pub(crate) fn new(config: Config, dependents: Vec<ListDependents>) -> Result<Self, StorageError> {
        let clients = Clients::new(config.connection);
        let controller = clients.controller();
        let mailboxes = Arc::new(Mailboxes::default());
        Ok(Self {
            live: Arc::new(LiveObjects::new(clients.clone(), Arc::clone(&mailboxes))),
            artifacts: Artifacts::open(&config.artifacts, config.limits, config.budgets)?,
            under_way: Arc::new(UnderWay::open(config.artifacts.join("under-way"))),
            lanes: Lanes::new(config.lane_width, clients.turns().clone()),
            looking: config.budgets.looking(),
            dependents,
            clients,
            controller,
            settings: config.settings,
            platform_sources: config.platform_sources,
            tenant_sources: config.tenant_sources,
            renderings: Renderings::new(config.rendering),
            guards: config.guards,
            inventories: Inventories::default(),
            turnovers: Turnovers::default(),
            caches: Caches::default(),
            namespaces: Cache::default(),
            role_bindings: Cache::default(),
            service_accounts: Cache::default(),
            mailboxes,
            ready: CancellationToken::new(),
            placements: Placements::default(),
            realm_news: Arc::default(),
        })
    }

    /// Whose a namespace is. One that no watch has told of yet is asked for, so that what is created right after it is not refused.
    pub(crate) async fn place(&self, namespace: &str) -> Placement {
        let removals = self.namespaces.removals();
        if self.namespaces.get("", namespace).is_none()
            && let Ok(resource) = self.controller.resource("v1", "Namespace").await
            && let Ok(Some(found)) = self.controller.find(&resource, "", namespace).await
            && let Ok(found) = serde_json::from_value::<Namespace>(found)
        {
            self.namespaces.found(found, removals);
            self.placements.forget();
        }
        self.placements
            .place(namespace, &self.settings, &self.caches.of::<Tenant>(), &self.namespaces)
    }

    /// The controller's own client for an object, which works in the turns of that object's lane.
    pub(crate) async fn controller_for(&self, key: &Key) -> Client {
        self.controller.in_turns(&self.lane(&key.namespace).await.turns)
    }

    /// The lane of a namespace; without one, the platform's.
    pub(crate) async fn lane(&self, namespace: &str) -> Arc<Lane> {
        if namespace.is_empty() {
            return self.lanes.platform();
        }
        self.lanes.of(&self.place(namespace).await, namespace)
    }

    /// All Tenants and namespaces.
    pub(crate) fn realm(&self) -> Arc<Realm> {
        self.placements
            .realm(&self.settings, &self.caches.of::<Tenant>(), &self.namespaces)
    }

    /// A Tenant or a namespace changed: everything that depends on whose a namespace is has to look again.
    ///
    /// They are told a moment later, so that a hundred namespaces made at once are one change. Must be called inside a tokio runtime.
    pub(crate) fn realm_changed(&self) {
        self.placements.forget();
        if self.realm_news.swap(true, Ordering::AcqRel) {
            return;
        }
        let (mailboxes, news) = (Arc::clone(&self.mailboxes), Arc::clone(&self.realm_news));
        tokio::spawn(async move {
            tokio::time::sleep(GATHERED).await;
            news.store(false, Ordering::Release);
            mailboxes.wake_all();
        });
    }

    /// Wakes everybody who looks at an object that changed.
    pub(crate) fn tell_dependents(&self, changed: &Key) {
        for list in &self.dependents {
            for dependent in list(self, changed) {
                self.mailboxes.wake(&dependent);
            }
        }
    }

    /// A Kustomization is another in the cache, or gone from it: those that look at it are told.
    pub(crate) fn kustomization_changed(&self, key: &Key) {
        self.inventories
            .refresh(key, || self.caches.of::<Kustomization>().get(&key.namespace, &key.name));
        for listener in self.turnovers.listeners(key) {
            self.mailboxes.wake(&listener);
        }
    }

    /// Takes what a Kustomization gains and drops with a revision, and tells those that wait for it. Of what it gains, only that counts
    /// which another one has.
    pub(crate) fn tell_turnover(&self, key: &Key, turnover: &Turnover) {
        let told = Turnover {
            revision: turnover.revision.clone(),
            generation: turnover.generation,
            gains: self.inventories.named_by_others(key, &turnover.gains),
            drops: turnover.drops.clone(),
        };
        if self.turnovers.tell(key, told) {
            for listener in self.turnovers.listeners(key) {
                self.mailboxes.wake(&listener);
            }
        }
    }
}
