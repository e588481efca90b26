//! In which cluster a Kustomization applies: this one, or that of `spec.kubeConfig`. Owns which cluster an inventory is of, and what is done
//! when that comes to be another one.
//!
//! The kubeconfig is read by a step of the plan, as the ServiceAccount that the Kustomization acts as here; there its user acts. An
//! inventory names objects, and the same names are in every cluster: so with it the status says of which cluster it is, and it is neither
//! pruned nor forgotten in another one before somebody has said what happened. It refuses to take other credentials for another cluster.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::metadata::CLUSTER;
use tenure_api::names::is_dns_subdomain;
use tenure_api::reference::SecretKeyReference;
use tenure_api::{Kustomization, KustomizationSpec, KustomizationStatus, ObjectId, ObjectMeta, reason};
use tenure_tenancy::{Placement, ServiceAccount};
use zeroize::Zeroizing;

use super::context::Context;
use super::inputs::{SECRET, find_target};
use super::step::Step;
use super::types::Snapshot;
use super::{Phase, Plan, ending, inputs, prune};
use crate::answer::{Live, Reason};
use crate::ending::name_some;
use crate::kubeconfig::read_kubeconfig;
use crate::object::Object;
use crate::plan::{EventKind, Next, Request, Watched};
use crate::target::Target;

/// The keys under which a kubeconfig is looked for when none is named, as in Flux.
const KEYS: [&str; 2] = ["value", "value.yaml"];
/// What this cluster is called in the annotation.
const HERE: &str = "here";
/// How many bytes of names stand in an event.
const NAMED: usize = 700;

impl Snapshot {
    /// Where it may write: elsewhere its user's rights say so.
    pub(crate) fn reach(&self) -> Cow<'_, Placement> {
        if is_elsewhere(self) {
            Cow::Owned(self.placement.elsewhere())
        } else {
            Cow::Borrowed(&self.placement)
        }
    }

    /// What is known of an object of this cluster.
    pub(super) fn find_here(&self, id: &ObjectId) -> Option<&Live> {
        if is_elsewhere(self) {
            self.here.get(id)
        } else {
            self.live.get(id)
        }
    }
}

/// Whether it applies to another cluster.
pub(super) fn is_elsewhere(snapshot: &Snapshot) -> bool {
    snapshot.kustomization.spec.kube_config.is_some()
}

/// What is read and watched in this cluster besides what is applied to it.
pub(super) fn list_beside(snapshot: &Snapshot) -> Vec<Watched> {
    if is_elsewhere(snapshot) {
        return Vec::new();
    }
    inputs::list_targets(snapshot)
}

/// What is read and watched in this cluster while another one is applied to.
pub(super) fn list_here(snapshot: &Snapshot) -> Vec<Watched> {
    if !is_elsewhere(snapshot) {
        return Vec::new();
    }
    let mut here = inputs::list_targets(snapshot);
    here.extend(find_kubeconfig(snapshot));
    here.sort();
    here.dedup();
    here
}

/// A step that reads an object of this cluster.
pub(super) fn read_here(snapshot: &Snapshot, target: Watched) -> Step {
    if is_elsewhere(snapshot) {
        Step::ReadHere(target)
    } else {
        Step::Ask(Request::Read(target))
    }
}

fn find_reference(spec: &KustomizationSpec) -> Option<&SecretKeyReference> {
    spec.kube_config.as_ref()?.secret_ref.as_ref()
}

/// The Secret with the kubeconfig.
fn find_kubeconfig(snapshot: &Snapshot) -> Option<Watched> {
    let namespace = snapshot.kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let reference = find_reference(&snapshot.kustomization.spec)?;
    Some(find_target(namespace, SECRET, &reference.name))
}

/// Whether an object of this cluster is the Secret with the kubeconfig.
pub(super) fn is_kubeconfig(snapshot: &Snapshot, id: &ObjectId) -> bool {
    find_kubeconfig(snapshot).is_some_and(|secret| secret.id == *id)
}

/// Whether a Secret holds something else than before.
pub(super) fn is_another_kubeconfig(before: &Live, now: &Live) -> bool {
    match (before, now) {
        (Live::Present(before), Live::Present(now)) => before.view().find("/data") != now.view().find("/data"),
        (before, now) => before != now,
    }
}

/// Refuses what a spec says wrongly whatever the cluster holds: a reason, and why.
pub(super) fn check_spec(spec: &KustomizationSpec) -> Result<(), (&'static str, String)> {
    let Some(reference) = &spec.kube_config else {
        return Ok(());
    };
    if reference.config_map_ref.is_some() {
        let message = "spec.kubeConfig.configMapRef is set, which is not supported yet: put a kubeconfig into a Secret and name that in \
                       spec.kubeConfig.secretRef";
        return Err((reason::UNSUPPORTED_FIELD, message.to_owned()));
    }
    let Some(secret) = &reference.secret_ref else {
        let message = "spec.kubeConfig.secretRef is missing: name the Secret with the kubeconfig";
        return Err((reason::INVALID_SPEC, message.to_owned()));
    };
    if !is_dns_subdomain(&secret.name) {
        let message = format!(
            "spec.kubeConfig.secretRef.name: {:?} is not the name of a Secret",
            secret.name
        );
        return Err((reason::INVALID_SPEC, message));
    }
    Ok(())
}

