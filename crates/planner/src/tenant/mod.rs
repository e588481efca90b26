//! How a Tenant is reconciled: its namespaces are owned, its owners are bound in each of them, and its GitOps ServiceAccount exists in
//! the home namespace, bound to a narrow ClusterRole in each.
//!
//! Everything is written by the controller itself. A namespace joins a tenant by its label, which only those can set who may already
//! change the namespace itself; what tells from then on is the ownerReference with the Tenant's uid that is written here. A namespace
//! that another Tenant owns, that is the platform's or Kubernetes' own, or that merely bears the tenant's name, is never taken.
//! A Tenant needs no finalizer: what is written here is owned by it and collected with it, its namespaces included, as in Capsule.

mod bindings;
mod namespaces;
mod status;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, TENANT_LABEL, TENURE_CONTROLLER};
use tenure_api::{ObjectId, Tenant};
use tenure_tenancy::{Identity, Realm, TenantFacts};

use crate::answer::{DeleteAnswer, Failure, Live, WriteAnswer};
use crate::object::{Object, Origin};
use crate::plan::{Apply, Delete, Next, Step, Watched, Withheld};

/// A plan for a Tenant; nothing is remembered.
pub type Plan = crate::plan::Plan<()>;

/// How soon a refused write is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// What is known when a plan is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The Tenant as last read, status included.
    pub tenant: Tenant,
    /// All Tenants and namespaces.
    pub realm: Realm,
    /// RoleBindings and ServiceAccounts that bear the label `capsule.clastix.io/tenant` with its name, in any namespace. One that it
    /// wants and that is not here is asked for by [`Step::Read`].
    #[serde(default)]
    pub live: BTreeMap<ObjectId, Live>,
    /// This attempt, and the answers to its steps.
    pub attempt: Attempt,
}

/// One attempt: from a trigger until [`Next::Done`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// When it began.
    pub started: Timestamp,
    /// Generation of the Tenant when it began.
    #[serde(default)]
    pub generation: Option<i64>,
    /// Answers to applies.
    #[serde(default)]
    pub applied: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to deletes.
    #[serde(default)]
    pub deleted: BTreeMap<ObjectId, DeleteAnswer>,
}

impl Attempt {
    /// A new attempt for a Tenant.
    #[must_use]
    pub fn begin(now: Timestamp, tenant: &Tenant) -> Self {
        Self {
            started: now,
            generation: tenant.metadata.generation,
            applied: BTreeMap::new(),
            deleted: BTreeMap::new(),
        }
    }
}

/// An object that is to be.
pub(crate) struct Wanted {
    id: ObjectId,
    version: &'static str,
    object: Value,
}

/// What to do about a Tenant.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let metadata = &snapshot.tenant.metadata;
    let facts = TenantFacts::from(&snapshot.tenant);
    let mut plan = Plan::idle(format!("Tenant/{}", facts.name), ());
    if metadata.deletion_timestamp.is_some() {
        plan.next = Next::Forget;
        return plan;
    }
    if snapshot.attempt.generation != metadata.generation {
        plan.next = Next::Restart;
        return plan;
    }
    plan.identity = Some(Identity::Controller);
    let mut problems = Vec::new();

    // Namespaces first: what is in them needs them.
    let taken = namespaces::take(snapshot, &facts, &mut plan, &mut problems);
    let mut steps = Vec::new();
    for wanted in &taken.wanted {
        match snapshot.attempt.applied.get(&wanted.id) {
            None => steps.push(apply(wanted)),
            Some(WriteAnswer::Done(_)) => {}
            Some(WriteAnswer::Failed(failure)) => problems.push(failed(&wanted.id, "apply", failure)),
        }
    }
    if !steps.is_empty() {
        plan.steps = steps;
        plan.next = Next::Again;
        return plan;
    }

    let wanted = bindings::wanted(snapshot, &facts, &taken, &mut problems);
    plan.watch = wanted
        .iter()
        .map(|wanted| Watched {
            id: wanted.id.clone(),
            version: wanted.version.to_owned(),
        })
        .collect();
    let steps = write(snapshot, &wanted, &mut plan, &mut problems);
    if !steps.is_empty() {
        plan.steps = steps;
        plan.next = Next::Again;
        return plan;
    }
    status::end(snapshot, now, &taken, problems, plan)
}

