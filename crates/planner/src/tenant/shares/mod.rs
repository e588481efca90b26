//! `resourceQuotas` with scope `Tenant` if no admission checks the sum of the use in a Tenant's namespaces: each namespace gets a share of the limit.
//!
//! The module decides the limits in each ResourceQuota. Kubernetes counts in each namespace, so the namespaces together can't use more than the Tenant has. A
//! namespace gets more capacity if the others don't need theirs. Shares are not lent: a share stays with its namespace until a lower one is enforced. So an object
//! that fits the sum may not fit the share, and is refused.

mod division;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use go_words::quantity::Quantity;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tenure_api::names::NamespaceName;
use tenure_api::{ObjectId, ObjectView, TenantSpec};
use tenure_tenancy::Settings;
use tenure_tenancy::quotas::{is_too_large, name_content};

use self::division::{NamespaceAmounts, divide_limit};
use super::contents::RESOURCE_QUOTA_KIND;
use super::namespaces::TenantNamespaces;
use super::{MOST_ITEMS, Snapshot};
use crate::answer::{Live, WriteAnswer};
use crate::dependents::{Memory, ObservedUse, UnconfirmedQuota};
use crate::outcome::add_duration;
use crate::plan::Request;
use tenure_api::digest::digest_value;

/// Checks whether shares are written: the Tenant has quotas for all its namespaces, and no admission checks the sum of writes. In this case, the controller reads
/// the use.
#[must_use]
pub fn has_shares(spec: &TenantSpec, settings: &Settings) -> bool {
    let quotas = spec.resource_quotas.as_ref();
    !settings.is_guarded && quotas.is_some_and(|quotas| !quotas.is_for_each_namespace() && !quotas.items.is_empty())
}

/// How long the use must be unchanged before shares change. After a change of a quota, Kubernetes counts the existing objects again, as far as its controller has
/// seen them. It may miss objects that are being created, and then admits that much again.
const QUIET: Duration = Duration::from_secs(2);
/// The maximum wait for unchanged use.
const LONGEST_UNREST: Duration = Duration::from_secs(30);

/// Records the current use. While the use changes, returns the time until which existing shares stay unchanged.
pub(super) fn record_use(snapshot: &Snapshot, now: Timestamp, memory: &mut Memory) -> Option<Timestamp> {
    let quotas = snapshot.live.iter().filter(|(id, _)| id.kind == RESOURCE_QUOTA_KIND);
    let used = quotas.map(|(id, live)| {
        let used = live.object().and_then(|quota| quota.pointer("/status/used"));
        json!([id, used])
    });
    let used = digest_value(&used.collect());
    let unrest = memory.unrest.get_or_insert_with(|| ObservedUse {
        used: used.clone(),
        since: now,
        began: now,
    });
    if unrest.used != used {
        if now >= add_duration(unrest.since, QUIET) {
            unrest.began = now;
        }
        (unrest.used, unrest.since) = (used, now);
    }
    let (rest, last) = (
        add_duration(unrest.since, QUIET),
        add_duration(unrest.began, LONGEST_UNREST),
    );
    if now >= rest {
        return None;
    }
    if now >= last {
        unrest.began = now;
        return None;
    }
    Some(rest.min(last))
}

/// Returns the id of a namespace's ResourceQuota for an item.
fn make_quota_id(tenant: &str, index: usize, namespace: &str) -> ObjectId {
    ObjectId {
        namespace: namespace.to_owned(),
        name: name_content(tenant, index),
        group: String::new(),
        kind: RESOURCE_QUOTA_KIND.to_owned(),
    }
}

