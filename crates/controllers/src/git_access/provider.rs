//! The rounds of one AccessProvider: entries become requests and targets, which end when no entry asks for them any more. Unrecorded credentials in
//! the host's lists are revoked. This module stores what was read and looked up. The plan makes every choice.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use serde_json::Value;
use tenure_api::ObjectId;
use tenure_api::access::request::AskedIn;
use tenure_api::access::{
    AccessProvider, AccessProviderStatus, FluxAccess, FluxAccessRequest, FluxAccessRequestSpec, FluxAccessTarget,
    FluxAccessTargetSpec, REQUESTED_BY, name_target,
};
use tenure_api::condition::{Condition, ConditionStatus, READY};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, TENURE_CONTROLLER, TENURE_FINALIZER};
use tenure_api::time::Time;
use tenure_cluster::{Client, ClusterError, DeleteOptions, Preconditions};
use tenure_git_access::configuration::{Problem, Unread, read_object};
use tenure_git_access::delivery::FAREWELL_SECONDS;
use tenure_git_access::manual_secret;
use tenure_git_access::request_plan::{PathLookup, Plan, RequestedEntry, Snapshot, plan};
use tenure_git_access::status::{AUTHORISER_WORKS, make_condition};
use tenure_planner::{FinalizerChange, Next};
use tenure_remote_requests::git_host::{HostKind, HostQuery, HostReply, Scope};
use tenure_tenancy::Placement;
use tenure_tenancy::access::approval::Verdict;
use tenure_tenancy::access::receiver::{Installation, ProviderReach, check_receiver};
use tenure_tenancy::access::{EntryAuthor, NamespacePattern, ReceivingNamespace};
use tokio::sync::Semaphore;

use super::AccessHub;
use super::configuration::{self, LastRead};
use super::hosts::read_kind;
use super::steps::Actor;
use crate::cluster_view::key::Key;
use crate::lane::HubApi as _;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::object_writer::ObjectWriter;
use crate::reconcile_loop::reconciled::{Home as _, Reconciled as _};

/// How long the host's number for a path is used before the path is looked up again.
pub(super) const BELIEVED: SignedDuration = SignedDuration::from_hours(1);
/// The delay before an unanswered path is looked up again.
pub(super) const AGAIN: SignedDuration = SignedDuration::from_mins(1);
/// The limit of FluxAccesses that are read for one provider.
const MOST_OBJECTS: usize = 5_000;

/// The clone addresses of a target, as its host reports them.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    pub(super) http: Option<String>,
    pub(super) ssh: Option<String>,
}

/// A target that could not be listed at the host.
pub(super) struct UnlistedTarget {
    pub(super) path: String,
    pub(super) why: String,
    /// The time of the next attempt.
    pub(super) again: Timestamp,
}

/// The reconciler of one provider.
pub(super) struct ProviderReconciler {
    pub(super) access_hub: Arc<AccessHub>,
    pub(super) key: Key,
    pub(super) last: LastRead,
    /// The host's answers about paths, and the time until which each is used.
    pub(super) looked_up: BTreeMap<(Scope, String), (PathLookup, Timestamp)>,
    /// Clone addresses of the paths that were looked up.
    pub(super) addresses: BTreeMap<(Scope, String), Addresses>,
    /// When each target was last listed and swept.
    pub(super) listed: HashMap<(Scope, u64), Timestamp>,
    pub(super) unlisted: BTreeMap<(Scope, u64), UnlistedTarget>,
    pub(super) authoriser: Option<(Condition, Option<Time>, Timestamp)>,
    permits: Arc<Semaphore>,
}

impl ProviderReconciler {
    pub(super) fn new(access_hub: Arc<AccessHub>, key: Key) -> Self {
        Self {
            access_hub,
            key,
            last: LastRead::default(),
            looked_up: BTreeMap::new(),
            addresses: BTreeMap::new(),
            listed: HashMap::new(),
            unlisted: BTreeMap::new(),
            authoriser: None,
            permits: Arc::new(Semaphore::new(1)),
        }
    }

    fn current(&self) -> Option<Arc<AccessProvider>> {
        self.access_hub
            .caches()
            .get::<AccessProvider>()
            .get(&self.key.namespace, &self.key.name)
    }

    pub(super) fn controller(&self) -> &Client {
        self.access_hub.controller()
    }

