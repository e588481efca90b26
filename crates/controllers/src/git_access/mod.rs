//! Access to Git and registries: observe → plan → execute → write. Agents' configurations and FluxAccesses become requests. Approved requests become
//! Secrets, which the controllers replace and revoke.
//!
//! This module has the watched objects of access and wakes the reconcilers. The reconciler of an AccessProvider (`provider`) makes and ends requests,
//! and finds leftover credentials at the host. The reconciler of a request (`request`) executes the orders of the state machine
//! `git_access::rotation`, in one namespace after the other.
//!
//! Records are written as the controller. The authoriser's Secret and the staging Secret are written as the account that the AccessProvider names.
//! Delivered Secrets are written as the account that writes credentials. This module makes no choice, and stores no value longer than one step takes.
//!
//! - `accounts`: `imagePullSecrets` of ServiceAccounts.
//! - `action_counts`: metrics of actions on credentials.
//! - `configuration`: the configuration of an agent.
//! - `host_questions`: questions to a host that belong to no request.
//! - `hosts`: connections to hosts.
//! - `manual_secrets`: Secrets that a user writes by hand.
//! - `notice`: the issue at the host that shows a request.
//! - `probes`: whether a server accepts a credential.
//! - `provider`, `request`: the reconcilers.
//! - `step_facts`: the facts that a request's steps depend on.
//! - `secret_parts`: the parts of a Secret besides its value.
//! - `secret_readers`: other readers of a delivered Secret.
//! - `secrets`: delivered Secrets.
//! - `source_observation`: the sources that use a credential.
//! - `staging`: staging Secrets.
//! - `status_reports`: statuses of FluxAccesses, grants and targets.
//! - `steps`: the orders of the rotation.

mod accounts;
mod action_counts;
mod configuration;
mod host_questions;
mod hosts;
mod manual_secrets;
mod notice;
mod probes;
mod provider;
mod request;
mod secret_parts;
mod secret_readers;
mod secrets;
mod source_observation;
mod staging;
mod status_reports;
mod step_facts;
mod steps;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use tenure_api::access::{
    AccessProvider, FluxAccess, FluxAccessGrant, FluxAccessRequest, FluxAccessRequestStatus, FluxAccessStandingGrant,
    FluxAccessTarget, name_target,
};
use tenure_api::metadata::TENURE_CONTROLLER;
use tenure_api::{GitRepository, ObjectId, OciRepository, Surface, Tenant, Time};
use tenure_cluster::Client;
use tenure_git_access::credential_kind::can_open;
use tenure_git_access::delivery::{ProviderState, list_delivered};
use tenure_git_access::notice::IssueLimiter;
use tenure_git_access::request::hash_spec;
use tenure_git_access::request_plan::Plan;
use tenure_git_access::request_plan::handover::{DeliveryState, list_holdings};
use tenure_git_access::rotation::schedule::find_reread_interval;
use tenure_git_access::rotation::{NamespaceState, SecretState};
use tenure_tenancy::access::approval::{ApprovalFacts, Verdict, decide_approval};
use tokio_util::sync::CancellationToken;

use crate::cluster_view::cache::{Cache, CacheByKind, Change};
use crate::cluster_view::key::{Key, Kind};
use crate::cluster_view::mailbox::MailboxTable;
use crate::hub::Hub;
use crate::hub::access_lookup::AccessLookup;
use crate::reconcile_loop::kind_entry::KindEntry;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::{Home, Reconciled};
use crate::telemetry::metrics::Metrics;
use hosts::{HostSlot, SharedRateLimiter};
use secret_parts::find_host;
use step_facts::list_namespaces;

/// Name of the namespace whose uid identifies this cluster.
const CLUSTER: &str = "kube-system";

/// Namespaces by the names of requests.
type Places = BTreeMap<String, Arc<BTreeSet<String>>>;

