//! The dependents of an owner, such as a Surface or a Tenant: the objects that the owner generates. This module plans the reads, writes and deletions after which
//! exactly the wanted dependents exist. The garbage collector deletes them with their owner.
//!
//! An object that merely has the right name or label stays untouched: an ownerReference with the owner's uid names the owner.

mod terminating;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenure_api::digest::digest_value;
use tenure_api::metadata::TENURE_CONTROLLER;
use tenure_api::{ObjectId, ObjectMeta, ObjectView};

use crate::answer::{Answer, DeleteAnswer, Failure, ImpliedState, Live, Reason, WriteAnswer};
use crate::confidential;
use crate::object::{Object, Origin};
use crate::outcome::add_duration;
use crate::plan::{Apply, Delete, Propagation, Request, Watched, Withheld};
use crate::tenant::namespace_rate::NamespaceBurst;

pub(crate) use terminating::{FinalizerRule, describe_held, make_neutral_form, make_release};

/// The first and the longest pause after a refused write of one object.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// The state that the shell carries from plan to plan for an object with dependents. Its loss costs a request for each refused dependent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// The dependents whose last write or deletion failed. The next try waits for its time, even if their owner is reconciled before.
    pub refused: BTreeMap<ObjectId, FailedWrite>,
    /// The result of writing a dependent: a digest of the wanted object and of the server's result. While both are unchanged the object is as wanted, even with the
    /// server's additions.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settled: BTreeMap<ObjectId, String>,
    /// Namespaces that a Tenant has made or taken and not recorded yet: uids by names. If no admission checks namespaces, a loss of this map costs an administrator's
    /// decision.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub made: BTreeMap<String, String>,
    /// The written shares of a Tenant's quotas that are not visible yet.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<ObjectId, UnconfirmedQuota>,
    /// Whether the use of a Tenant's namespaces is changing: shares of its quotas wait until it stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unrest: Option<ObservedUse>,
    /// The time since which a recorded namespace doesn't name its Tenant, by its uid.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unnamed: BTreeMap<String, Timestamp>,
    /// The times of a Tenant's new namespaces, for the rate limit where policies are the only admission.
    #[serde(skip_serializing_if = "is_default")]
    pub burst: NamespaceBurst,
}

fn is_default(burst: &NamespaceBurst) -> bool {
    *burst == NamespaceBurst::default()
}

/// A write to a ResourceQuota that is not visible yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnconfirmedQuota {
    /// `spec.hard` of the last write.
    pub hard: BTreeMap<String, String>,
    /// The highest value of each resource that was written since the object was last seen. Writes without an answer count, since the API server may have enforced them.
    pub most: BTreeMap<String, String>,
    /// The revision in the answer to the last write; unset while no answer came.
    #[serde(default)]
    pub revision: Option<u64>,
}

/// The last observed use of a Tenant's namespaces, and since when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedUse {
    /// Digest of the use.
    pub used: String,
    /// The time at which this use was seen first.
    pub since: Timestamp,
    /// The time at which the use began to change, or at which shares were last written despite the change.
    pub began: Timestamp,
}

/// A write or a deletion that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedWrite {
    /// The generation of the owner, its `requestedAt`, and the content to write. After a change of this text, the write is tried at once.
    pub asked: String,
    /// The attempt that failed.
    pub attempt: Timestamp,
    /// The failure.
    pub failure: Failure,
    /// The time of the next try.
    pub until: Timestamp,
    /// The number of failures in a row.
    pub times: u32,
}

/// One attempt to reconcile an object with dependents: from a trigger until [`crate::Next::Done`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The start of the attempt.
    pub started: Timestamp,
    /// Generation of the object at the start.
    #[serde(default)]
    pub generation: Option<i64>,
    /// Value of the annotation `reconcile.fluxcd.io/requestedAt` at the start.
    #[serde(default)]
    pub requested_at: Option<String>,
    /// Answers to applies.
    #[serde(default)]
    pub applied: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to deletes.
    #[serde(default)]
    pub deleted: BTreeMap<ObjectId, DeleteAnswer>,
    /// Answers to removals of ownerReferences.
    #[serde(default)]
    pub disowned: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to removals of finalizers.
    #[serde(default)]
    pub released: BTreeMap<ObjectId, WriteAnswer>,
}

impl Attempt {
    /// Starts a new attempt for the object with this metadata.
    #[must_use]
    pub fn new(now: Timestamp, metadata: &ObjectMeta) -> Self {
        Self {
            started: now,
            generation: metadata.generation,
            requested_at: crate::outcome::read_requested_at(metadata),
            applied: BTreeMap::new(),
            deleted: BTreeMap::new(),
            disowned: BTreeMap::new(),
            released: BTreeMap::new(),
        }
    }