/// Returns the allowed amounts of an item for each of the Tenant's namespaces, by name: `spec.hard` of the ResourceQuotas. `are_held` says that existing shares
/// stay unchanged for now.
pub(super) fn find_hard_limits(
    snapshot: &Snapshot,
    (memory, are_held): (&Memory, bool),
    taken: &TenantNamespaces,
    (index, item): (usize, &Map<String, Value>),
) -> BTreeMap<String, Value> {
    let tenant = snapshot.tenant.metadata.name.as_deref().unwrap_or_default();
    let open = taken.owned.keys().map(|name| (name.as_str(), true));
    let others = taken.deleting.keys().chain(taken.unnamed.keys());
    let closed = others.map(|name| (name.as_str(), false));
    let namespaces: Vec<(&str, bool)> = open.chain(closed).collect();
    let seen: Vec<ObservedQuota<'_>> = namespaces
        .iter()
        .map(|(name, is_open)| {
            ObservedQuota::find(
                snapshot,
                (memory, are_held),
                &make_quota_id(tenant, index, name),
                *is_open,
            )
        })
        .collect();
    let is_sure = seen.iter().all(|seen| seen.is_known);
    let mut written: BTreeMap<String, Value> = BTreeMap::new();
    for (name, is_open) in &namespaces {
        if *is_open {
            written.insert((*name).to_owned(), Value::Object(Map::new()));
        }
    }
    let hard = item.get("hard").and_then(Value::as_object);
    for (resource, limit) in hard.into_iter().flatten() {
        let limit_read = limit.as_str().and_then(|text| Quantity::parse(text).ok());
        let shares = limit_read.map(|limit| {
            let places: Vec<NamespaceAmounts> = seen.iter().map(|seen| seen.read_amounts(resource)).collect();
            let shares = divide_limit(limit.thousandths_down(), find_grain(resource), &places, is_sure);
            (limit, shares)
        });
        for (position, (name, _)) in namespaces.iter().enumerate() {
            let Some(Value::Object(own)) = written.get_mut(*name) else {
                continue;
            };
            // An invalid quantity stays as written, and the server rejects it.
            let share = shares.as_ref().and_then(|(limit, shares)| {
                let share = limit.with_thousandths(*shares.get(position)?);
                Some(Value::String(share.canonical()))
            });
            own.insert(resource.clone(), share.unwrap_or_else(|| limit.clone()));
        }
    }
    written
}

/// Returns the unit of division: thousandths for CPU, whole numbers for all other resources.
fn find_grain(resource: &str) -> i128 {
    match resource == "cpu" || resource.ends_with(".cpu") {
        true => 1,
        false => 1000,
    }
}

/// The observed state of one namespace's ResourceQuota for a Tenant's quota.
struct ObservedQuota<'a> {
    quota: Option<ObjectView<'a>>,
    given: Option<&'a UnconfirmedQuota>,
    is_open: bool,
    /// True if the existing use, and so the possible use, is known.
    is_known: bool,
    /// The object as this attempt has written it. The plan changes it again only in the next attempt.
    written: Option<ObjectView<'a>>,
    /// True if nothing is written now, since the last write was answered and has not been observed yet. A write that was undone before its observation is never
    /// observed: the next attempt detects this.
    is_settled: bool,
    /// True if the namespace keeps its share for now.
    is_held: bool,
}

impl<'a> ObservedQuota<'a> {
    fn find(snapshot: &'a Snapshot, (memory, are_held): (&'a Memory, bool), id: &ObjectId, is_open: bool) -> Self {
        let live = snapshot.live.get(id);
        let quota = live.and_then(Live::object);
        let given = memory.given.get(id);
        let is_answered = given.is_some_and(|given| given.revision.is_some());
        let written = match snapshot.attempt.applied.get(id) {
            Some(WriteAnswer::Done(object)) => Some(object.view()),
            _ => None,
        };
        Self {
            quota: quota.map(ObjectView::new),
            given,
            is_open,
            // A failed read gives no information. The use in a namespace that is being deleted, and whose quota is already gone, is unknown.
            is_known: quota.is_some() || (is_open && !matches!(live, Some(Live::Failed(_)))),
            written,
            is_settled: written.is_some() || (is_answered && quota.is_some()),
            is_held: are_held && quota.is_some(),
        }
    }

    fn read_amounts(&self, resource: &str) -> NamespaceAmounts {
        let read = |quota: Option<ObjectView<'_>>, part: &str| {
            let amounts = quota?.find_map(part)?;
            Quantity::parse(amounts.get(resource)?.as_str()?).ok()
        };
        let read_down = |quota, part| read(quota, part).map(|amount| amount.thousandths_down());
        let given = |amounts: fn(&UnconfirmedQuota) -> &BTreeMap<String, String>| {
            let text = amounts(self.given?).get(resource)?;
            Some(Quantity::parse(text).ok()?.thousandths_down())
        };
        let seen = read_down(self.quota, "/spec/hard");
        let written = read_down(self.written, "/spec/hard");
        let enforced = read_down(self.quota, "/status/hard");
        let used = read(self.quota, "/status/used").map_or(0, |amount| amount.thousandths_up());
        let amounts = [seen, written, enforced, given(|given| &given.most), Some(used)];
        let held = amounts.into_iter().flatten().max();
        NamespaceAmounts {
            is_open: self.is_open,
            allowed: match (self.written, self.is_settled) {
                (Some(_), _) => written,
                (None, true) => given(|given| &given.hard),
                (None, false) => seen,
            },
            held: held.unwrap_or(0).max(0),
            used: used.max(0),
            // A resource without a share has nothing to keep.
            is_settled: self.is_settled || (self.is_held && seen.is_some()),
        }
    }
}