/// Why it isn't known where to apply, or can't be applied there.
pub(super) enum Trouble {
    /// Something has to be read first.
    Read(Box<Step>),
    /// There is no kubeconfig that can be used.
    Failed {
        /// Why.
        message: String,
        /// Whether it is for want of an answer.
        transient: bool,
    },
    /// The inventory is of another cluster, and nobody has said what that means.
    Changed(String),
    /// The inventory is of another cluster, and what is there is to be left.
    Left,
}

/// The cluster to apply to, if it isn't this one.
pub(super) fn look(snapshot: &Snapshot, identity: &ServiceAccount) -> Result<Option<Arc<Target>>, Trouble> {
    let target = match (find_reference(&snapshot.kustomization.spec), find_kubeconfig(snapshot)) {
        (Some(reference), Some(secret)) => Some(Arc::new(read_target(snapshot, identity, reference, secret)?)),
        _ => None,
    };
    let (Some(before), now) = (find_inventorys(snapshot), target.as_deref().map(Target::cluster)) else {
        return Ok(target);
    };
    if before == now {
        return Ok(target);
    }
    let now = now.as_deref().unwrap_or(HERE);
    match read_cluster(&snapshot.kustomization.metadata) {
        Some(("same", said)) if said == now => Ok(target),
        Some(("new", said)) if said == now => Err(Trouble::Left),
        _ => Err(Trouble::Changed(format!(
            "the inventory is of {}, and {} leads to {}: nothing is applied or deleted in either. If that is the same cluster by another \
             address or authority, annotate this Kustomization with {CLUSTER}: \"same {now}\", and its objects are kept and pruned as \
             before; if it is another cluster, with {CLUSTER}: \"new {now}\", and what is in the old one is left there; or go back, and \
             delete it there first",
            before.as_deref().map_or("this cluster", |_| "another cluster"),
            if is_elsewhere(snapshot) {
                "spec.kubeConfig"
            } else {
                "a spec without kubeConfig"
            },
            target
                .as_deref()
                .map_or_else(|| "this one".to_owned(), ToString::to_string),
        ))),
    }
}

fn read_target(
    snapshot: &Snapshot,
    identity: &ServiceAccount,
    reference: &SecretKeyReference,
    secret: Watched,
) -> Result<Target, Trouble> {
    let namespace = snapshot.kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let what = format!("spec.kubeConfig.secretRef: Secret '{namespace}/{}'", reference.name);
    let failed = |message: String, transient| Trouble::Failed {
        message: format!("{what}: {message}"),
        transient,
    };
    let object = match snapshot.here.get(&secret.id) {
        None => return Err(Trouble::Read(Box::new(Step::ReadHere(secret)))),
        Some(Live::Present(object)) => object,
        Some(Live::Absent) => {
            return Err(failed(
                "not found: create it, with a kubeconfig under the key value".to_owned(),
                false,
            ));
        }
        Some(Live::Unserved) => return Err(failed("the API server does not serve Secrets".to_owned(), false)),
        Some(Live::Failed(failure)) if failure.reason == Reason::Forbidden => {
            let message = format!("it is read as {identity}, which may not: allow it to get this Secret");
            return Err(failed(message, false));
        }
        Some(Live::Failed(failure)) => {
            let message = format!("it can't be read: {}", failure.message);
            return Err(failed(message, failure.is_transient()));
        }
    };
    let text = take_value(object, reference.key.as_deref()).map_err(|message| failed(message, false))?;
    let impersonated = snapshot.kustomization.spec.service_account_name.as_ref();
    // As Flux: whom the spec names acts there, if the kubeconfig's user may have it so.
    let impersonated = impersonated.map(|name| format!("system:serviceaccount:{namespace}:{name}"));
    read_kubeconfig(&text, impersonated).map_err(|message| failed(format!("its kubeconfig: {message}"), false))
}

fn take_value(secret: &Object, key: Option<&str>) -> Result<Zeroizing<Vec<u8>>, String> {
    let data = secret.view().find_map("/data");
    let find = |key: &str| data.and_then(|data| data.get(key));
    let found = match key.filter(|key| !key.is_empty()) {
        Some(key) => find(key).ok_or("it has no entry of the name that spec.kubeConfig.secretRef.key says")?,
        None => KEYS
            .iter()
            .find_map(|key| find(key))
            .ok_or("it has neither an entry value nor value.yaml: name its key in spec.kubeConfig.secretRef.key")?,
    };
    let decoded = found.as_str().and_then(|text| STANDARD.decode(text).ok());
    decoded
        .map(Zeroizing::new)
        .ok_or_else(|| "the entry can't be read".to_owned())
}