    /// Checks whether a removal of finalizers or ownerReferences met a conflict: another client wrote to the object at the same time.
    #[must_use]
    pub fn has_conflict(&self) -> bool {
        let mut answers = self.disowned.values().chain(self.released.values());
        answers.any(|answer| matches!(answer, WriteAnswer::Failed(failure) if failure.reason == Reason::Conflict))
    }

    /// Checks whether this attempt wrote to an object.
    #[must_use]
    pub fn has_written(&self, id: &ObjectId) -> bool {
        let mut answers = [&self.applied, &self.disowned, &self.released].into_iter();
        answers.any(|answers| matches!(answers.get(id), Some(WriteAnswer::Done(_))))
    }

    /// Takes the answer to a step of this attempt.
    pub fn record_answer(&mut self, answer: Answer) -> ImpliedState {
        match answer {
            Answer::Live(id, answer) => Some((id, answer)),
            Answer::Applied(id, answer) => {
                self.applied.insert(id.clone(), answer.clone());
                let WriteAnswer::Done(object) = answer else { return None };
                Some((id, Live::Present(object)))
            }
            Answer::Disowned(id, answer) => {
                self.disowned.insert(id.clone(), answer.clone());
                let WriteAnswer::Done(object) = answer else { return None };
                Some((
                    id,
                    match object.0.is_null() {
                        true => Live::Absent,
                        false => Live::Present(object),
                    },
                ))
            }
            Answer::Released(id, answer) => {
                self.released.insert(id.clone(), answer.clone());
                let WriteAnswer::Done(object) = answer else { return None };
                // An object that is being deleted disappears with its last finalizer.
                let view = object.view();
                let has_finalizers = view.list_texts("/metadata/finalizers").next().is_some();
                let is_gone = object.0.is_null() || (view.is_being_deleted() && !has_finalizers);
                Some((id, if is_gone { Live::Absent } else { Live::Present(object) }))
            }
            Answer::Deleted(id, answer) => {
                DeleteAnswer::insert_counted(&mut self.deleted, id, answer);
                None
            }
            // A plan with dependents sends no such request.
            Answer::Kind(..)
            | Answer::DryRun(..)
            | Answer::Tried(..)
            | Answer::Created(..)
            | Answer::Claims(..)
            | Answer::TriedDelete(..)
            | Answer::TakenOver(..) => None,
        }
    }
}

/// A dependent that should exist, with its wanted content.
pub(crate) struct Wanted {
    pub(crate) id: ObjectId,
    pub(crate) version: &'static str,
    pub(crate) object: Value,
}

impl Wanted {
    pub(crate) fn make_watched(&self) -> Watched {
        Watched {
            id: self.id.clone(),
            version: self.version.to_owned(),
        }
    }

    /// Returns the step that writes the object; `origin` names the kind that wants it.
    pub(crate) fn apply(&self, origin: &str) -> Request {
        Request::Apply(Apply {
            id: self.id.clone(),
            object: Object(self.object.clone()),
            origin: Origin {
                path: origin.to_owned(),
                line: 0,
            },
            manager: TENURE_CONTROLLER.to_owned(),
            force: true,
            confidential: confidential::is_secret(&self.id),
        })
    }
}

/// The comparison of a live object with the wanted object of the same name.
pub(crate) enum Verdict {
    /// The object is as wanted.
    AsWanted,
    /// The object must be written.
    Differs,
    /// The object belongs to another writer and is left unchanged: the reason, and the remedy.
    Foreign(&'static str),
}

/// The input and the memory for planning the dependents of one owner.
pub(crate) struct Dependents<'a> {
    /// Kind of the owner, `Surface`.
    pub(crate) owner: &'static str,
    pub(crate) live: &'a BTreeMap<ObjectId, Live>,
    pub(crate) attempt: &'a Attempt,
    pub(crate) memory: &'a mut Memory,
    pub(crate) now: Timestamp,
    /// The rule for finalizers of others that stay.
    pub(crate) finalizers: FinalizerRule<'a>,
    /// The wanted objects that are being deleted and stay, each with its message.
    pub(crate) lingering: BTreeMap<ObjectId, String>,
}