/// Namespaces whose use is unknown.
#[derive(Default)]
pub(super) struct UncountedNamespaces {
    /// Namespaces in which Kubernetes has not counted all limited resources yet. No subject gets rights there before the count.
    pub(super) new: BTreeSet<String>,
    /// Namespaces that are being deleted, and whose quota is already gone. No share grows before these namespaces are gone.
    pub(super) leaving: BTreeSet<String>,
}

/// Lists the namespaces whose use is unknown.
pub(super) fn list_uncounted(snapshot: &Snapshot, taken: &TenantNamespaces) -> UncountedNamespaces {
    let tenant = snapshot.tenant.metadata.name.as_deref().unwrap_or_default();
    let quotas = snapshot.tenant.spec.resource_quotas.as_ref();
    let items = quotas.map(|quotas| quotas.items.as_slice()).unwrap_or_default();
    let written: Vec<usize> = (0..items.len().min(MOST_ITEMS))
        .filter(|index| items.get(*index).is_some_and(|item| !is_too_large(item)))
        .collect();
    let find = |namespace: &str, index: usize| {
        let quota = snapshot.live.get(&make_quota_id(tenant, index, namespace));
        quota.and_then(Live::object).map(ObjectView::new)
    };
    let is_counted = |quota: ObjectView<'_>| {
        let mut hard = quota.find_map("/spec/hard").into_iter().flat_map(Map::keys);
        let enforced = quota.find_map("/status/hard");
        hard.all(|resource| enforced.is_some_and(|enforced| enforced.contains_key(resource)))
    };
    let mut uncounted = UncountedNamespaces::default();
    for namespace in taken.owned.keys().map(NamespaceName::as_str) {
        if !written
            .iter()
            .all(|index| find(namespace, *index).is_some_and(is_counted))
        {
            uncounted.new.insert(namespace.to_owned());
        }
    }
    for namespace in taken.deleting.keys().chain(taken.unnamed.keys()) {
        if !written.iter().all(|index| find(namespace.as_str(), *index).is_some()) {
            uncounted.leaving.insert(namespace.to_string());
        }
    }
    uncounted
}

/// Remembers the writes of this attempt. Forgets writes that have been observed, and namespaces that are no longer the Tenant's.
pub(super) fn record_answers(snapshot: &Snapshot, taken: &TenantNamespaces, memory: &mut Memory) {
    let namespaces = taken.list_recorded();
    let is_the_tenants = |name: &str| namespaces.keys().any(|namespace| namespace.as_str() == name);
    memory.given.retain(|id, _| is_the_tenants(&id.namespace));
    for (id, answer) in &snapshot.attempt.applied {
        if let (WriteAnswer::Done(object), Some(given)) = (answer, memory.given.get_mut(id)) {
            given.revision = Some(object.revision());
        }
    }
    memory.given.retain(|id, given| {
        let seen = match snapshot.live.get(id) {
            Some(Live::Present(object)) => object.revision(),
            _ => return true,
        };
        given.revision.is_none_or(|written| seen < written)
    });
}

/// Remembers the coming writes: if no answer comes, a write may have happened.
pub(super) fn record_writes(memory: &mut Memory, steps: &[Request]) {
    for step in steps {
        if let Request::Apply(apply) = step
            && apply.id.kind == RESOURCE_QUOTA_KIND
        {
            record_write(memory, &apply.id, &apply.object.0);
        }
    }
}

fn record_write(memory: &mut Memory, id: &ObjectId, object: &Value) {
    let hard = read_hard(object);
    let mut most = hard.clone();
    let before = memory.given.get(id).map(|given| &given.most);
    for (resource, amount) in before.into_iter().flatten() {
        let parse = |text: &String| Quantity::parse(text).unwrap_or_else(|_| Quantity::zero());
        let now = most.entry(resource.clone()).or_insert_with(|| amount.clone());
        if parse(amount).compare(&parse(now)).is_gt() {
            now.clone_from(amount);
        }
    }
    let revision = None;
    memory
        .given
        .insert(id.clone(), UnconfirmedQuota { hard, most, revision });
}

fn read_hard(object: &Value) -> BTreeMap<String, String> {
    let hard = ObjectView::new(object).find_map("/spec/hard");
    let amounts = hard.into_iter().flatten();
    let texts = amounts.filter_map(|(resource, amount)| Some((resource.clone(), amount.as_str()?.to_owned())));
    texts.collect()
}
