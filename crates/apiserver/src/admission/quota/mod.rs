//! ResourceQuota: the limit for all objects of a namespace together. A request is charged when an object is created
//! or grows. A controller recounts when an object is deleted.
//!
//! Invariant: in each namespace one request at a time is charged and stored. So concurrent requests never exceed the
//! quota, however many there are. This module computes charges and orders the requests. The registry writes, and
//! refunds the charge of a failed write.

mod usage;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_kinds::object::ObjectExt as _;
use tenure_kinds::quota::Counted;
use tenure_kinds::schema::resources::Resources;

use super::{Action, Admission, Attributes};
use crate::contents::Contents;
use crate::http::ApiError;
use crate::keys;

use usage::is_about;
pub(crate) use usage::recount_usage;

/// The locks of the namespaces with quotas: each lets one request at a time be charged and stored.
#[derive(Debug, Default)]
pub(crate) struct NamespaceLocks {
    namespaces: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

/// The lock of a namespace, held by the request that is being charged there.
pub(crate) type HeldNamespaceLock = tokio::sync::OwnedMutexGuard<()>;

impl NamespaceLocks {
    /// Waits for the lock of a namespace.
    pub(crate) async fn lock_namespace(&self, namespace: &str) -> HeldNamespaceLock {
        let turns = {
            let mut namespaces = self.namespaces.lock();
            let known = namespaces.get(namespace).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                namespaces.retain(|_, turns| turns.strong_count() > 0);
                let turns = Arc::new(tokio::sync::Mutex::new(()));
                namespaces.insert(namespace.to_owned(), Arc::downgrade(&turns));
                turns
            })
        };
        turns.lock_owned().await
    }
}

/// The amounts that a request adds to the quotas of its namespace. The request holds the namespace's lock until the
/// charge is dropped.
#[derive(Debug)]
pub(crate) struct QuotaCharge {
    pub(crate) namespace: String,
    /// Amounts by the quota's name.
    pub(crate) amounts: Vec<(String, Resources)>,
    _turn: HeldNamespaceLock,
}

fn quota_prefix(namespace: &str) -> String {
    keys::resource_prefix("", "resourcequotas", Some(namespace))
}

/// Returns the counted resource of a request, if quotas count requests of this sort.
fn find_counted(attributes: &Attributes<'_>) -> Option<Counted> {
    let (group, plural) = &attributes.resource().stored_as;
    let is_new = match attributes.action {
        Action::Create => true,
        Action::Update => false,
        Action::Delete => return None,
    };
    Counted::of_write(group, plural, attributes.op.subresource.as_deref(), is_new)
}

/// Checks whether a request may be charged to a quota.
pub(super) fn may_charge(contents: &Contents, attributes: &Attributes<'_>) -> bool {
    let namespace = attributes.namespace();
    attributes.resource().namespaced
        && !namespace.is_empty()
        && find_counted(attributes).is_some()
        && contents.view().entries(&quota_prefix(namespace)).next().is_some()
}

/// Computes the charge of a request for all quotas that cover it.
pub(super) async fn find_charge(
    admission: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<Option<QuotaCharge>, ApiError> {
    let Some(kind) = find_counted(attributes).filter(|_| may_charge(&admission.contents, attributes)) else {
        return Ok(None);
    };
    let namespace = attributes.namespace().to_owned();
    let mut all = QuotaCharge {
        amounts: Vec::new(),
        _turn: admission.namespace_locks().lock_namespace(&namespace).await,
        namespace,
    };
    for quota in admission
        .contents
        .view()
        .list("", "resourcequotas", Some(&all.namespace))
    {
        let owed = compute_charge(attributes, &kind, &quota, object)?;
        if let Some(owed) = owed.filter(|_| !attributes.dry_run()) {
            all.amounts.push((quota.name().to_owned(), owed));
        }
    }
    Ok(Some(all))
}

/// Computes the charge of a request for one quota; nothing if the quota does not cover the request.
fn compute_charge(
    attributes: &Attributes<'_>,
    kind: &Counted,
    quota: &Value,
    object: &Value,
) -> Result<Option<Resources>, ApiError> {
    if let Some(old) = attributes.old
        && !kind.is_charged_anew(attributes.op.subresource.as_deref(), old, object)
    {
        return Ok(None);
    }
    let hard = Resources::read(quota.pointer("/status/hard"));
    let used = Resources::read(quota.pointer("/status/used"));
    let restricted = hard.filter(|name, _| kind.counts(name));
    if restricted.0.is_empty() || !is_about(quota, kind, object) {
        return Ok(None);
    }
    let name = quota.name();
    let refuse = |why: String| attributes.denied_error(Some(object), &why);
    kind.check(&restricted, object)
        .map_err(|missing| refuse(format!("failed quota: {name}: must specify {missing}")))?;
    let uncounted: Vec<&str> = restricted
        .0
        .keys()
        .map(String::as_str)
        .filter(|resource| used.get(resource).is_none())
        .collect();
    if !uncounted.is_empty() {
        return Err(refuse(format!(
            "status unknown for quota: {name}, resources: {}",
            uncounted.join(",")
        )));
    }
    let mut requested = kind.measure(object);
    let negative = requested.filter(|_, amount| amount.is_negative());
    if !negative.0.is_empty() {
        let names: Vec<&str> = negative.0.keys().map(String::as_str).collect();
        return Err(refuse(format!(
            "quota usage is negative for resource(s): {}",
            names.join(",")
        )));
    }
    if let Some(old) = attributes.old.filter(|old| is_about(quota, kind, old)) {
        requested = requested.subtract(&kind.measure(old));
    }
    let requested = requested.filter(|name, amount| !amount.is_zero() && hard.get(name).is_some());
    if requested.0.is_empty() {
        return Ok(None);
    }
    let mut after = used.clone();
    after.add(&requested);
    let exceeds = |name: &str| {
        requested.get(name).is_some()
            && after
                .get(name)
                .zip(hard.get(name))
                .is_some_and(|(after, hard)| after > hard)
    };
    let exceeded = requested.filter(|name, _| exceeds(name));
    if exceeded.0.is_empty() || attributes.subresource() == "status" {
        return Ok(Some(requested));
    }
    Err(refuse(format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        exceeded.format_amounts(),
        used.filter(|name, _| exceeds(name)).format_amounts(),
        hard.filter(|name, _| exceeds(name)).format_amounts(),
    )))
}

/// Returns a quota with its correct status; `None` if the stored status is correct.
pub(crate) fn with_status(quota: &Value, counted: &Resources) -> Option<Value> {
    let hard = Resources::read(quota.pointer("/spec/hard"));
    let mut used = hard.filter(|name, _| counted.get(name).is_some());
    for (name, amount) in &mut used.0 {
        if let Some(found) = counted.get(name) {
            *amount = found;
        }
    }
    let same = |pointer: &str, wanted: &Resources| Resources::read(quota.pointer(pointer)) == *wanted;
    if same("/status/hard", &hard) && same("/status/used", &used) {
        return None;
    }
    let mut quota = quota.clone();
    quota.as_object_mut()?.insert(
        "status".to_owned(),
        json!({"hard": hard.to_value(), "used": used.to_value()}),
    );
    Some(quota)
}
