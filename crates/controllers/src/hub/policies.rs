//! Maintains tenancy's policies: the facts on namespaces that policies read, the policies themselves, and the report in the cluster's Enforcement. On
//! a server without policies whose writes are checked, it maintains the one fact that the check reads. It executes the decisions of
//! [`tenure_planner::policies`] as the controller, and stores no more of namespaces and policies than watches report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_admission_rules::policy::{HandEditDenials, MintableAccounts, is_probe_denial};
use tenure_api::access::AccessProvider;
use tenure_api::metadata::{HAND_EDITS, MINTABLE_FACT, SURFACE_LABEL, TENURE_CONTROLLER};
use tenure_api::{Kustomization, ObjectMeta, ObjectView, Surface, reason};
use tenure_cluster::{
    Client, ClusterError, DeleteOptions, EventHistory, EventRecorder, Preconditions, read_policies_in_force,
    report_enforcement,
};
use tenure_planner::enforcement::{EnforcedPart, PartState};
use tenure_planner::policies::{ObservedNamespace, Plan, PolicyProbe, Snapshot, Target, Write, plan};
use tenure_tenancy::{FactIndex, NamespaceFacts, Placement};
use tokio::time::Instant;

use crate::cluster_view::cache::Cache;
use crate::cluster_view::key::Key;
use crate::hub::Hub;
use crate::reconcile_loop::object_writer::describe_event;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// The kinds, in the order in which they are written.
pub(crate) const POLICY: (&str, &str) = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy");
pub(crate) const BINDING: (&str, &str) = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding");
/// The number of concurrent writes.
const AT_ONCE: usize = 8;
/// The minimum and maximum time for which changes are gathered, because a tenant may cause changes without limit. In between, the time is four times
/// the duration of the last check. So checks use at most a fifth of a thread's time.
const GATHERED: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(800));
/// The longest delay between two probes that ask whether the policies are in force.
const ASKED_AGAIN: Duration = Duration::from_secs(2);
/// The first and the longest delay before a refused write is retried.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// Keeps the policies, their bindings and the facts on namespaces up to date, and checks whether the policies are in force. Runs until the future is
/// dropped.
pub(crate) async fn maintain_policies(hub: Arc<Hub>) {
    let mut event_history = EventHistory::default();
    let (mut refusals, mut complaint) = (RefusedWrites::default(), String::new());
    let mut tracker = PolicyTracker::default();
    loop {
        let began = Instant::now();
        let (looks, refused, met) = (Arc::clone(&hub), refusals.list(), tracker.met.clone());
        // The check goes through all Tenants and namespaces, which takes long on large clusters.
        let planned = tokio::task::spawn_blocking(move || plan(&observe_policies(&looks, refused, met))).await;
        let took = began.elapsed();
        let Plan {
            writes,
            probe,
            part_state,
        } = planned.unwrap_or_else(|error| {
            tracing::error!(%error, "the facts for policies could not be read");
            let why = "the facts for policies could not be read: see the log of the controllers";
            Plan {
                writes: Vec::new(),
                probe: None,
                part_state: PartState::not_in_force(reason::NOT_KEPT, why),
            }
        });
        let writes = refusals.pass(writes, Instant::now());
        let failure = carry_out(&hub, writes, &mut event_history, &mut refusals)
            .await
            .unwrap_or_default();
        if failure != complaint {
            if !failure.is_empty() {
                tracing::warn!("not all policies and their facts can be kept up to date: {failure}");
            }
            complaint = failure;
        }
        hub.set_policies_in_force(part_state.is_in_force);
        // The report comes after the writes that restore policies, so that it never delays them.
        if hub.context.settings.has_policies {
            tracker.report(&hub, &part_state).await;
        }
        let again = tracker.ask(&hub, probe).await;
        tokio::select! {
            () = hub.policy_news.notified() => {
                tokio::time::sleep(find_gathering(took)).await;
            }
            () = async {
                match refusals.next() {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            } => {}
            () = async {
                match again {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            } => {}
        }
    }
}

/// Follows the cluster's Enforcement, in an instance that does not maintain the policies, to know whether they are in force.
pub(crate) async fn follow_enforcement(hub: Arc<Hub>) {
    loop {
        let are_in_force = read_policies_in_force(&hub.context.controller)
            .await
            .unwrap_or_default();
        hub.set_policies_in_force(are_in_force);
        let pause = if are_in_force { PAUSES.1 } else { ASKED_AGAIN };
        tokio::time::sleep(pause).await;
    }
}

/// Returns how long changes are gathered after a check of this duration.
fn find_gathering(took: Duration) -> Duration {
    took.saturating_mul(4).clamp(GATHERED.0, GATHERED.1)
}

/// Records whether the API server enforces the current policies, and the state that was last written into the Enforcement.
#[derive(Debug, Default)]
struct PolicyTracker {
    /// The state of the policies at the last confirmation that they are in force.
    met: Option<String>,
    /// The last reported state, and the time of that report.
    reported: Option<(PartState, Instant)>,
    complaint: String,
    /// The delay until the next probe.
    pause: Option<Duration>,
}

impl PolicyTracker {
    /// Reports the state of the policies after a change, and also at intervals, because another writer may have overwritten the report.
    async fn report(&mut self, hub: &Hub, state: &PartState) {
        let is_reported =
            |(reported, when): &(PartState, Instant)| reported == state && when.elapsed() < hub.context.policy_interval;
        if self.reported.as_ref().is_some_and(is_reported) {
            return;
        }
        let (controller, settings) = (&hub.context.controller, &hub.context.settings);
        let written =
            report_enforcement(controller, TENURE_CONTROLLER, (EnforcedPart::Policies, state), settings).await;
        let complaint = match written {
            Ok(()) => {
                self.reported = Some((state.clone(), Instant::now()));
                String::new()
            }
            Err(error) => error.to_string(),
        };
        if complaint != self.complaint {
            if !complaint.is_empty() {
                tracing::warn!("the Enforcement tenure can't report whether policies are in force: {complaint}");
            }
            self.complaint = complaint;
        }
    }

    /// Sends the probe, if one is due. Returns the delay until the next full check.
    async fn ask(&mut self, hub: &Hub, probe: Option<PolicyProbe>) -> Option<Duration> {
        let Some(PolicyProbe { state, object }) = probe else {
            self.pause = None;
            return Some(hub.context.policy_interval);
        };
        let answer = hub.context.controller.try_creation(&object, TENURE_CONTROLLER).await;
        if answer.is_err_and(|error| is_probe_denial(&error.to_string(), &state)) {
            self.met = Some(state);
            self.pause = None;
            return Some(Duration::ZERO);
        }
        let pause = self
            .pause
            .map_or(PAUSES.0, |pause| pause.saturating_mul(2))
            .min(ASKED_AGAIN);
        self.pause = Some(pause);
        Some(pause)
    }
}

/// The writes that the API server refused, each with the time of its next try and the delay before it. A tenant that causes refusals delays no other
/// write.
#[derive(Debug, Default)]
struct RefusedWrites(BTreeMap<Target, (Instant, Duration)>);

impl RefusedWrites {
    fn list(&self) -> BTreeSet<Target> {
        self.0.keys().cloned().collect()
    }

    /// Returns the writes that may be tried now. Refusals of writes that are no longer planned are dropped.
    fn pass(&mut self, mut writes: Vec<Write>, now: Instant) -> Vec<Write> {
        let wanted: BTreeSet<Target> = writes.iter().map(Write::target).collect();
        self.0.retain(|target, _| wanted.contains(target));
        writes.retain(|write| self.0.get(&write.target()).is_none_or(|(until, _)| *until <= now));
        writes
    }

    fn record_refusal(&mut self, target: Target, now: Instant) {
        let before = self.0.get(&target).map(|(_, pause)| pause.saturating_mul(2));
        let pause = before.unwrap_or(PAUSES.0).min(PAUSES.1);
        self.0.insert(target, (now + pause, pause));
    }

    fn forget(&mut self, target: &Target) {
        self.0.remove(target);
    }

    /// Returns the time of the next retry, if a write was refused.
    fn next(&self) -> Option<Instant> {
        self.0.values().map(|(until, _)| *until).min()
    }
}

/// Checks whether the facts on a namespace may depend on a changed object. These objects are: an object that names an unknown account, a Surface, and
/// a Kustomization that refuses hand edits or did so before.
pub(crate) fn affects_facts(hub: &Hub, changed: &Key) -> bool {
    if is_account_unknown(hub, changed) {
        return true;
    }
    if !hub.context.settings.has_policies {
        return false;
    }
    if changed.kind != Kustomization::KIND {
        return changed.kind == Surface::KIND;
    }
    let known = hub.refusing.lock().unwrap_or_else(PoisonError::into_inner);
    let was_so = known.contains(&(changed.namespace.clone(), changed.name.clone()));
    drop(known);
    let shard = hub.find_shard(&changed.namespace);
    let now = shard.and_then(|shard| {
        shard
            .caches
            .get::<Kustomization>()
            .get(&changed.namespace, &changed.name)
    });
    was_so || now.is_some_and(|kustomization| read_refusing(hub, &kustomization).is_some())
}

/// Reads a Kustomization that refuses hand edits, with its Surface. Most Kustomizations do not, and are skipped cheaply.
fn read_refusing(hub: &Hub, kustomization: &Kustomization) -> Option<(Value, Option<Value>)> {
    let metadata = &kustomization.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let surface = metadata.labels.as_ref().and_then(|labels| labels.get(SURFACE_LABEL));
    let surface = surface.and_then(|name| hub.caches.get::<Surface>().get(namespace, name));
    let says = |metadata: &ObjectMeta| {
        metadata
            .annotations
            .as_ref()
            .is_some_and(|annotations| annotations.contains_key(HAND_EDITS))
    };
    if !says(metadata) && !surface.as_ref().is_some_and(|surface| says(&surface.metadata)) {
        return None;
    }
    let surface = surface.and_then(|surface| serde_json::to_value(surface.as_ref()).ok());
    let kustomization = serde_json::to_value(kustomization).ok()?;
    HandEditDenials::denies_edits(&kustomization, surface.as_ref()).then_some((kustomization, surface))
}

/// Collects all objects that refuse hand edits.
fn collect_refusing(hub: &Hub, facts: &FactIndex) -> HandEditDenials {
    let (mut refusing, mut known) = (HandEditDenials::default(), BTreeSet::new());
    for shard in hub.list_shards() {
        for kustomization in shard.caches.get::<Kustomization>().all() {
            let Some((object, surface)) = read_refusing(hub, &kustomization) else {
                continue;
            };
            refusing.add(facts, &object, surface.as_ref());
            let metadata = &kustomization.metadata;
            let name = |name: &Option<String>| name.clone().unwrap_or_default();
            known.insert((name(&metadata.namespace), name(&metadata.name)));
        }
    }
    *hub.refusing.lock().unwrap_or_else(PoisonError::into_inner) = known;
    refusing
}

/// Checks whether an object in a namespace without a tenant acts as an account that the namespace's facts lack. A deleted object also counts, because
/// its account may no longer be needed.
fn is_account_unknown(hub: &Hub, changed: &Key) -> bool {
    if changed.kind == AccessProvider::KIND {
        let accounts = hub.access().and_then(|lookup| lookup.find_accounts(&changed.name));
        let is_unknown = |account: &String| !hub.is_mintable(&changed.namespace, account);
        return accounts.is_none_or(|accounts| accounts.iter().any(is_unknown));
    }
    let placement = hub.place_seen(&changed.namespace);
    let Some(named) = find_named(hub, changed) else {
        return MintableAccounts::find_account(&placement, &changed.namespace, None).is_some();
    };
    let account = MintableAccounts::find_account(&placement, &changed.namespace, named.as_deref());
    account.is_some_and(|account| !hub.is_mintable(&changed.namespace, account))
}

/// Returns the account that an object names, if any; the outer `None` if the object does not exist.
fn find_named(hub: &Hub, key: &Key) -> Option<Option<String>> {
    let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
    if key.kind == Surface::KIND {
        let surface = hub.caches.get::<Surface>().get(namespace, name)?;
        return Some(surface.spec.service_account_name.clone());
    }
    let shard = hub.find_shard(namespace)?;
    if key.kind == Kustomization::KIND {
        let kustomization = shard.caches.get::<Kustomization>().get(namespace, name)?;
        return Some(kustomization.spec.service_account_name.clone());
    }
    // All other kinds act as if they named no account.
    shard.has(key).then_some(None)
}

/// Collects the accounts that objects name in namespaces without a tenant.
fn collect_mintable(hub: &Hub, facts: &FactIndex) -> MintableAccounts {
    let mut mintable = MintableAccounts::default();
    for shard in hub.list_shards() {
        // Namespaces of tenants are not part of this fact.
        if facts.tenant_of(&shard.namespace).is_some() {
            continue;
        }
        if !shard.is_empty() {
            mintable.add(facts, &shard.namespace, None);
        }
        for kustomization in shard.caches.get::<Kustomization>().all() {
            if let Some(named) = &kustomization.spec.service_account_name {
                mintable.add(facts, &shard.namespace, Some(named));
            }
        }
    }
    let platform = &facts.settings().platform_namespace;
    for surface in hub.caches.get::<Surface>().in_namespace(platform) {
        mintable.add(facts, platform, surface.spec.service_account_name.as_deref());
    }
    if let Some(account) = &hub.context.packages.service_account {
        mintable.add(facts, platform, Some(account));
    }
    for account in hub.access().iter().flat_map(|lookup| lookup.list_accounts()) {
        mintable.add(facts, platform, Some(&account));
    }
    mintable
}

/// Returns the facts on the namespaces without a tenant in which something is reconciled, and on no others.
fn collect_namespaces_without_tenant(hub: &Hub) -> FactIndex {
    let mut facts = FactIndex::new(hub.context.settings.clone());
    for shard in hub.list_shards() {
        if matches!(hub.place_seen(&shard.namespace), Placement::Unclaimed { .. }) {
            facts.set_namespace(NamespaceFacts {
                name: shard.namespace.clone(),
                ..NamespaceFacts::default()
            });
        }
    }
    facts
}

fn observe_policies(hub: &Hub, refused: BTreeSet<Target>, met: Option<String>) -> Snapshot {
    let has_policies = hub.context.settings.has_policies;
    // Without policies, no reader uses the facts on tenants' namespaces, so tenants are skipped.
    let facts = if has_policies {
        hub.copy_facts()
    } else {
        collect_namespaces_without_tenant(hub)
    };
    let seen = |cache: &Cache<DynamicObject>, kind: &'static str| -> Vec<Value> {
        let all = cache.all();
        let values = all
            .iter()
            .filter_map(|object| serde_json::to_value(object.as_ref()).ok());
        values
            .map(|mut object| {
                // Objects of a list may lack their kind.
                if let Some(object) = object.as_object_mut() {
                    object.insert("kind".to_owned(), json!(kind));
                }
                object
            })
            .collect()
    };
    let mut live = seen(&hub.policies, POLICY.1);
    live.extend(seen(&hub.policy_bindings, BINDING.1));
    let namespaces = hub.namespaces.all();
    let may_bear = |namespace: &&Arc<Namespace>| {
        let annotations = namespace.metadata.annotations.as_ref();
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        has_policies
            || name == facts.settings().platform_namespace
            || facts.find_namespace(name).is_some()
            || annotations.is_some_and(|annotations| annotations.contains_key(MINTABLE_FACT))
    };
    let namespaces = namespaces.iter().filter(may_bear).map(|namespace| ObservedNamespace {
        name: namespace.metadata.name.clone().unwrap_or_default(),
        uid: namespace.metadata.uid.clone().unwrap_or_default(),
        annotations: namespace.metadata.annotations.clone().unwrap_or_default(),
    });
    let namespaces = namespaces.collect();
    Snapshot {
        refusing: if has_policies {
            collect_refusing(hub, &facts)
        } else {
            HandEditDenials::default()
        },
        mintable: collect_mintable(hub, &facts),
        facts,
        namespaces,
        live,
        refused,
        met,
    }
}

/// Executes the writes, and returns the first failure. Objects that were changed or deleted meanwhile are checked again after the watch reports it.
async fn carry_out(
    hub: &Hub,
    writes: Vec<Write>,
    event_history: &mut EventHistory,
    refusals: &mut RefusedWrites,
) -> Option<String> {
    let controller = &hub.context.controller;
    let mut written = futures::stream::iter(writes)
        .map(|write| async move {
            let done = carry_out_one(controller, &write).await;
            (write, done)
        })
        .buffered(AT_ONCE);
    let mut failure = None;
    while let Some((write, done)) = written.next().await {
        let target = write.target();
        match done {
            Ok(()) => {
                refusals.forget(&target);
                write_event(controller, event_history, &write).await;
            }
            Err(ClusterError::AlreadyExists { .. } | ClusterError::Conflict { .. }) => refusals.forget(&target),
            Err(error) if error.absent() => refusals.forget(&target),
            Err(error) => {
                failure = failure.or_else(|| Some(format!("{target}: {error}")));
                refusals.record_refusal(target, Instant::now());
            }
        }
    }
    failure
}

async fn carry_out_one(controller: &Client, write: &Write) -> Result<(), ClusterError> {
    match write {
        Write::Facts { namespace, patch } => {
            let resource = controller.resource("v1", "Namespace").await?;
            let target = ("", namespace.as_str());
            controller
                .merge_patch(&resource, target, None, TENURE_CONTROLLER, patch)
                .await?;
        }
        Write::Create { object, .. } => {
            controller.create(object, TENURE_CONTROLLER).await?;
        }
        Write::Repair { object, patch, .. } => {
            let resource = controller.resource_of(object).await?;
            let name = ObjectView::new(object).read_text("/metadata/name");
            controller
                .merge_patch(&resource, ("", name), None, TENURE_CONTROLLER, patch)
                .await?;
        }
        Write::Delete { object, uid, .. } => {
            let view = ObjectView::new(object);
            let resource = controller.resource(POLICY.0, view.read_text("/kind")).await?;
            let options = DeleteOptions {
                preconditions: Preconditions {
                    uid: Some(uid.clone()),
                    ..Preconditions::default()
                },
                ..DeleteOptions::default()
            };
            controller
                .delete(&resource, "", view.read_text("/metadata/name"), &options)
                .await?;
        }
    }
    Ok(())
}

/// Reports a restored object in the log and as an event.
async fn write_event(controller: &Client, event_history: &mut EventHistory, write: &Write) {
    let Some((object, event)) = write.find_event() else {
        return;
    };
    tracing::warn!("{}", event.message);
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.entry("apiVersion").or_insert_with(|| json!(POLICY.0));
    }
    let recorder = EventRecorder::new(controller.clone(), TENURE_CONTROLLER);
    recorder
        .record(event_history, &object, &describe_event(event, None))
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither a user that weakens a policy nor a flood of changes delays the check beyond a second after the watch event.
    #[test]
    fn events_are_checked_within_a_second() {
        for (took, gathered) in [(0, 100), (50, 200), (200, 800), (60_000, 800)] {
            let gathered = Duration::from_millis(gathered);
            assert_eq!(find_gathering(Duration::from_millis(took)), gathered);
            assert!(gathered < Duration::from_secs(1));
        }
    }

    #[test]
    fn refused_write_delays_no_other_write() {
        let write = |name: &str| Write::Facts {
            namespace: name.to_owned(),
            patch: json!({}),
        };
        let names = |writes: Vec<Write>| writes.iter().map(|write| write.target().name).collect::<Vec<_>>();
        let all = || vec![write("full"), write("other")];
        let (mut refusals, mut now) = (RefusedWrites::default(), Instant::now());
        refusals.record_refusal(write("full").target(), now);
        // Each delay is longer, up to the maximum.
        for pause in [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000] {
            assert_eq!(names(refusals.pass(all(), now)), ["other"]);
            let next = now + Duration::from_millis(pause);
            assert_eq!(refusals.next(), Some(next));
            now = next;
            assert_eq!(names(refusals.pass(all(), now)), ["full", "other"]);
            refusals.record_refusal(write("full").target(), now);
        }
        // A refusal is dropped when the write is no longer planned.
        assert_eq!(names(refusals.pass(vec![write("other")], now)), ["other"]);
        assert_eq!(refusals.next(), None);
    }
}