/// What to read, write and delete so that what is wanted is there and nothing besides.
fn write(snapshot: &Snapshot, wanted: &[Wanted], plan: &mut Plan, problems: &mut Vec<String>) -> Vec<Step> {
    let mut reads = Vec::new();
    let mut steps = Vec::new();
    for wanted in wanted {
        match (snapshot.live.get(&wanted.id), snapshot.attempt.applied.get(&wanted.id)) {
            (_, Some(WriteAnswer::Failed(failure))) => problems.push(failed(&wanted.id, "apply", failure)),
            (_, Some(WriteAnswer::Done(_))) => {}
            (None, None) => {
                reads.push(Step::Read(Watched {
                    id: wanted.id.clone(),
                    version: wanted.version.to_owned(),
                }));
            }
            (Some(Live::Failed(failure)), None) => problems.push(failed(&wanted.id, "read", failure)),
            (Some(Live::Absent), None) => steps.push(apply(wanted)),
            (Some(Live::Present(live)), None) => {
                let role_is_another = live.0.get("roleRef").is_some()
                    && live.0.pointer("/roleRef/name") != wanted.object.pointer("/roleRef/name");
                if role_is_another {
                    problems.push(format!(
                        "{} exists and binds another role: delete it, so that it can be made anew",
                        wanted.id.subject()
                    ));
                } else if live.0.pointer("/metadata/deletionTimestamp").is_some() {
                    plan.withheld.push(Withheld {
                        what: wanted.id.subject(),
                        why: "it is being deleted".to_owned(),
                    });
                } else if !contains(&live.0, &wanted.object) {
                    steps.push(apply(wanted));
                }
            }
        }
    }
    if !reads.is_empty() {
        return reads;
    }
    for (id, live) in &snapshot.live {
        let Live::Present(live) = live else { continue };
        let stale = is_ours(snapshot, &live.0) && !wanted.iter().any(|wanted| wanted.id == *id);
        if !stale || live.0.pointer("/metadata/deletionTimestamp").is_some() {
            continue;
        }
        match snapshot.attempt.deleted.get(id) {
            Some(DeleteAnswer::Failed(failure)) => problems.push(failed(id, "delete", failure)),
            Some(DeleteAnswer::Accepted | DeleteAnswer::Absent) => {}
            None => steps.push(Step::Delete(Delete {
                target: Watched {
                    id: id.clone(),
                    version: "v1".to_owned(),
                },
                uid: live
                    .0
                    .pointer("/metadata/uid")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
                propagation: "Background".to_owned(),
                why: "the tenant no longer has this owner, role or namespace".to_owned(),
            })),
        }
    }
    steps
}

fn apply(wanted: &Wanted) -> Step {
    Step::Apply(Apply {
        id: wanted.id.clone(),
        object: Object(wanted.object.clone()),
        origin: Origin {
            path: "Tenant".to_owned(),
            line: 0,
        },
        manager: TENURE_CONTROLLER.to_owned(),
        force: true,
    })
}

/// Whether an object was made for this very Tenant: labels, and an ownerReference with its uid.
fn is_ours(snapshot: &Snapshot, object: &Value) -> bool {
    let metadata = &snapshot.tenant.metadata;
    let label = |key: &str| {
        object
            .pointer("/metadata/labels")
            .and_then(|labels| labels.get(key))
            .and_then(Value::as_str)
    };
    let owned = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|owner| {
            owner.get("kind").and_then(Value::as_str) == Some("Tenant")
                && metadata.uid.is_some()
                && owner.get("uid").and_then(Value::as_str) == metadata.uid.as_deref()
        });
    label(MANAGED_BY) == Some(MANAGED_BY_TENURE) && label(TENANT_LABEL) == metadata.name.as_deref() && owned
}

fn owner_reference(tenant: &Tenant) -> Value {
    json!({
        "apiVersion": "capsule.clastix.io/v1beta2",
        "kind": "Tenant",
        "name": tenant.metadata.name,
        "uid": tenant.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Whether everything wanted is there: objects may have more fields, lists must be equal, ownerReferences may have more entries.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| match (live.get(key), value) {
                (Some(Value::Array(live)), Value::Array(wanted)) if key == "ownerReferences" => wanted
                    .iter()
                    .all(|wanted| live.iter().any(|live| contains(live, wanted))),
                (Some(Value::Array(live)), Value::Array(wanted)) => {
                    live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| contains(live, wanted))
                }
                (Some(live), value) => contains(live, value),
                (None, _) => false,
            })
        }
        (live, wanted) => live == wanted,
    }
}

fn failed(id: &ObjectId, verb: &str, failure: &Failure) -> String {
    format!(
        "{} {verb} failed ({}): {}",
        id.subject(),
        failure.reason,
        failure.message
    )
}

pub(crate) fn later(time: Timestamp, duration: Duration) -> Timestamp {
    SignedDuration::try_from(duration)
        .ok()
        .and_then(|duration| time.checked_add(duration).ok())
        .unwrap_or(Timestamp::MAX)
}