/// The last findings about the requests of a provider, by name.
#[derive(Clone, Debug, Default)]
struct ProviderFindings {
    /// The namespaces in which each request delivers.
    deliveries: Places,
    /// The namespaces in which each request would deliver if it was approved.
    reaching: Places,
    /// The requests that take over from others, or from which others take over.
    relatives: BTreeMap<String, Relatives>,
}

impl ProviderFindings {
    /// Checks whether other findings have the same facts about one request.
    fn agrees_with(&self, other: &Self, request: &str) -> bool {
        self.deliveries.get(request) == other.deliveries.get(request)
            && self.reaching.get(request) == other.reaching.get(request)
            && self.relatives.get(request) == other.relatives.get(request)
    }
}

/// The other requests of the same entry that take over from one, or from which it takes over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Relatives {
    predecessors: BTreeSet<String>,
    successor: Option<String>,
}

/// The watched objects of access, and the hosts of repositories.
#[derive(Debug)]
pub(crate) struct AccessHub {
    pub(crate) hub: Arc<Hub>,
    /// AccessProviders and FluxAccessRequests, of the platform namespace.
    caches: CacheByKind,
    pub(crate) kinds: Vec<KindEntry<Self>>,
    /// FluxAccesses of all namespaces.
    pub(crate) asked: Cache<FluxAccess>,
    /// FluxAccessGrants of the platform namespace, by the request that they answer.
    pub(crate) grants: Cache<FluxAccessGrant>,
    /// FluxAccessStandingGrants of the platform namespace.
    pub(crate) standing_grants: Cache<FluxAccessStandingGrant>,
    pub(crate) targets: Cache<FluxAccessTarget>,
    /// The last findings about each provider.
    plans: Mutex<HashMap<String, ProviderFindings>>,
    hosts: Mutex<HashMap<String, Arc<HostSlot>>>,
    /// The counts of each host, by its host and port.
    restraints: Mutex<HashMap<String, SharedRateLimiter>>,
    /// The requests that wait for sources, by namespace.
    waiting: Mutex<HashMap<String, BTreeSet<Key>>>,
    counts: Mutex<action_counts::Counts>,
    /// The issues that were last begun.
    notices: Mutex<IssueLimiter>,
    /// The namespaces in which each request has its Secret, as Surfaces were last notified.
    notified_namespaces: Mutex<HashMap<String, BTreeSet<String>>>,
    /// Cancelled once all kinds of access have been seen.
    ready: CancellationToken,
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AccessHub {
    /// Starts the reconcilers after all kinds of access have been seen.
    pub(crate) fn start_reconcilers(&self) {
        self.ready.cancel();
        self.hub.context.mailboxes.wake_all();
    }

    /// Creates a hub that has seen no object.
    pub(crate) fn new(hub: Arc<Hub>, kinds: Vec<KindEntry<Self>>) -> Arc<Self> {
        let caches = CacheByKind::default();
        for entry in &kinds {
            (entry.open_cache)(&caches);
        }
        Arc::new(Self {
            hub,
            caches,
            kinds,
            asked: Cache::default(),
            grants: Cache::by_terms(|grant| vec![grant.spec.request_ref.name.clone()]),
            standing_grants: Cache::default(),
            targets: Cache::default(),
            plans: Mutex::default(),
            hosts: Mutex::default(),
            restraints: Mutex::default(),
            waiting: Mutex::default(),
            counts: Mutex::default(),
            notices: Mutex::default(),
            ready: CancellationToken::new(),
            notified_namespaces: Mutex::default(),
        })
    }

    fn platform(&self) -> &str {
        &self.hub.context.settings.platform_namespace
    }

    fn find_provider(&self, name: &str) -> Option<Arc<AccessProvider>> {
        self.caches.get::<AccessProvider>().get(self.platform(), name)
    }

    fn list_requests(&self, provider: &str) -> Vec<Arc<FluxAccessRequest>> {
        let mut all = self.caches.get::<FluxAccessRequest>().in_namespace(self.platform());
        all.retain(|request| request.spec.provider == provider);
        all
    }

    /// Returns the host of a provider.
    fn host(&self, provider: &str) -> Arc<HostSlot> {
        let slot = Arc::clone(lock(&self.hosts).entry(provider.to_owned()).or_default());
        let address = self
            .find_provider(provider)
            .and_then(|provider| find_host(&provider.spec.address));
        if let Some(address) = address {
            let mut restraints = lock(&self.restraints);
            let restraint = restraints.entry(address.to_ascii_lowercase()).or_default();
            slot.share_restraint(Arc::clone(restraint));
        }
        slot
    }

    /// Returns the uid of this cluster's namespace `kube-system`.
    fn find_cluster_uid(&self) -> Option<String> {
        self.hub.namespaces.get("", CLUSTER)?.metadata.uid.clone()
    }

    /// Returns the verdict on a request: whether it is approved.
    fn judge(&self, request: &FluxAccessRequest) -> Verdict {
        let platform = self.platform();
        let name = request.metadata.name.as_deref().unwrap_or_default();
        let grants = self.grants.find(name);
        let grants: Vec<FluxAccessGrant> = grants.iter().map(|grant| grant.as_ref().clone()).collect();
        let standing_grants = self.standing_grants.in_namespace(platform);
        let standing_grants: Vec<FluxAccessStandingGrant> =
            standing_grants.iter().map(|grant| grant.as_ref().clone()).collect();
        decide_approval(ApprovalFacts {
            request,
            hash: &hash_spec(&request.spec),
            grants: &grants,
            standing_grants: &standing_grants,
            platform,
            judges_writes: self.hub.context.settings.judges_writes(),
            now: &Time(Timestamp::now()),
        })
    }

    /// Returns the state of a request's provider.
    fn find_provider_state(&self, provider: Option<&AccessProvider>) -> ProviderState {
        match provider {
            None => ProviderState::Gone,
            Some(provider) => match &provider.metadata.deletion_timestamp {
                Some(since) => ProviderState::Ending(Timestamp::now().as_second().saturating_sub(since.0.as_second())),
                None if provider.spec.suspend => ProviderState::Suspended,
                None => ProviderState::Active,
            },
        }
    }

    /// Returns the known state of a namespace.
    fn find_namespace(&self, name: &str) -> NamespaceState {
        match self.hub.namespaces.get("", name) {
            None => NamespaceState::Gone,
            Some(namespace) if namespace.metadata.deletion_timestamp.is_some() => NamespaceState::Terminating,
            Some(_) => NamespaceState::Present,
        }
    }

    /// Returns the namespaces in which a request delivers, once its provider was planned.
    fn find_deliveries(&self, provider: &str, request: &str) -> Option<Arc<BTreeSet<String>>> {
        let plans = lock(&self.plans);
        let plan = plans.get(provider)?;
        Some(plan.deliveries.get(request).cloned().unwrap_or_default())
    }

    /// Returns the namespaces in which a request would deliver if it was approved, once its provider was planned.
    fn find_reach(&self, provider: &str, request: &str) -> Option<Arc<BTreeSet<String>>> {
        let plans = lock(&self.plans);
        let plan = plans.get(provider)?;
        Some(plan.reaching.get(request).cloned().unwrap_or_default())
    }

    /// Returns the successors and the predecessors of a request.
    fn find_relatives(&self, request: &FluxAccessRequest) -> Relatives {
        let plans = lock(&self.plans);
        let plan = plans.get(&request.spec.provider);
        let name = request.metadata.name.as_deref().unwrap_or_default();
        let found = plan.and_then(|plan| plan.relatives.get(name));
        found.cloned().unwrap_or_default()
    }

    /// Returns the holdings of the requests that still exist, by name.
    fn list_holdings<'a>(
        &self,
        names: impl IntoIterator<Item = &'a String>,
    ) -> BTreeMap<String, BTreeMap<String, DeliveryState>> {
        let requests = self.caches.get::<FluxAccessRequest>();
        let held = names.into_iter().filter_map(|name| {
            let request = requests.get(self.platform(), name)?;
            Some((
                name.clone(),
                request.status.as_ref().map(list_holdings).unwrap_or_default(),
            ))
        });
        held.collect()
    }