    /// Lists all entries for this provider, the unreadable parts, the problems, and the FluxAccesses.
    async fn list_asked(
        &self,
        provider: &AccessProvider,
    ) -> (
        Vec<RequestedEntry>,
        Vec<(AskedIn, Unread)>,
        Vec<Problem>,
        Vec<(Arc<FluxAccess>, Placement)>,
    ) {
        let (mut asked, mut problems, mut objects) = (Vec::new(), Vec::new(), Vec::new());
        let mut unread: Vec<(AskedIn, Unread)> = Vec::new();
        if let Some(agent) = &provider.spec.agent {
            let read = self.last.configuration.as_ref();
            let left = read.map_or_else(Unread::of_anything, |configuration| configuration.unread.clone());
            unread.push((name_agent(&agent.name), left));
        }
        if let (Some(agent), Some(configuration)) = (&provider.spec.agent, &self.last.configuration) {
            problems.extend(configuration.problems.iter().cloned());
            asked.extend(configuration.entries.iter().map(|entry| RequestedEntry {
                asked_in: name_agent(&agent.name),
                author: None,
                entry: entry.clone(),
            }));
        }
        let all = self.access_hub.asked.all();
        let own = all.into_iter().filter(|access| access.spec.provider == self.key.name);
        for (index, access) in own.enumerate() {
            let namespace = access.namespace().unwrap_or_default();
            let placement = self.access_hub.hub.read_placement(&namespace).await;
            let author = access.annotations().get(REQUESTED_BY).cloned();
            let asked_in = AskedIn {
                kind: "FluxAccess".to_owned(),
                namespace: namespace.clone(),
                name: access.name_any(),
                tenant: match &placement {
                    Placement::Tenant(tenant) => Some(tenant.tenant.to_string()),
                    _ => None,
                },
            };
            if index >= MOST_OBJECTS {
                // The requests of an unread FluxAccess continue.
                unread.push((asked_in, Unread::of_anything()));
                objects.push((access, placement));
                continue;
            }
            let configuration = read_object(&access, &provider.spec.top_level_group);
            problems.extend(configuration.problems);
            let left = if author.is_some() {
                configuration.unread
            } else {
                Unread::of_anything()
            };
            unread.push((asked_in.clone(), left));
            match author {
                // The namespace's tenant must be known, or the requester could approve the request.
                None => problems.push(Problem {
                    place: tenure_git_access::configuration::Place {
                        file: format!("FluxAccess {namespace}/{}", access.name_any()).into(),
                        line: None,
                        entry: String::new(),
                    },
                    message: format!("its writer is unknown (annotation {REQUESTED_BY} is missing): write it again while admission is on"),
                }),
                Some(author) => asked.extend(configuration.entries.into_iter().map(|entry| RequestedEntry {
                    asked_in: asked_in.clone(),
                    author: Some(author.clone()),
                    entry,
                })),
            }
            objects.push((access, placement));
        }
        unread.retain(|(_, unread)| !unread.is_empty());
        (asked, unread, problems, objects)
    }

    /// Asks the host about paths. Its answers are trusted for a while.
    async fn look_up(&mut self, actor: &Actor, paths: &[(Scope, String)]) {
        for (scope, path) in paths {
            let ask = HostQuery::FindByPath {
                scope: *scope,
                path: path.clone(),
            };
            let answer = match actor.ask(&ask, None).await {
                Ok(answered) => match answered.reply {
                    HostReply::Found(Some(found)) => {
                        let addresses = Addresses {
                            http: found.http_url,
                            ssh: found.ssh_url,
                        };
                        self.addresses.insert((*scope, path.clone()), addresses);
                        PathLookup::Known(found.target)
                    }
                    _ => PathLookup::Nothing,
                },
                Err(trouble) => PathLookup::Unknown(trouble.to_string()),
            };
            let wait = if matches!(answer, PathLookup::Known(_)) {
                BELIEVED
            } else {
                AGAIN
            };
            let until = Timestamp::now().checked_add(wait).unwrap_or(Timestamp::MAX);
            self.looked_up.insert((*scope, path.clone()), (answer, until));
        }
    }

    /// Makes a target of each path without a question, for a provider whose host can't be asked.
    fn identify(&mut self, paths: &[(Scope, String)]) {
        let until = Timestamp::now().checked_add(BELIEVED).unwrap_or(Timestamp::MAX);
        for (scope, path) in paths {
            let known = PathLookup::Known(manual_secret::make_target(*scope, path));
            self.looked_up.insert((*scope, path.clone()), (known, until));
        }
    }