/// What an administrator, or the tenant, has said of a changed cluster: a word, and which cluster it is about.
pub(super) fn read_cluster(metadata: &ObjectMeta) -> Option<(&str, &str)> {
    let said = metadata.annotations.as_ref()?.get(CLUSTER)?;
    let (word, cluster) = said.trim().split_once(' ')?;
    Some((word, cluster.trim()))
}

fn has_entries(status: Option<&KustomizationStatus>) -> bool {
    let inventory = status.and_then(|status| status.inventory.as_ref());
    inventory.is_some_and(|inventory| !inventory.entries.is_empty())
}

/// Of which cluster an inventory is: nothing if it is empty, and of this one if the status names no other.
fn find_inventorys(snapshot: &Snapshot) -> Option<Option<String>> {
    let status = snapshot.kustomization.status.as_ref();
    has_entries(status).then(|| find_place(&snapshot.kustomization))
}

/// The other cluster that an inventory is of, as its status says; nothing if it is of this one.
#[must_use]
pub fn find_place(kustomization: &Kustomization) -> Option<String> {
    let conditions = &kustomization.status.as_ref()?.conditions;
    let said = condition::find(conditions, condition::APPLIED_ELSEWHERE)?;
    said.message.split_whitespace().next().map(str::to_owned)
}

/// Finds where to apply, and that the inventory is of that cluster.
pub(super) fn find_cluster(context: &mut Context<'_>) -> Phase<()> {
    match look(context.snapshot, &context.identity) {
        Ok(target) => {
            let cluster = target.as_deref().map(Target::cluster);
            if context.memory.cluster != cluster {
                // What was found to be so was found in another one.
                context.memory.settled.clear();
                context.memory.reversals.clear();
                context.memory.backed_off.clear();
                context.memory.confirmed.clear();
                context.memory.waiting = None;
                context.memory.cluster = cluster;
            }
            if target.is_some() {
                context.target = target;
                context.watch = super::watching::list_tracked(context.snapshot);
            }
            Ok(())
        }
        Err(Trouble::Read(step)) => Err(context.fork().again(vec![*step])),
        Err(Trouble::Failed { message, transient }) => {
            let reason = reason::RECONCILIATION_FAILED;
            Err(ending::failed_by(context.fork(), reason, message, transient))
        }
        Err(Trouble::Changed(message)) => Err(ending::stalled(context.fork(), reason::CLUSTER_CHANGED, message)),
        Err(Trouble::Left) => Err(leave(context.fork())),
    }
}

/// Begins an inventory of another cluster, and tells what stays in the old one.
fn leave(context: Context<'_>) -> Box<Plan> {
    let snapshot = context.snapshot;
    let mut status = context.status();
    let left: Vec<String> = prune::list_entries(status.inventory.as_ref())
        .iter()
        .map(|target| target.id.subject())
        .collect();
    status.inventory = None;
    condition::remove(&mut status.conditions, condition::APPLIED_ELSEWHERE);
    let message = format!(
        "these are left in the cluster that was applied to before: {}",
        name_some(&left, NAMED)
    );
    let mut plan = context.finish(Next::Restart);
    plan.events.push(ending::event(
        EventKind::Warning,
        reason::CLUSTER_CHANGED,
        message,
        None,
    ));
    plan.status = ending::changed(snapshot, &status);
    Box::new(plan)
}

/// Writes beside the inventory of which cluster it is, with the same write.
pub(super) fn write_cluster(snapshot: &Snapshot, plan: &mut Plan, now: Timestamp) {
    let metadata = &snapshot.kustomization.metadata;
    if metadata.deletion_timestamp.is_some() {
        return;
    }
    let before = snapshot.kustomization.status.as_ref();
    let Some(mut status) = plan.status.clone().or_else(|| before.cloned()) else {
        return;
    };
    let has_entries = has_entries(Some(&status));
    match &plan.target {
        Some(target) if has_entries => {
            let message = format!(
                "{} is the cluster that the inventory is of: the address and the authority of spec.kubeConfig",
                target.cluster()
            );
            let entry = (
                condition::APPLIED_ELSEWHERE,
                ConditionStatus::True,
                reason::OTHER_CLUSTER,
                message.as_str(),
            );
            crate::ending::set_condition(&mut status.conditions, metadata, now, entry);
        }
        // It is of no cluster, or of this one; while it is of another one, that stays said.
        Some(_) => condition::remove(&mut status.conditions, condition::APPLIED_ELSEWHERE),
        None if !is_elsewhere(snapshot) && (!has_entries || is_said_to_be_here(snapshot)) => {
            condition::remove(&mut status.conditions, condition::APPLIED_ELSEWHERE);
        }
        None => return,
    }
    if let Some(changed) = ending::changed(snapshot, &status) {
        plan.status = Some(changed);
    }
}

fn is_said_to_be_here(snapshot: &Snapshot) -> bool {
    read_cluster(&snapshot.kustomization.metadata) == Some(("same", HERE))
}