    /// Checks whether the request in a Secret's label delivers such a Secret to this namespace, or has delivered one.
    fn is_mark_valid(&self, secret: &SecretState, request: &FluxAccessRequest, namespace: &str) -> bool {
        let SecretState::Present(secret) = secret else {
            return false;
        };
        let requests = self.caches.get::<FluxAccessRequest>();
        let marked_for = secret.marked_for.as_ref();
        let marked_for = marked_for.and_then(|name| requests.get(self.platform(), name));
        marked_for.is_some_and(|other| {
            other.spec.secret_name == request.spec.secret_name && list_namespaces(&other, None).contains(namespace)
        })
    }

    /// Wakes a request's predecessors, its successors and the provider after a recorded change of its holdings.
    fn wake_related_requests(&self, request: &FluxAccessRequest, status: &FluxAccessRequestStatus) {
        if request.status.as_ref().map(list_holdings).unwrap_or_default() == list_holdings(status) {
            return;
        }
        let Relatives {
            predecessors,
            successor,
        } = self.find_relatives(request);
        if predecessors.is_empty() && successor.is_none() {
            return;
        }
        for name in predecessors.iter().chain(&successor) {
            self.wake(&Key::new(FluxAccessRequest::KIND, self.platform(), name));
        }
        self.wake_provider(&request.spec.provider);
    }