    /// Creates, ends and keeps requests and targets as planned.
    async fn execute(&self, plan: &Plan) -> Result<(), ClusterError> {
        let platform = self.key.namespace.as_str();
        for (name, target) in &plan.targets {
            if self.access_hub.targets.get("", name).is_none() {
                self.make_target(name, target).await?;
            }
        }
        for (name, spec) in &plan.make {
            self.make_request(platform, name, spec).await?;
        }
        for name in &plan.end {
            let Some(request) = self.access_hub.caches().get::<FluxAccessRequest>().get(platform, name) else {
                continue;
            };
            let options = DeleteOptions {
                preconditions: Preconditions {
                    uid: request.metadata.uid.clone(),
                    resource_version: None,
                },
                propagation: None,
                dry_run: false,
            };
            let resource = self
                .controller()
                .resource("tenure.dev/v1alpha1", "FluxAccessRequest")
                .await?;
            tracing::info!(request = name, "no object asks for this access any more");
            self.controller().delete(&resource, platform, name, &options).await?;
        }
        for name in &plan.forget {
            self.forget_target(name).await?;
        }
        Ok(())
    }

    /// Returns the names of the targets that were made for this provider.
    fn list_targets(&self) -> BTreeSet<String> {
        let all = self.access_hub.targets.all();
        let is_own = |target: &&Arc<FluxAccessTarget>| {
            target.spec.provider == self.key.name
                && target
                    .labels()
                    .get(MANAGED_BY)
                    .is_some_and(|by| by == MANAGED_BY_TENURE)
        };
        all.iter().filter(is_own).map(|target| target.name_any()).collect()
    }

    async fn forget_target(&self, name: &str) -> Result<(), ClusterError> {
        let Some(target) = self.access_hub.targets.get("", name) else {
            return Ok(());
        };
        let options = DeleteOptions {
            preconditions: Preconditions {
                uid: target.metadata.uid.clone(),
                resource_version: None,
            },
            propagation: None,
            dry_run: false,
        };
        let resource = self
            .controller()
            .resource("tenure.dev/v1alpha1", "FluxAccessTarget")
            .await?;
        self.controller().delete(&resource, "", name, &options).await
    }