impl Dependents<'_> {
    /// Returns the step that writes an object, unless this attempt did it already. A failure of the write, or a wait after an earlier failure, is a problem.
    pub(crate) fn write(&mut self, wanted: &Wanted, problems: &mut Vec<String>) -> Option<Request> {
        let id = &wanted.id;
        let asked = self.describe_request(&digest_value(&wanted.object));
        match self.attempt.applied.get(id) {
            Some(WriteAnswer::Done(_)) => {
                self.memory.refused.remove(id);
                None
            }
            Some(WriteAnswer::Failed(failure)) => {
                self.record_failure(id, asked, failure);
                problems.push(describe_failure(id, "apply", failure));
                None
            }
            None => match self.find_pending_failure(id, &asked) {
                Some(failure) => {
                    problems.push(describe_failure(id, "apply", failure));
                    None
                }
                None => Some(wanted.apply(self.owner)),
            },
        }
    }

    /// Writes the input of a request: the owner's generation, its `requestedAt`, and the content. A failed request waits only while its input is unchanged.
    fn describe_request(&self, what: &str) -> String {
        let generation = self.attempt.generation.unwrap_or_default();
        let requested_at = self.attempt.requested_at.as_deref().unwrap_or_default();
        format!("{generation} {requested_at} {what}")
    }

    /// Returns the last failure of this request about the object, if its pause is not over.
    fn find_pending_failure(&self, id: &ObjectId, asked: &str) -> Option<&Failure> {
        let refused = self.memory.refused.get(id)?;
        (refused.asked == asked && self.now < refused.until).then_some(&refused.failure)
    }

    fn record_failure(&mut self, id: &ObjectId, asked: String, failure: &Failure) {
        let times = match self.memory.refused.get(id) {
            Some(before) if before.asked == asked && before.attempt == self.attempt.started => return,
            Some(before) if before.asked == asked => before.times.saturating_add(1),
            _ => 1,
        };
        let pause = PAUSES
            .0
            .saturating_mul(2_u32.saturating_pow(times.saturating_sub(1).min(16)));
        let refused = FailedWrite {
            asked,
            attempt: self.attempt.started,
            failure: failure.clone(),
            until: add_duration(self.now, pause.min(PAUSES.1)),
            times,
        };
        self.memory.refused.insert(id.clone(), refused);
    }

    /// Returns the reads that are needed first, or else the writes. Earlier failures are problems.
    pub(crate) fn plan_writes<'w>(
        &mut self,
        wanted: impl Iterator<Item = &'w Wanted>,
        judge: impl Fn(&Value, &Wanted) -> Verdict,
        withheld: &mut Vec<Withheld>,
        problems: &mut Vec<String>,
    ) -> NextWrites {
        let mut reads = Vec::new();
        let mut releases = Vec::new();
        let mut applies = Vec::new();
        for wanted in wanted {
            match (self.live.get(&wanted.id), self.attempt.applied.get(&wanted.id)) {
                (_, Some(_)) | (Some(Live::Absent | Live::Unserved), None) => {
                    applies.extend(self.write(wanted, problems))
                }
                (None, None) => reads.push(Request::Read(wanted.make_watched())),
                (Some(Live::Failed(failure)), None) => problems.push(describe_failure(&wanted.id, "read", failure)),
                (Some(Live::Present(live)), None) => {
                    let verdict = judge(&live.0, wanted);
                    if let Verdict::Foreign(why) = verdict {
                        problems.push(format!("{} exists and {why}", wanted.id.subject()));
                        if live.view().is_being_deleted() {
                            problems.push(describe_held(&wanted.id, &live.0, "It is left as it is."));
                        }
                        continue;
                    }
                    let release = self.plan_release(wanted.make_watched(), &live.0, problems);
                    let is_taken_over = !self.finalizers.is_checked(&live.0);
                    // Admission lets a tenant set a finalizer until the object has the label. So the label is written together with a proof that no finalizer was added
                    // meanwhile: the version without finalizers.
                    let has_to_wait = is_taken_over && self.finalizers.judges_writes && release.is_some();
                    releases.extend(release);
                    match verdict {
                        Verdict::Differs if has_to_wait => {}
                        Verdict::Differs => {
                            let version = live.view().find_text("/metadata/resourceVersion");
                            let version = version.filter(|_| is_taken_over && self.finalizers.judges_writes);
                            let step = self.write(wanted, problems);
                            applies.extend(step.map(|step| bind_to_version(step, version)));
                        }
                        _ => {
                            self.memory.refused.remove(&wanted.id);
                        }
                    }
                }
            }
            if let Some(Live::Present(live)) = self.live.get(&wanted.id)
                && live.view().is_being_deleted()
            {
                self.record_terminating(&wanted.id, &live.0);
                withheld.push(Withheld {
                    what: wanted.id.subject(),
                    why: "it is being deleted: it is re-created when it is gone".to_owned(),
                });
            }
        }
        if reads.is_empty() {
            // Finalizers are removed first: an object that disappears without them is re-created by the apply.
            releases.extend(applies);
            NextWrites::Apply(releases)
        } else {
            NextWrites::ReadFirst(reads)
        }
    }

    /// Returns the deletions of existing objects that the owner owns and no longer wants, in the order of their ids.
    pub(crate) fn plan_deletions(
        &mut self,
        is_wanted: impl Fn(&ObjectId) -> bool,
        is_ours: impl Fn(&Value) -> bool,
        why: &str,
        problems: &mut Vec<String>,
    ) -> Vec<Delete> {
        let mut deletions = Vec::new();
        for (id, live) in self.live {
            let Live::Present(Object(live)) = live else { continue };
            if is_wanted(id) || !is_ours(live) || ObjectView::new(live).is_being_deleted() {
                continue;
            }
            let asked = self.describe_request("delete");
            match (self.attempt.deleted.get(id), self.find_pending_failure(id, &asked)) {
                (Some(DeleteAnswer::Failed(failure)), _) => {
                    self.record_failure(id, asked, failure);
                    problems.push(describe_failure(id, "delete", failure));
                }
                (Some(DeleteAnswer::Accepted | DeleteAnswer::Absent), _) => {
                    self.memory.refused.remove(id);
                }
                (Some(DeleteAnswer::Changed { .. }), _) => {
                    problems.push(format!("{} was re-created meanwhile", id.subject()));
                }
                (None, Some(failure)) => problems.push(describe_failure(id, "delete", failure)),
                (None, None) => deletions.push(Delete {
                    target: Watched {
                        id: id.clone(),
                        version: "v1".to_owned(),
                    },
                    uid: ObjectView::new(live).find_text("/metadata/uid").map(str::to_owned),
                    // An ownerReference with a uid names the owner, and stays with it. The status of the object changes often, so its version is no precondition.
                    resource_version: None,
                    propagation: Propagation::Background,
                    why: why.to_owned(),
                }),
            }
        }
        deletions
    }
}