    /// Stores the plan for a provider's requests: deliveries, possible deliveries, and successors. Wakes the objects for which that is a change.
    fn set_plan(&self, provider: &str, planned: &Plan) {
        let share = |places: &BTreeMap<String, BTreeSet<String>>| -> Places {
            let shared = places
                .iter()
                .map(|(name, there)| (name.clone(), Arc::new(there.clone())));
            shared.collect()
        };
        let mut relatives: BTreeMap<String, Relatives> = BTreeMap::new();
        for (earlier, later) in &planned.handovers {
            relatives.entry(earlier.clone()).or_default().successor = Some(later.clone());
            let successor = relatives.entry(later.clone()).or_default();
            successor.predecessors.insert(earlier.clone());
        }
        let found = ProviderFindings {
            deliveries: share(&planned.deliveries),
            reaching: share(&planned.reaching),
            relatives,
        };
        let before = lock(&self.plans).insert(provider.to_owned(), found.clone());
        for request in self.list_requests(provider) {
            let name = request.name_any();
            let is_known = before.as_ref().is_some_and(|before| before.agrees_with(&found, &name));
            if !is_known {
                self.wake(&Key::from_metadata(FluxAccessRequest::KIND, &request.metadata));
            }
        }
    }

    fn wake(&self, key: &Key) {
        self.hub.context.mailboxes.wake(key);
    }

    fn wake_provider(&self, name: &str) {
        self.wake(&Key::new(AccessProvider::KIND, self.platform(), name));
    }