    async fn make_target(&self, name: &str, spec: &FluxAccessTargetSpec) -> Result<(), ClusterError> {
        let mut target = FluxAccessTarget::new(name, spec.clone());
        target.metadata.labels = Some([(MANAGED_BY.to_owned(), MANAGED_BY_TENURE.to_owned())].into());
        let object = serde_json::to_value(&target).unwrap_or(Value::Null);
        match self.controller().create(&object, TENURE_CONTROLLER).await {
            Ok(_) | Err(ClusterError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn make_request(&self, platform: &str, name: &str, spec: &FluxAccessRequestSpec) -> Result<(), ClusterError> {
        let mut request = FluxAccessRequest::new(name, spec.clone());
        request.metadata.namespace = Some(platform.to_owned());
        request.metadata.labels = Some([(MANAGED_BY.to_owned(), MANAGED_BY_TENURE.to_owned())].into());
        request.metadata.finalizers = Some(vec![TENURE_FINALIZER.to_owned()]);
        let object = serde_json::to_value(&request).unwrap_or(Value::Null);
        match self.controller().create(&object, TENURE_CONTROLLER).await {
            // The watch reports the new request, and its reconciler starts.
            Ok(_) => {
                tracing::info!(
                    request = name,
                    by = spec.requested_by,
                    path = spec.target.path,
                    "access is requested"
                );
                Ok(())
            }
            // A request that is being deleted still has the name. The new one is made after it is gone.
            Err(ClusterError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends a provider: first its requests, with their credentials at the host.
    async fn finalize(&self, provider: &AccessProvider) -> Result<Option<Next>, ClusterError> {
        let requests = self.access_hub.list_requests(&self.key.name);
        let living = requests
            .iter()
            .filter(|request| request.metadata.deletion_timestamp.is_none());
        let plan = Plan {
            end: living.map(|request| request.name_any()).collect(),
            forget: if requests.is_empty() {
                self.list_targets()
            } else {
                BTreeSet::new()
            },
            ..Plan::default()
        };
        self.execute(&plan).await?;
        if requests.is_empty() {
            let change = FinalizerChange::Remove(TENURE_FINALIZER.to_owned());
            ObjectWriter::new(provider)
                .change_finalizer(&self.access_hub, &change)
                .await?;
            return Ok(Some(Next::Done(None)));
        }
        let now = Timestamp::now();
        let since = provider
            .metadata
            .deletion_timestamp
            .as_ref()
            .map_or(now, |since| since.0);
        let until = since
            .checked_add(SignedDuration::from_secs(FAREWELL_SECONDS))
            .unwrap_or(now);
        if until <= now {
            // No request waits for the host any more.
            self.access_hub.wake_all(&[FluxAccessRequest::KIND]);
        }
        let soon = now.checked_add(AGAIN).unwrap_or(now);
        Ok(Some(Next::Done(Some(if until <= now {
            soon
        } else {
            until.min(soon)
        }))))
    }
}

fn name_agent(name: &str) -> AskedIn {
    AskedIn {
        kind: "Agent".to_owned(),
        name: name.to_owned(),
        ..AskedIn::default()
    }
}

/// Returns the reach that an administrator gave the provider. An invalid pattern gives nothing.
fn read_reach(provider: &AccessProvider) -> ProviderReach {
    ProviderReach {
        name: provider.name_any(),
        namespaces: provider
            .spec
            .namespaces
            .iter()
            .filter_map(|text| text.parse::<NamespacePattern>().ok())
            .collect(),
        group_namespaces: provider.spec.group_namespaces.clone(),
        tenants: provider.spec.tenants.clone(),
    }
}

impl Reconciler for ProviderReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    async fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.permits)
    }

    async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(provider) = self.current() else {
            return Ok(None);
        };
        let now = Timestamp::now();
        if provider.metadata.deletion_timestamp.is_some() {
            return self.finalize(&provider).await;
        }
        if !provider
            .finalizers()
            .iter()
            .any(|finalizer| finalizer == TENURE_FINALIZER)
        {
            let change = FinalizerChange::Add(TENURE_FINALIZER.to_owned());
            ObjectWriter::new(provider.as_ref())
                .change_finalizer(&self.access_hub, &change)
                .await?;
            return Ok(Some(Next::Again));
        }
        let Some(cluster_uid) = self.access_hub.find_cluster_uid() else {
            let why = "namespace kube-system does not exist, whose uid identifies this cluster: create it".to_owned();
            let status = AccessProviderStatus {
                conditions: vec![make_condition(
                    READY,
                    ConditionStatus::False,
                    ("ClusterUnknown", why),
                    now,
                )],
                ..provider.status.clone().unwrap_or_default()
            };
            ObjectWriter::new(provider.as_ref())
                .write_status(&self.access_hub, &status)
                .await?;
            return Ok(Some(Next::Done(now.checked_add(AGAIN).ok())));
        };
        // observe
        let mut last = std::mem::take(&mut self.last);
        configuration::read(&self.access_hub, &provider, &mut last).await;
        self.last = last;
        let (asked, unread, mut problems, objects) = self.list_asked(&provider).await;
        self.looked_up.retain(|key, (_, until)| {
            *until > now
                && asked
                    .iter()
                    .any(|asked| asked.entry.scope == key.0 && asked.entry.path == key.1)
        });
        let (ending, living): (Vec<_>, Vec<_>) = self
            .access_hub
            .list_requests(&self.key.name)
            .into_iter()
            .partition(|request| request.metadata.deletion_timestamp.is_some());
        let requests: Vec<(FluxAccessRequest, Verdict)> = living
            .into_iter()
            .map(|request| (request.as_ref().clone(), self.access_hub.judge(&request)))
            .collect();
        let ending: BTreeSet<String> = ending
            .iter()
            .map(|request| name_target(&self.key.name, request.spec.target.id))
            .collect();
        let targets = self.list_targets();
        let namespaces = self.access_hub.hub.namespaces.all();
        let receivers: BTreeMap<String, ReceivingNamespace> = namespaces
            .iter()
            .map(|namespace| {
                let receiver = ReceivingNamespace {
                    name: namespace.name_any(),
                    labels: namespace.labels().clone(),
                    is_deleting: namespace.metadata.deletion_timestamp.is_some(),
                };
                (namespace.name_any(), receiver)
            })
            .collect();
        let names: BTreeSet<&str> = receivers.keys().map(String::as_str).collect();
        let placements: HashMap<&str, &Placement> = objects
            .iter()
            .map(|(access, placement)| (access.metadata.namespace.as_deref().unwrap_or_default(), placement))
            .collect();
        let reach = read_reach(&provider);
        let installation = Installation {
            platform: &self.key.namespace,
            judges_writes: self.access_hub.hub.context.settings.judges_writes(),
        };
        let looked_up: BTreeMap<(Scope, String), PathLookup> = self
            .looked_up
            .iter()
            .map(|(key, (answer, _))| (key.clone(), answer.clone()))
            .collect();
        // plan
        let planned = plan(
            Snapshot {
                provider: &self.key.name,
                cluster_uid: &cluster_uid,
                platform: &self.key.namespace,
                asked: &asked,
                unread: &unread,
                group: &provider.spec.top_level_group,
                looked_up: &looked_up,
                requests: &requests,
                namespaces: &names,
                targets: &targets,
                ending: &ending,
            },
            |asked_in, group, namespace| {
                let Some(receiver) = receivers.get(namespace) else {
                    return Err("it does not exist".to_owned());
                };
                let by = match asked_in.kind.as_str() {
                    "Agent" => EntryAuthor::Agent,
                    _ => match placements.get(asked_in.namespace.as_str()) {
                        Some(placement) => EntryAuthor::Object(&asked_in.namespace, placement),
                        None => return Err("the tenant of the namespace isn't known".to_owned()),
                    },
                };
                let holder = self.access_hub.hub.find_holder(namespace);
                check_receiver(by, &reach, group, (receiver, &holder), installation)
                    .map_err(|denial| denial.to_string())
            },
        );
        // execute
        if !planned.look_up.is_empty()
            && let Some(kind) = read_kind(&provider)
        {
            match kind {
                HostKind::Static => self.identify(&planned.look_up),
                _ => {
                    let actor = self.make_actor(&provider).await;
                    self.look_up(&actor, &planned.look_up).await;
                }
            }
            return Ok(Some(Next::Again));
        }
        self.execute(&planned).await?;
        self.access_hub.set_plan(&self.key.name, &planned);
        problems.extend(planned.problems.iter().cloned());
        let reported = objects.get(..MOST_OBJECTS).unwrap_or(&objects);
        self.report_to_others(&planned, &problems, reported, &requests, now)
            .await?;
        let (authoriser, ends) = match read_kind(&provider) {
            Some(HostKind::Static) => (
                make_condition(
                    AUTHORISER_WORKS,
                    ConditionStatus::True,
                    ("Static", "no authoriser makes credentials at this host".to_owned()),
                    now,
                ),
                None,
            ),
            _ => self.try_authoriser(&provider, now).await,
        };
        let status = self.conclude(&provider, &problems, (authoriser.clone(), ends.clone()), now);
        ObjectWriter::new(provider.as_ref())
            .write_status(&self.access_hub, &status)
            .await?;
        // A sweep is slow if the host is slow. So the status is written before it, and again after it if something changed.
        self.sweep(&requests, now).await;
        let swept = self.conclude(&provider, &problems, (authoriser, ends), now);
        if swept != status {
            ObjectWriter::new(provider.as_ref())
                .write_status(&self.access_hub, &swept)
                .await?;
        }
        let soonest = self.looked_up.values().map(|(_, until)| *until).min();
        let tried = self.authoriser.as_ref().map(|(_, _, until)| *until);
        let wait = if self.last.problem.is_some() { AGAIN } else { BELIEVED };
        let idle = now.checked_add(wait).unwrap_or(now);
        let failed = self.unlisted.values().map(|failed| failed.again).min();
        let next = soonest
            .into_iter()
            .chain(tried)
            .chain(failed)
            .chain([idle])
            .min()
            .unwrap_or(idle);
        let soon = now.checked_add(SignedDuration::from_secs(1)).unwrap_or(now);
        Ok(Some(Next::Done(Some(next.max(soon)))))
    }

    fn restart(&mut self) {}

    async fn needs_attempt(&mut self, _changed: &HashSet<ObjectId>) -> bool {
        true
    }

    fn forget(&mut self) {
        self.looked_up.clear();
        self.addresses.clear();
        self.listed.clear();
        self.unlisted.clear();
        self.authoriser = None;
        self.last = LastRead::default();
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
