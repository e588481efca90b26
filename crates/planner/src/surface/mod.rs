//! How a Surface is reconciled: it becomes GitRepositories and Kustomizations beside it, and its status tells what became of them.
//!
//! What it generates is written by the controller itself, with its narrow rights on these two kinds; what the repositories contain is
//! applied by the Kustomizations, as the surface's identity. A Surface needs no finalizer: what it generates is owned by it and
//! collected with it, and what the Kustomizations then do with their objects is their deletion policy's to say.

mod children;
mod status;
mod validate;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::metadata::{SURFACE_LABEL, TENURE_CONTROLLER};
use tenure_api::{ObjectId, Surface, reason};
use tenure_tenancy::surface::tier;
use tenure_tenancy::{Identity, Placement, identity};

use crate::answer::{DeleteAnswer, Failure, Live, WriteAnswer};
use crate::object::{Object, Origin};
use crate::plan::{Apply, Delete, Next, Step, Watched, Withheld};

/// A plan for a Surface; nothing is remembered.
pub type Plan = crate::plan::Plan<()>;

/// How soon it is asked again who may act, when nothing told that it changed.
const IDENTITY_INTERVAL: Duration = Duration::from_secs(30);
/// How soon a refused write is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// What is known when a plan is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The Surface as last read, status included.
    pub surface: Surface,
    /// Whose its namespace is.
    pub placement: Placement,
    /// The GitRepositories and Kustomizations of its namespace: all that bear the label `tenure.dev/surface` with its name. One that
    /// it wants and that is not here is asked for by [`Step::Read`].
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
    /// Generation of the Surface when it began.
    #[serde(default)]
    pub generation: Option<i64>,
    /// Value of the annotation `reconcile.fluxcd.io/requestedAt` when it began.
    #[serde(default)]
    pub requested_at: Option<String>,
    /// Answers to applies.
    #[serde(default)]
    pub applied: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to deletes.
    #[serde(default)]
    pub deleted: BTreeMap<ObjectId, DeleteAnswer>,
}

impl Attempt {
    /// A new attempt for a Surface.
    #[must_use]
    pub fn begin(now: Timestamp, surface: &Surface) -> Self {
        Self {
            started: now,
            generation: surface.metadata.generation,
            requested_at: crate::kustomization::requested_at(&surface.metadata),
            applied: BTreeMap::new(),
            deleted: BTreeMap::new(),
        }
    }
}

/// What to do about a Surface.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let metadata = &snapshot.surface.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let mut plan = Plan::idle(subject(snapshot), ());
    if metadata.deletion_timestamp.is_some() {
        plan.next = Next::Forget;
        return plan;
    }
    let spec = &snapshot.surface.spec;
    let tier = match tier(&snapshot.placement, namespace) {
        Ok(tier) => tier,
        Err(denial) => {
            return status::refused(
                snapshot,
                now,
                None,
                &denial.reason,
                denial.message,
                Some(IDENTITY_INTERVAL),
            );
        }
    };
    let identity = match identity::of_surface(&snapshot.placement, namespace, spec.service_account_name.as_deref()) {
        Ok(identity) => identity,
        Err(denial) => {
            let again = (denial.reason == reason::IDENTITY_MISSING).then_some(IDENTITY_INTERVAL);
            return status::refused(snapshot, now, Some(tier), &denial.reason, denial.message, again);
        }
    };
    if let Err(denial) = validate::validate(&snapshot.surface, &snapshot.placement) {
        return status::refused(snapshot, now, Some(tier), &denial.reason, denial.message, None);
    }
    if snapshot.attempt.generation != metadata.generation
        || snapshot.attempt.requested_at != crate::kustomization::requested_at(metadata)
    {
        plan.next = Next::Restart;
        return plan;
    }
    let Some(account) = identity.service_account() else {
        // identity::of_surface gives ServiceAccounts only.
        let message = "a surface acts as a ServiceAccount".to_owned();
        return status::refused(snapshot, now, Some(tier), reason::IDENTITY_MISSING, message, None);
    };
    let children = children::children(&snapshot.surface, tier, account.name());
    plan.identity = Some(Identity::Controller);
    plan.watch = children
        .iter()
        .map(|child| Watched {
            id: child.id.clone(),
            version: "v1".to_owned(),
        })
        .collect();
    match write(snapshot, &children, &mut plan) {
        Err(problems) => status::not_written(snapshot, now, tier, &identity, &children, plan, problems),
        Ok(()) if !plan.steps.is_empty() => {
            plan.next = Next::Again;
            plan
        }
        Ok(()) => status::written(snapshot, now, tier, &identity, &children, plan),
    }
}