    fn wake_all(&self, kinds: &[&'static Kind]) {
        self.hub.context.mailboxes.wake_where(|key| kinds.contains(&key.kind));
    }

    /// Returns the time until the next check of a delivered Secret.
    fn choose_look(&self) -> Duration {
        let delivered = lock(&self.notified_namespaces).values().map(BTreeSet::len).sum();
        find_reread_interval(delivered)
    }

    /// Notifies the Surfaces of namespaces in which a request has its Secret now, or no longer has it.
    fn wake_surfaces(&self, key: &Key) {
        let request = self.caches.get::<FluxAccessRequest>().get(&key.namespace, &key.name);
        let now = request.as_deref().map(list_delivered).unwrap_or_default();
        let before = match now.is_empty() {
            true => lock(&self.notified_namespaces).remove(&key.name),
            false => lock(&self.notified_namespaces).insert(key.name.clone(), now.clone()),
        };
        let changed: BTreeSet<String> = now.symmetric_difference(&before.unwrap_or_default()).cloned().collect();
        if !changed.is_empty() {
            let is_meant = |key: &Key| key.kind == Surface::KIND && changed.contains(&key.namespace);
            self.hub.context.mailboxes.wake_where(is_meant);
        }
    }

    /// Records whether a request waits for sources of a namespace.
    fn set_waiting(&self, namespace: &str, key: &Key, waits: bool) {
        let mut waiting = lock(&self.waiting);
        if waits {
            waiting.entry(namespace.to_owned()).or_default().insert(key.clone());
        } else if let Some(keys) = waiting.get_mut(namespace) {
            keys.remove(key);
            if keys.is_empty() {
                waiting.remove(namespace);
            }
        }
    }

    /// Wakes the requests and providers that a changed object of another kind concerns.
    pub(crate) fn wake_concerned(&self, changed: &Key) {
        if changed.kind == Tenant::KIND {
            self.wake_all(&[AccessProvider::KIND]);
        }
        let is_fetched = [GitRepository::KIND, OciRepository::KIND].contains(&changed.kind);
        if is_fetched {
            let waiting = lock(&self.waiting).get(&changed.namespace).cloned().unwrap_or_default();
            let id = ObjectId {
                namespace: changed.namespace.clone(),
                name: changed.name.clone(),
                group: "source.toolkit.fluxcd.io".to_owned(),
                kind: changed.kind.name.to_owned(),
            };
            for key in waiting {
                self.hub.context.mailboxes.object_changed(&key, &id);
            }
        }
        if changed.namespace == self.platform() {
            for provider in self.caches.get::<AccessProvider>().in_namespace(self.platform()) {
                let source = provider.spec.agent.as_ref().map(|agent| &agent.source_ref);
                if source.is_some_and(|source| source.kind == changed.kind.name && source.name == changed.name) {
                    self.wake_provider(&provider.name_any());
                }
            }
        }
    }

    /// Handles a namespace that was created, deleted or labelled differently.
    pub(crate) fn take_namespace(&self, change: &Change<Namespace>) {
        let marks = |namespace: &Option<Arc<Namespace>>| {
            let namespace = namespace.as_ref()?;
            Some((
                namespace.labels().clone(),
                namespace.metadata.deletion_timestamp.is_some(),
            ))
        };
        if marks(&change.old) != marks(&change.new) {
            self.wake_all(&[AccessProvider::KIND, FluxAccessRequest::KIND]);
        }
    }

    /// Handles a changed FluxAccess.
    pub(crate) fn take_asked(&self, change: &Change<FluxAccess>) {
        for access in change.old.iter().chain(&change.new) {
            self.wake_provider(&access.spec.provider);
        }
    }

    /// Handles a changed grant.
    pub(crate) fn take_grant(&self, change: &Change<FluxAccessGrant>) {
        for grant in change.old.iter().chain(&change.new) {
            let name = &grant.spec.request_ref.name;
            let request = self.caches.get::<FluxAccessRequest>().get(self.platform(), name);
            self.wake(&Key::new(FluxAccessRequest::KIND, self.platform(), name));
            if let Some(request) = request {
                self.wake_provider(&request.spec.provider);
            }
        }
    }

    /// Handles a changed standing grant.
    pub(crate) fn take_standing_grants(&self) {
        self.wake_all(&[AccessProvider::KIND, FluxAccessRequest::KIND]);
    }
}

/// Returns the accounts that a provider names for reading the host's credential and for writing created credentials.
fn list_accounts_of(provider: &AccessProvider) -> Vec<String> {
    let spec = &provider.spec;
    let authoriser = spec
        .authoriser
        .iter()
        .map(|authoriser| &authoriser.service_account_name);
    authoriser.chain(&spec.writer_service_account_name).cloned().collect()
}

impl AccessLookup for AccessHub {
    fn find_accounts(&self, provider: &str) -> Option<Vec<String>> {
        let provider = self.caches.get::<AccessProvider>().get(self.platform(), provider)?;
        Some(list_accounts_of(&provider))
    }

