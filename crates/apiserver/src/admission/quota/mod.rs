//! ResourceQuota: what a namespace may have in all. Charged when something is created or grows, and counted anew by a
//! controller when something goes.
//!
//! One request at a time is charged in a namespace, and stored before the next one is: together they can't have more
//! than the quota says, however many there are. What was charged for a write that failed is given back.

mod scopes;
mod usage;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_access::identity::UserInfo;
use tenure_kinds::schema::resources::Resources;

use super::{Action, Attributes};
use crate::http::ApiError;
use crate::keys;
use crate::registry::{OWN_MANAGER, ObjectExt, Operation, Registry, View};

use usage::Counted;
pub(crate) use usage::recount;

/// How often a charge is written anew when the quota was changed meanwhile.
const ATTEMPTS: usize = 8;

/// The turns of the namespaces that have quotas.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    namespaces: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

/// Held by whom it is who writes in a namespace.
pub(crate) type Turn = tokio::sync::OwnedMutexGuard<()>;

impl Turns {
    /// Waits for the turn in a namespace.
    pub(crate) async fn of(&self, namespace: &str) -> Turn {
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

/// What was charged for a request. It has the namespace's turn until the write is done.
#[derive(Debug)]
pub(crate) struct Charge {
    namespace: String,
    /// By the quota's name.
    charged: Vec<(String, Resources)>,
    _turn: Turn,
}

impl Charge {
    /// Gives back what was charged for nothing.
    pub(crate) async fn refund(self, registry: &Registry) {
        for (name, amount) in &self.charged {
            let written = write(registry, &self.namespace, name, |used| used.less(amount)).await;
            if let Err(error) = written {
                tracing::warn!(quota = name, namespace = self.namespace, %error, "a charge could not be given back");
            }
        }
    }
}

fn prefix(namespace: &str) -> String {
    keys::of_resource("", "resourcequotas", Some(namespace))
}

/// Whether a request of this kind can be charged to somebody.
pub(super) fn may_charge(registry: &Registry, attributes: &Attributes<'_>) -> bool {
    let namespace = attributes.namespace();
    attributes.action != Action::Delete
        && attributes.resource().namespaced
        && !namespace.is_empty()
        && Counted::of(attributes).is_some()
        && registry.view().entries(&prefix(namespace)).next().is_some()
}

/// Charges a request to the quotas that it falls under.
pub(super) async fn charge(
    registry: &Registry,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<Option<Charge>, ApiError> {
    let Some(kind) = Counted::of(attributes).filter(|_| may_charge(registry, attributes)) else {
        return Ok(None);
    };
    let namespace = attributes.namespace().to_owned();
    let mut charge = Charge {
        charged: Vec::new(),
        _turn: registry.admission().turns().of(&namespace).await,
        namespace,
    };
    for quota in registry.view().list("", "resourcequotas", Some(&charge.namespace)) {
        let owed = match owed(attributes, &kind, &quota, object) {
            Ok(owed) => owed,
            Err(error) => {
                charge.refund(registry).await;
                return Err(error);
            }
        };
        let Some(owed) = owed.filter(|_| !attributes.dry_run()) else {
            continue;
        };
        let written = write(registry, &charge.namespace, quota.name(), |used| {
            let mut used = used.clone();
            used.add(&owed);
            used
        });
        match written.await {
            Ok(()) => charge.charged.push((quota.name().to_owned(), owed)),
            // It is gone: nothing is owed to it any more.
            Err(error) if error.code == 404 => {}
            Err(error) => {
                charge.refund(registry).await;
                return Err(error);
            }
        }
    }
    Ok(Some(charge))
}

/// What a request owes to one quota; nothing if that does not cover it.
fn owed(
    attributes: &Attributes<'_>,
    kind: &Counted,
    quota: &Value,
    object: &Value,
) -> Result<Option<Resources>, ApiError> {
    if let Some(old) = attributes.old
        && let Some(usage) = kind.behavior.usage
        && !(usage.is_charged_anew)(attributes.op.subresource.as_deref(), old, object)
    {
        return Ok(None);
    }
    let hard = Resources::read(quota.pointer("/status/hard"));
    let used = Resources::read(quota.pointer("/status/used"));
    let restricted = hard.only(|name, _| kind.counts(name));
    if restricted.0.is_empty() || !scopes::matches(quota, kind, object) {
        return Ok(None);
    }
    let name = quota.name();
    let refuse = |why: String| attributes.denied(Some(object), &why);
    usage::check(kind, &restricted, object)
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
    let mut requested = usage::of(kind, object);
    let negative = requested.only(|_, amount| amount.is_negative());
    if !negative.0.is_empty() {
        let names: Vec<&str> = negative.0.keys().map(String::as_str).collect();
        return Err(refuse(format!(
            "quota usage is negative for resource(s): {}",
            names.join(",")
        )));
    }
    if let Some(old) = attributes.old.filter(|old| scopes::matches(quota, kind, old)) {
        requested = requested.less(&usage::of(kind, old));
    }
    let requested = requested.only(|name, amount| !amount.is_zero() && hard.get(name).is_some());
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
    let exceeded = requested.only(|name, _| exceeds(name));
    if exceeded.0.is_empty() || attributes.subresource() == "status" {
        return Ok(Some(requested));
    }
    Err(refuse(format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        exceeded.shown(),
        used.only(|name, _| exceeds(name)).shown(),
        hard.only(|name, _| exceeds(name)).shown(),
    )))
}

type Writing<'a> = Pin<Box<dyn Future<Output = Result<(), ApiError>> + Send + 'a>>;

/// Writes what is used of a quota. In a box, as this write is itself admitted; it is never charged to anybody.
fn write<'a>(
    registry: &'a Registry,
    namespace: &'a str,
    name: &'a str,
    change: impl Fn(&Resources) -> Resources + Send + Sync + 'a,
) -> Writing<'a> {
    Box::pin(async move {
        let catalog = registry.catalog();
        let resource = catalog
            .find("", "v1", "resourcequotas")
            .ok_or_else(ApiError::no_such_resource)?;
        let op = Operation::new(
            resource.clone(),
            Some(namespace.to_owned()),
            UserInfo::loopback(),
            OWN_MANAGER,
        )
        .subresource("status");
        let mut outcome = Ok(());
        for _ in 0..ATTEMPTS {
            let found = find(&registry.view(), namespace, name);
            let mut quota = found.ok_or_else(|| ApiError::not_found(resource, name))?;
            let used = change(&Resources::read(quota.pointer("/status/used")));
            if let Some(status) = quota.get_mut("status").and_then(Value::as_object_mut) {
                status.insert("used".to_owned(), used.to_value());
            }
            outcome = match registry.update(&op, name, quota).await {
                Ok(_) => return Ok(()),
                Err(error) if error.code == 409 => Err(error),
                Err(error) => return Err(error),
            };
        }
        outcome
    })
}

fn find(view: &View, namespace: &str, name: &str) -> Option<Value> {
    use tenure_access::identity::Lookup;
    let found = view.get("", "resourcequotas", Some(namespace), name)?;
    Some((*found).clone())
}

/// A quota with the status that it should have: `None` if it has.
pub(crate) fn with_status(quota: &Value, counted: &Resources) -> Option<Value> {
    let hard = Resources::read(quota.pointer("/spec/hard"));
    let mut used = hard.only(|name, _| counted.get(name).is_some());
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
