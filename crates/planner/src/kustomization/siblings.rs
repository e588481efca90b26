//! The Kustomizations of one source, and the facts that they share: so a commit that moves an object from one of them to another deletes nothing.
//!
//! Each Kustomization reports what it gains and drops with a revision as soon as it knows. A Kustomization that drops an object delays its prune until the others have
//! reached that revision, for at most its timeout. A Kustomization that gains the object takes it over once the owner is known to drop it, or is being deleted. No
//! Kustomization waits for one that waits for it. Facts about Kustomizations of another namespace are never used.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_api::kustomization::KustomizationStatus;
use tenure_api::{ConditionStatus, Kustomization, ObjectId, condition, reason};
use tenure_tenancy::Placement;

use super::context::Context;
use super::desired::Desired;
use super::prune;
use super::types::HealthWait;
use crate::outcome::add_duration;

/// The objects that a Kustomization is about to gain and to drop with a revision; the shell passes them to the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectTurnover {
    /// Revision.
    pub revision: String,
    /// Generation of the Kustomization that the turnover was built for: it says nothing about another spec.
    pub generation: Option<i64>,
    /// Wanted objects that the stored inventory doesn't name.
    pub gains: BTreeSet<ObjectId>,
    /// Objects in the stored inventory that are not wanted any more.
    pub drops: BTreeSet<ObjectId>,
}

/// Another Kustomization that owns an object which this one wants, by the object's labels and by its own inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherOwner {
    /// The namespace of the other owner.
    pub namespace: String,
    /// The name of the other owner.
    pub name: String,
    /// The uid of the other owner.
    #[serde(default)]
    pub uid: String,
    /// The owner of the other owner's namespace.
    pub placement: Placement,
    /// Kind and name of its source; with its namespace, if that is another.
    pub source: (String, String),
    /// Whether it will do nothing by itself: suspended, stalled or being deleted.
    #[serde(default)]
    pub idle: bool,
    /// Whether it is being deleted: it gives up all that it has.
    #[serde(default)]
    pub leaving: bool,
    /// Whether it waits for this one, by `dependsOn`, directly or not.
    #[serde(default)]
    pub waits_for_us: bool,
    /// The revision that the other owner has applied in full. It will gain and drop nothing more with this revision.
    #[serde(default)]
    pub applied: Option<String>,
    /// The other owner's gains and drops, if they are known for its present spec.
    #[serde(default)]
    pub turnover: Option<ObjectTurnover>,
}

impl ObjectTurnover {
    /// Checks whether the turnover is for the present spec of a Kustomization.
    #[must_use]
    pub fn is_present(&self, kustomization: &Kustomization) -> bool {
        self.generation == kustomization.metadata.generation
    }
}

/// Another Kustomization of the same source.
#[derive(Clone, Copy, Debug)]
pub struct Sibling<'a> {
    /// The Kustomization.
    pub kustomization: &'a Kustomization,
    /// The sibling's gains and drops, if they are known.
    pub turnover: Option<&'a ObjectTurnover>,
    /// Whether it waits for this one, by `dependsOn`, directly or not.
    pub waits_for_us: bool,
}

/// The answer to a [`SurveyRequest`](super::step::SurveyRequest): which Kustomizations of the same source the prune has to wait for, and which objects they want.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Survey {
    /// The objects of the request, which this Kustomization is about to prune.
    pub asked: BTreeSet<ObjectId>,
    /// For each object that another Kustomization wants: that Kustomization.
    pub wanted: BTreeMap<ObjectId, WantedBy>,
    /// The name of a Kustomization that has not reached the revision yet, and for which the prune waits.
    pub behind: Option<String>,
    /// The name of a Kustomization that has not reached the revision yet, and that waits for this one.
    pub behind_us: Option<String>,
    /// The name of a Kustomization for which the prune waits, because it has not reported yet which objects its present spec wants from the revision.
    pub untried: Option<String>,
}

/// The Kustomization that wants an object which is to be pruned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WantedBy {
    /// The name of the Kustomization.
    pub name: String,
    /// Whether it waits for this one, by `dependsOn`, directly or not.
    pub waits_for_us: bool,
    /// Whether it does nothing by itself.
    pub idle: bool,
}

impl WantedBy {
    /// Checks whether the Kustomization will take the object over as soon as this one releases it.
    pub(super) fn is_awaited(&self) -> bool {
        !self.waits_for_us && !self.idle
    }
}

/// Surveys the siblings: which have not reached the revision yet, and which want which objects. `claims` holds, by object, the names of siblings whose inventory or
/// gains contain the object. If several siblings want an object, the survey names one that will take it over.
#[must_use]
pub fn survey_siblings<'a>(
    revision: &str,
    claims: &BTreeMap<ObjectId, BTreeSet<String>>,
    siblings: impl Iterator<Item = Sibling<'a>>,
) -> Survey {
    let mut survey = Survey {
        asked: claims.keys().cloned().collect(),
        ..Survey::default()
    };
    for sibling in siblings {
        let name = sibling.kustomization.metadata.name.as_deref().unwrap_or_default();
        let turnover = sibling
            .turnover
            .filter(|turnover| turnover.is_present(sibling.kustomization));
        let idle = is_idle(sibling.kustomization);
        for (id, claimed_by) in claims {
            let dropped = turnover.is_some_and(|turnover| turnover.drops.contains(id));
            if !claimed_by.contains(name) || dropped {
                continue;
            }
            let by = WantedBy {
                name: name.to_owned(),
                waits_for_us: sibling.waits_for_us,
                idle,
            };
            match survey.wanted.get_mut(id) {
                Some(other) if other.is_awaited() || !by.is_awaited() => {}
                Some(other) => *other = by,
                None => {
                    survey.wanted.insert(id.clone(), by);
                }
            }
        }
        let reached = turnover.is_some_and(|turnover| turnover.revision == revision)
            || find_applied_revision(sibling.kustomization) == Some(revision);
        if reached || idle {
            continue;
        }
        if sibling.waits_for_us {
            survey.behind_us.get_or_insert_with(|| name.to_owned());
            continue;
        }
        survey.behind.get_or_insert_with(|| name.to_owned());
        if !can_not_build(sibling.kustomization, revision) {
            survey.untried.get_or_insert_with(|| name.to_owned());
        }
    }
    survey
}