impl Memory {
    /// Forgets old failures: after the next try was due and twice the longest pause has passed, they don't count any more.
    pub(crate) fn forget_old(&mut self, now: Timestamp) {
        self.refused
            .retain(|_, refused| now < add_duration(refused.until, PAUSES.1.saturating_mul(2)));
    }

    /// Returns the earliest time at which a failed write is tried again.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.refused.values().map(|refused| refused.until).min()
    }
}

/// Binds a step to one version of an object. On another version, the API server answers with a conflict.
fn bind_to_version(mut step: Request, version: Option<&str>) -> Request {
    if let (Request::Apply(apply), Some(version)) = (&mut step, version)
        && let Some(metadata) = apply.object.0.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("resourceVersion".to_owned(), Value::from(version));
    }
    step
}

/// The next requests for the wanted dependents.
pub(crate) enum NextWrites {
    /// The live objects aren't known yet: these reads come first.
    ReadFirst(Vec<Request>),
    /// These objects are to be written; possibly none.
    Apply(Vec<Request>),
}

/// Checks whether an ownerReference names this owner, with its uid.
pub(crate) fn is_owned_by(object: &Value, kind: &str, owner: &ObjectMeta) -> bool {
    let mut references = ObjectView::new(object).list_views("/metadata/ownerReferences");
    references.any(|reference| {
        reference.find_text("/kind") == Some(kind)
            && owner.uid.is_some()
            && reference.find_text("/uid") == owner.uid.as_deref()
    })
}

/// Describes a failed request to a dependent, for a message.
pub(crate) fn describe_failure(id: &ObjectId, verb: &str, failure: &Failure) -> String {
    format!(
        "{} {verb} failed ({}): {}",
        id.subject(),
        failure.reason,
        failure.message
    )
}

/// Checks whether a live child is as wanted: it has all wanted fields, and this manager owns no others. Fields that others added (an administrator's `suspend`) belong
/// to them.
pub(crate) fn is_as_desired(live: &Value, desired: &Value) -> bool {
    let empty = Map::new();
    let (live, desired) = (ObjectView::new(live), ObjectView::new(desired));
    let map = |object: ObjectView<'_>, path: &str| object.find_map(path).cloned().unwrap_or_default();
    let (live_spec, desired_spec) = (map(live, "/spec"), map(desired, "/spec"));
    let values_agree = desired_spec
        .iter()
        .all(|(key, value)| live_spec.get(key) == Some(value));
    let has_no_more = |path: &str, desired: &Map<String, Value>| {
        live.list_views("/metadata/managedFields")
            .filter(|entry| entry.read_text("/manager") == TENURE_CONTROLLER)
            .filter_map(|entry| entry.find_map(path))
            .flat_map(Map::keys)
            .filter_map(|key| key.strip_prefix("f:"))
            .all(|key| desired.contains_key(key))
    };
    let metadata_agrees = ["labels", "annotations"].into_iter().all(|field| {
        let path = format!("/metadata/{field}");
        let live = live.find_map(&path).unwrap_or(&empty);
        let desired = desired.find_map(&path).unwrap_or(&empty);
        let is_there = desired.iter().all(|(key, value)| live.get(key) == Some(value));
        is_there && has_no_more(&format!("/fieldsV1/f:metadata/f:{field}"), desired)
    });
    values_agree && has_no_more("/fieldsV1/f:spec", &desired_spec) && metadata_agrees
}
