//! The objects that a Surface or a Tenant keeps: what is to be read, written and deleted so that they are there and no others.
//! They are written by the controller itself, owned by the object that wants them, and collected with it.
//!
//! Refuses to touch what merely bears the right name or label: its owner is told by an ownerReference with the owner's uid.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::metadata::TENURE_CONTROLLER;
use tenure_api::{ObjectId, ObjectMeta};

use crate::answer::{DeleteAnswer, Failure, Live, WriteAnswer};
use crate::object::{Object, Origin};
use crate::plan::{Apply, Delete, Step, Watched, Withheld};

/// One attempt to reconcile an object with dependents: from a trigger until [`crate::Next::Done`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// When it began.
    pub started: Timestamp,
    /// Generation of the object when it began.
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
    /// A new attempt for the object with this metadata.
    #[must_use]
    pub fn begin(now: Timestamp, metadata: &ObjectMeta) -> Self {
        Self {
            started: now,
            generation: metadata.generation,
            requested_at: crate::ending::requested_at(metadata),
            applied: BTreeMap::new(),
            deleted: BTreeMap::new(),
        }
    }
}

/// An object that is to be.
pub(crate) struct Wanted {
    pub(crate) id: ObjectId,
    pub(crate) version: &'static str,
    pub(crate) object: Value,
}

impl Wanted {
    pub(crate) fn watched(&self) -> Watched {
        Watched {
            id: self.id.clone(),
            version: self.version.to_owned(),
        }
    }

    /// The step that writes it; `origin` names the kind that wants it.
    pub(crate) fn apply(&self, origin: &str) -> Step {
        Step::Apply(Apply {
            id: self.id.clone(),
            object: Object(self.object.clone()),
            origin: Origin {
                path: origin.to_owned(),
                line: 0,
            },
            manager: TENURE_CONTROLLER.to_owned(),
            force: true,
        })
    }
}

/// What is to be done with a live object of a wanted one's name.
pub(crate) enum Verdict {
    /// Nothing: it is as wanted.
    AsWanted,
    /// It is to be written.
    Differs,
    /// It can't be made as wanted; why, and what to do about it.
    Foreign(&'static str),
}

/// What is known of an owner's dependents.
pub(crate) struct Dependents<'a> {
    /// Kind of the owner, `Surface`.
    pub(crate) owner: &'static str,
    pub(crate) live: &'a BTreeMap<ObjectId, Live>,
    pub(crate) attempt: &'a Attempt,
}

impl Dependents<'_> {
    /// The reads that are needed first, or else the writes; what failed before is a problem.
    pub(crate) fn writes<'w>(
        &self,
        wanted: impl Iterator<Item = &'w Wanted>,
        judge: impl Fn(&Value, &Wanted) -> Verdict,
        withheld: &mut Vec<Withheld>,
        problems: &mut Vec<String>,
    ) -> Writes {
        let mut reads = Vec::new();
        let mut applies = Vec::new();
        for wanted in wanted {
            match (self.live.get(&wanted.id), self.attempt.applied.get(&wanted.id)) {
                (_, Some(WriteAnswer::Failed(failure))) => problems.push(failed(&wanted.id, "apply", failure)),
                (_, Some(WriteAnswer::Done(_))) => {}
                (None, None) => reads.push(Step::Read(wanted.watched())),
                (Some(Live::Failed(failure)), None) => problems.push(failed(&wanted.id, "read", failure)),
                (Some(Live::Absent), None) => applies.push(wanted.apply(self.owner)),
                (Some(Live::Present(live)), None) => match judge(&live.0, wanted) {
                    Verdict::Foreign(why) => problems.push(format!("{} exists and {why}", wanted.id.subject())),
                    _ if is_ending(&live.0) => withheld.push(Withheld {
                        what: wanted.id.subject(),
                        why: "it is being deleted: made again when it is gone".to_owned(),
                    }),
                    Verdict::Differs => applies.push(wanted.apply(self.owner)),
                    Verdict::AsWanted => {}
                },
            }
        }
        if reads.is_empty() {
            Writes::Apply(applies)
        } else {
            Writes::ReadFirst(reads)
        }
    }

    /// The deletions of what is there, is the owner's and is no longer wanted, in the order of their ids.
    pub(crate) fn deletions(
        &self,
        is_wanted: impl Fn(&ObjectId) -> bool,
        is_ours: impl Fn(&Value) -> bool,
        why: &str,
        problems: &mut Vec<String>,
    ) -> Vec<Delete> {
        let mut deletions = Vec::new();
        for (id, live) in self.live {
            let Live::Present(Object(live)) = live else { continue };
            if is_wanted(id) || !is_ours(live) || is_ending(live) {
                continue;
            }
            match self.attempt.deleted.get(id) {
                Some(DeleteAnswer::Failed(failure)) => problems.push(failed(id, "delete", failure)),
                Some(DeleteAnswer::Accepted | DeleteAnswer::Absent) => {}
                None => deletions.push(Delete {
                    target: Watched {
                        id: id.clone(),
                        version: "v1".to_owned(),
                    },
                    uid: live.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned),
                    propagation: "Background".to_owned(),
                    why: why.to_owned(),
                }),
            }
        }
        deletions
    }
}

/// What is to be done about what is wanted.
pub(crate) enum Writes {
    /// It isn't known yet what is there.
    ReadFirst(Vec<Step>),
    /// These are to be written; possibly none.
    Apply(Vec<Step>),
}

/// Whether an ownerReference names this owner, with its uid.
pub(crate) fn is_owned_by(object: &Value, kind: &str, owner: &ObjectMeta) -> bool {
    object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|reference| {
            reference.get("kind").and_then(Value::as_str) == Some(kind)
                && owner.uid.is_some()
                && reference.get("uid").and_then(Value::as_str) == owner.uid.as_deref()
        })
}

/// A label's value.
pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels")?.get(key)?.as_str()
}

/// A failed request to a dependent, for a message.
pub(crate) fn failed(id: &ObjectId, verb: &str, failure: &Failure) -> String {
    format!(
        "{} {verb} failed ({}): {}",
        id.subject(),
        failure.reason,
        failure.message
    )
}

fn is_ending(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}