    fn list_accounts(&self) -> Vec<String> {
        let all = self.caches.get::<AccessProvider>().in_namespace(self.platform());
        all.iter().flat_map(|provider| list_accounts_of(provider)).collect()
    }

    fn find_secret(&self, namespace: &str, url: &str) -> Option<String> {
        let platform = self.platform();
        let all = self.caches.get::<FluxAccessRequest>().in_namespace(platform);
        let mut fitting = all.iter().filter(|request| {
            let spec = &request.spec;
            let target = self.targets.get("", &name_target(&spec.provider, spec.target.id));
            let status = target.as_ref().and_then(|target| target.status.as_ref());
            list_delivered(request).contains(namespace) && status.is_some_and(|status| can_open(request, status, url))
        });
        fitting.next().map(|request| request.spec.secret_name.clone())
    }
}

impl Home for AccessHub {
    fn caches(&self) -> &CacheByKind {
        &self.caches
    }

    fn metrics(&self) -> &Metrics {
        &self.hub.context.metrics
    }

    fn mailboxes(&self) -> &MailboxTable {
        &self.hub.context.mailboxes
    }

    fn controller(&self) -> &Client {
        &self.hub.context.controller
    }

    /// The controller writes the records of access itself, not a lane.
    async fn bookkeeper_of(&self, _namespace: &str) -> Client {
        self.hub.context.controller.clone()
    }

    fn platform_namespace(&self) -> &str {
        self.platform()
    }

    fn ready(&self) -> &CancellationToken {
        &self.ready
    }
}

impl Reconciled for AccessProvider {
    type Home = AccessHub;

    const KIND: &'static Kind = &Kind {
        api_version: "tenure.dev/v1alpha1",
        name: "AccessProvider",
        manager: TENURE_CONTROLLER,
        reporter: "tenure-controller",
    };

    fn reconciler(access_hub: Arc<AccessHub>, key: Key) -> impl Reconciler {
        provider::ProviderReconciler::new(access_hub, key)
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    fn take_change(access_hub: &AccessHub, change: &Change<Self>) {
        let spec = |provider: &Option<Arc<Self>>| {
            let provider = provider.as_ref()?;
            Some((provider.spec.clone(), provider.metadata.deletion_timestamp.is_some()))
        };
        if spec(&change.old) != spec(&change.new) {
            access_hub.wake_all(&[FluxAccessRequest::KIND]);
        }
    }
}

impl Reconciled for FluxAccessRequest {
    type Home = AccessHub;

    const KIND: &'static Kind = &Kind {
        api_version: "tenure.dev/v1alpha1",
        name: "FluxAccessRequest",
        manager: TENURE_CONTROLLER,
        reporter: "tenure-controller",
    };

    // The record lists credentials that exist at a host. It is written over the version that was read, or not at all.
    const SHARED_RECORD: Option<&'static str> = Some("credentials");

    fn reconciler(access_hub: Arc<AccessHub>, key: Key) -> impl Reconciler {
        request::RequestReconciler::new(access_hub, key)
    }

    fn refresh(access_hub: &AccessHub, key: &Key) {
        access_hub.wake_surfaces(key);
    }

    fn take_change(access_hub: &AccessHub, change: &Change<Self>) {
        let mark = |request: &Option<Arc<Self>>| {
            let request = request.as_ref()?;
            Some((
                request.metadata.uid.clone(),
                request.metadata.deletion_timestamp.is_some(),
            ))
        };
        if mark(&change.old) != mark(&change.new) {
            for request in change.old.iter().chain(&change.new) {
                access_hub.wake_provider(&request.spec.provider);
            }
        }
    }
}