/// Checks whether a Kustomization has tried a revision with its present spec and could not build it: it has no turnover. One that failed later has reported its
/// turnover, and reports it again after a restart.
fn can_not_build(kustomization: &Kustomization, revision: &str) -> bool {
    let Some(status) = &kustomization.status else {
        return false;
    };
    let ready = condition::find(&status.conditions, condition::READY);
    status.last_attempted_revision.as_deref() == Some(revision)
        && ready.is_some_and(|ready| {
            ready.observed_generation == kustomization.metadata.generation
                && ready.status == ConditionStatus::False
                && ready.reason == reason::BUILD_FAILED
        })
}

/// Checks whether a Kustomization does nothing until a user changes it: suspended, stalled or being deleted. Other Kustomizations don't wait for it.
#[must_use]
pub fn is_idle(kustomization: &Kustomization) -> bool {
    let conditions = kustomization.status.as_ref().map(|status| status.conditions.as_slice());
    kustomization.spec.suspend
        || kustomization.metadata.deletion_timestamp.is_some()
        || condition::is_true(conditions.unwrap_or_default(), condition::STALLED)
}

/// Returns the revision that a Kustomization has applied in full, if its status reports this for its present spec.
#[must_use]
pub fn find_applied_revision(kustomization: &Kustomization) -> Option<&str> {
    let status: &KustomizationStatus = kustomization.status.as_ref()?;
    let is_present = status.observed_generation == kustomization.metadata.generation
        && condition::is_true(&status.conditions, condition::READY);
    status.last_applied_revision.as_deref().filter(|_| is_present)
}

/// Compares the wanted objects with the stored inventory: the objects that this Kustomization gains and drops. The other Kustomizations of the same source use that.
pub(super) fn find_turnover(context: &Context<'_>, desired: &Desired) -> ObjectTurnover {
    let status = context.snapshot.kustomization.status.as_ref();
    let stored: BTreeSet<&str> = status
        .and_then(|status| status.inventory.as_ref())
        .into_iter()
        .flat_map(|inventory| &inventory.entries)
        .map(|entry| entry.id.as_str())
        .collect();
    ObjectTurnover {
        revision: context.revision.clone().unwrap_or_default(),
        generation: context.snapshot.kustomization.metadata.generation,
        gains: desired
            .objects
            .iter()
            .map(|object| &object.target.id)
            .filter(|id| !stored.contains(id.to_string().as_str()))
            .cloned()
            .collect(),
        drops: prune::list_candidates(context, desired)
            .into_iter()
            .map(|target| target.id)
            .collect(),
    }
}

/// Returns the end of a prune's wait for siblings: its timeout, counted from the first wait with this revision.
pub(super) fn find_prune_deadline(context: &mut Context<'_>) -> Timestamp {
    let waiting = continue_wait(context, context.memory.prune_waiting.as_ref());
    let deadline = add_duration(waiting.since, context.timeout);
    context.memory.prune_waiting = Some(waiting);
    deadline
}

/// Checks whether dependent Kustomizations have had this one's timeout to reach the revision. The time counts from the end of an attempt, since they can't begin
/// before.
pub(super) fn is_prune_delay_over(context: &Context<'_>) -> bool {
    let put_off = context.memory.prune_put_off.as_ref();
    put_off.is_some_and(|put_off| {
        is_present(context, put_off) && context.now >= add_duration(put_off.since, context.timeout)
    })
}

/// Delays the prune at the end of an attempt, and returns the end of the delay.
pub(super) fn delay_prune(context: &mut Context<'_>) -> Timestamp {
    let waiting = continue_wait(context, context.memory.prune_put_off.as_ref());
    let deadline = add_duration(waiting.since, context.timeout);
    context.memory.prune_put_off = Some(waiting);
    deadline
}

/// Returns a wait of this attempt, with the start of the first wait for this revision and spec.
fn continue_wait(context: &Context<'_>, before: Option<&HealthWait>) -> HealthWait {
    let before = before.filter(|waiting| is_present(context, waiting));
    HealthWait {
        revision: context.revision.clone().unwrap_or_default(),
        generation: context.snapshot.kustomization.metadata.generation,
        since: before.map_or(context.now, |waiting| waiting.since),
        attempt: context.snapshot.attempt.started,
        quiet_until: None,
    }
}

fn is_present(context: &Context<'_>, waiting: &HealthWait) -> bool {
    Some(&waiting.revision) == context.revision.as_ref()
        && waiting.generation == context.snapshot.kustomization.metadata.generation
}