/// What to write and delete; an error names what cannot be.
fn write(snapshot: &Snapshot, children: &[children::Child], plan: &mut Plan) -> Result<(), Vec<String>> {
    let mut problems = Vec::new();
    let mut reads = Vec::new();
    let mut applies = Vec::new();
    for child in children {
        match (snapshot.live.get(&child.id), snapshot.attempt.applied.get(&child.id)) {
            (_, Some(WriteAnswer::Failed(failure))) => problems.push(failed(&child.id, "apply", failure)),
            (_, Some(WriteAnswer::Done(_))) => {}
            (None, None) => reads.push(Step::Read(Watched {
                id: child.id.clone(),
                version: "v1".to_owned(),
            })),
            (Some(Live::Failed(failure)), None) => problems.push(failed(&child.id, "read", failure)),
            (Some(Live::Absent), None) => applies.push(apply(child)),
            (Some(Live::Present(live)), None) => {
                if !is_child(snapshot, &live.0) {
                    problems.push(format!(
                        "{} exists and was not made by this surface: rename the source, or delete it",
                        child.id.subject()
                    ));
                } else if live.0.pointer("/metadata/deletionTimestamp").is_some() {
                    plan.withheld.push(Withheld {
                        what: child.id.subject(),
                        why: "it is being deleted: made again when it is gone".to_owned(),
                    });
                } else if !children::is_as_desired(&live.0, &child.object) {
                    applies.push(apply(child));
                }
            }
        }
    }
    if !reads.is_empty() {
        plan.steps = reads;
        return Ok(());
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    plan.steps = applies;
    // Kustomizations before the repositories that they use.
    let mut stale: Vec<(&ObjectId, &Object)> = snapshot
        .live
        .iter()
        .filter_map(|(id, live)| match live {
            Live::Present(object) => Some((id, object)),
            Live::Absent | Live::Failed(_) => None,
        })
        .filter(|(id, live)| is_child(snapshot, &live.0) && !children.iter().any(|child| child.id == **id))
        .filter(|(_, live)| live.0.pointer("/metadata/deletionTimestamp").is_none())
        .collect();
    stale.sort_by_key(|(id, _)| (id.kind != "Kustomization", (*id).clone()));
    for (id, live) in stale {
        match snapshot.attempt.deleted.get(id) {
            Some(DeleteAnswer::Failed(failure)) => problems.push(failed(id, "delete", failure)),
            Some(DeleteAnswer::Accepted | DeleteAnswer::Absent) => {}
            None => plan.steps.push(Step::Delete(Delete {
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
                why: "the surface no longer has this source".to_owned(),
            })),
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn apply(child: &children::Child) -> Step {
    Step::Apply(Apply {
        id: child.id.clone(),
        object: Object(child.object.clone()),
        origin: Origin {
            path: "Surface".to_owned(),
            line: 0,
        },
        manager: TENURE_CONTROLLER.to_owned(),
        force: true,
    })
}

/// Whether an object was made by this surface: by label and by ownerReference with its uid.
fn is_child(snapshot: &Snapshot, object: &Value) -> bool {
    let metadata = &snapshot.surface.metadata;
    let label = object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(SURFACE_LABEL))
        .and_then(Value::as_str);
    let owned = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|owner| {
            owner.get("kind").and_then(Value::as_str) == Some("Surface")
                && metadata.uid.is_some()
                && owner.get("uid").and_then(Value::as_str) == metadata.uid.as_deref()
        });
    label == metadata.name.as_deref() && owned
}

fn failed(id: &ObjectId, verb: &str, failure: &Failure) -> String {
    format!(
        "{} {verb} failed ({}): {}",
        id.subject(),
        failure.reason,
        failure.message
    )
}

fn subject(snapshot: &Snapshot) -> String {
    let metadata = &snapshot.surface.metadata;
    format!(
        "Surface/{}/{}",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default()
    )
}

fn later(time: Timestamp, duration: Duration) -> Timestamp {
    SignedDuration::try_from(duration)
        .ok()
        .and_then(|duration| time.checked_add(duration).ok())
        .unwrap_or(Timestamp::MAX)
}
