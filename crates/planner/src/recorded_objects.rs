//! Objects that a status records by uid before anything changes them: the HelmReleases of a Package, and the ArtifactGenerator of a PackageSource.
//!
//! A record is stored before its object is created. Until the uid is known, the record has the digest of a random proof, and the new object has the proof as an
//! annotation. A reader of the status can't compute the proof. An object with another uid is foreign, whatever its labels and ownerReferences say.

mod comparison;
mod retries;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tenure_api::metadata::CREATION_PROOF;
use tenure_api::package::PACKAGE_CONTROLLER;
use tenure_api::{ObjectId, ObjectMeta, ObjectView};
use tenure_tenancy::record::digest_proof;

use crate::answer::{Answer, DeleteAnswer, Failure, ImpliedState, Live, WriteAnswer};
use crate::object::{Object, Origin};
use crate::plan::{Apply, Request, Watched};

pub(crate) use comparison::list_added_managers;
pub use retries::{FailedRequest, Retries};

/// The most digests of one record. A killed process may leave one whose request arrives late.
const MOST_DIGESTS: usize = 4;

/// A step of a plan for an object that records the objects that it makes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// A request to the cluster.
    Request(Request),
    /// Replacement of an object (PUT). Answer: the attempt's `replaced`; the object also becomes its `live`.
    Replace(Replace),
}

impl crate::plan::Step for Step {
    fn is_public(&self) -> bool {
        match self {
            Self::Request(request) => request.is_public(),
            Self::Replace(_) => false,
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request(request) => request.fmt(formatter),
            Self::Replace(replace) => write!(formatter, "replace {}: {}", replace.target.id.subject(), replace.why),
        }
    }
}

/// A replacement of an object. The object carries uid and resourceVersion of the examined object, so that no other object is replaced.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replace {
    /// The object, and the version to write it with.
    pub target: Watched,
    /// The whole object, without its status.
    pub object: Object,
    /// Field manager.
    pub manager: String,
    /// The reason for the write.
    pub why: String,
}

/// One attempt to reconcile an object that records others: from a trigger until [`crate::Next::Done`].
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
    /// Answers to creations.
    #[serde(default)]
    pub created: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to replacements.
    #[serde(default)]
    pub replaced: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to deletes.
    #[serde(default)]
    pub deleted: BTreeMap<ObjectId, DeleteAnswer>,
}

impl Attempt {
    /// Starts a new attempt for the object with this metadata.
    #[must_use]
    pub fn begin(now: Timestamp, metadata: &ObjectMeta) -> Self {
        Self {
            started: now,
            generation: metadata.generation,
            requested_at: crate::outcome::read_requested_at(metadata),
            applied: BTreeMap::new(),
            created: BTreeMap::new(),
            replaced: BTreeMap::new(),
            deleted: BTreeMap::new(),
        }
    }

    /// Checks whether the object has changed since the start, so that another attempt has to begin.
    #[must_use]
    pub fn is_overtaken(&self, metadata: &ObjectMeta) -> bool {
        self.generation != metadata.generation || self.requested_at != crate::outcome::read_requested_at(metadata)
    }

    /// Takes the answer to a request of this attempt.
    pub fn take(&mut self, answer: Answer) -> ImpliedState {
        match answer {
            Answer::Live(id, answer) => Some((id, answer)),
            Answer::Applied(id, answer) => note_write(&mut self.applied, id, answer),
            Answer::Created(id, answer) => note_write(&mut self.created, id, answer),
            Answer::Deleted(id, answer) => {
                let is_gone = answer == DeleteAnswer::Absent;
                DeleteAnswer::insert_counted(&mut self.deleted, id.clone(), answer);
                is_gone.then_some((id, Live::Absent))
            }
            // A plan of such an object sends no other request.
            Answer::Kind(..)
            | Answer::DryRun(..)
            | Answer::Tried(..)
            | Answer::Disowned(..)
            | Answer::Released(..)
            | Answer::Claims(..)
            | Answer::TriedDelete(..)
            | Answer::TakenOver(..) => None,
        }
    }

    /// Takes the answer to a replacement of this attempt.
    pub fn take_replaced(&mut self, id: ObjectId, answer: WriteAnswer) -> ImpliedState {
        note_write(&mut self.replaced, id, answer)
    }

    /// Returns the failed write of an object in this attempt.
    pub(crate) fn find_failed_write(&self, id: &ObjectId) -> Option<(&'static str, &Failure)> {
        let answers = [
            ("create", &self.created),
            ("replace", &self.replaced),
            ("apply", &self.applied),
        ];
        answers.into_iter().find_map(|(verb, answers)| match answers.get(id) {
            Some(WriteAnswer::Failed(failure)) => Some((verb, failure)),
            _ => None,
        })
    }

    /// Checks whether this attempt has written an object.
    pub(crate) fn has_written(&self, id: &ObjectId) -> bool {
        self.find_written(id).is_some()
    }

    /// Returns the object as the answer to the last write of this attempt has it. A later state may be of another client.
    pub(crate) fn find_written(&self, id: &ObjectId) -> Option<&Value> {
        let mut answers = [&self.replaced, &self.created, &self.applied].into_iter();
        answers.find_map(|answers| match answers.get(id) {
            Some(WriteAnswer::Done(object)) => Some(&object.0),
            _ => None,
        })
    }
}

fn note_write(answers: &mut BTreeMap<ObjectId, WriteAnswer>, id: ObjectId, answer: WriteAnswer) -> ImpliedState {
    answers.insert(id.clone(), answer.clone());
    match answer {
        WriteAnswer::Done(object) => Some((id, Live::Present(object))),
        WriteAnswer::Failed(_) => None,
    }
}

/// The record of an object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Record<'a> {
    pub(crate) uid: Option<&'a str>,
    pub(crate) proof_digests: &'a [String],
}

/// The relation of a live object to its record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ownership<'a> {
    /// The object isn't read yet.
    Unread,
    /// The object could not be read.
    Unknown(&'a Failure),
    /// The object does not exist.
    Missing,
    /// The object is the recorded one, with this uid.
    Ours(&'a str),
    /// The object is another one.
    Foreign,
}

/// Judges whether a live object is the recorded one.
pub(crate) fn judge_ownership<'a>(record: Option<Record<'_>>, live: Option<&'a Live>) -> Ownership<'a> {
    let object = match live {
        None => return Ownership::Unread,
        Some(Live::Failed(failure)) => return Ownership::Unknown(failure),
        Some(Live::Absent | Live::Unserved) => return Ownership::Missing,
        Some(Live::Present(object)) => object.view(),
    };
    let (Some(record), Some(uid)) = (record, object.find_text("/metadata/uid")) else {
        return Ownership::Foreign;
    };
    let is_ours = match record.uid {
        Some(recorded) => recorded == uid,
        None => {
            let proof = object.find_annotation(CREATION_PROOF).filter(|proof| !proof.is_empty());
            proof.is_some_and(|proof| record.proof_digests.contains(&digest_proof(proof)))
        }
    };
    if is_ours {
        Ownership::Ours(uid)
    } else {
        Ownership::Foreign
    }
}

/// Derives the proof for one object from secret parts, such as the random text of the process. The proof of one object doesn't show the proof of another.
pub(crate) fn derive_proof(secrets: &[&str], id: &ObjectId) -> String {
    let mut hash = Sha256::new();
    let id = id.to_string();
    for part in secrets.iter().copied().chain([id.as_str()]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex::encode(hash.finalize())
}

/// Adds the digest of a proof to a record, and drops the oldest one beyond the bound.
pub(crate) fn add_digest(digests: &mut Vec<String>, proof: &str) {
    let digest = digest_proof(proof);
    if !digests.contains(&digest) {
        digests.push(digest);
        let surplus = digests.len().saturating_sub(MOST_DIGESTS);
        digests.drain(..surplus);
    }
}

/// Returns the step that creates an object with its proof.
pub(crate) fn make_creation(id: &ObjectId, object: &Value, proof: &str, origin: &str) -> Step {
    let mut object = object.clone();
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let annotations = metadata.map(|metadata| metadata.entry("annotations").or_insert_with(|| json!({})));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.insert(CREATION_PROOF.to_owned(), json!(proof));
    }
    Step::Request(Request::Create(make_apply(id, object, origin)))
}

/// Returns the apply of an object by the manager for Packages.
pub(crate) fn make_apply(id: &ObjectId, object: Value, origin: &str) -> Apply {
    Apply {
        id: id.clone(),
        object: Object(object),
        origin: Origin {
            path: origin.to_owned(),
            line: 0,
        },
        manager: PACKAGE_CONTROLLER.to_owned(),
        force: true,
        confidential: false,
    }
}

/// The labels and annotations that this module's callers own on a generated object. Other keys belong to others.
pub(crate) struct OwnKeys {
    pub(crate) labels: &'static [&'static str],
    pub(crate) annotations: &'static [&'static str],
}

/// Returns the whole object that replaces a live one: the planned spec with `suspend` of the live object, the planned labels and annotations beside those of others,
/// the planned ownerReferences, and the finalizers of the live object.
pub(crate) fn make_replacement(live: &Value, planned: &Value, keys: &OwnKeys) -> Value {
    let (live, wanted) = (ObjectView::new(live), ObjectView::new(planned));
    let mut metadata = Map::new();
    for field in ["name", "namespace"] {
        metadata.insert(field.to_owned(), json!(wanted.read_text(&format!("/metadata/{field}"))));
    }
    for field in ["uid", "resourceVersion", "finalizers"] {
        if let Some(value) = live.find(&format!("/metadata/{field}")) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    if let Some(owners) = wanted.find("/metadata/ownerReferences") {
        metadata.insert("ownerReferences".to_owned(), owners.clone());
    }
    for (field, own) in [("labels", keys.labels), ("annotations", keys.annotations)] {
        let path = format!("/metadata/{field}");
        let mut entries = live.find_map(&path).cloned().unwrap_or_default();
        entries.retain(|key, _| !own.contains(&key.as_str()));
        entries.extend(wanted.find_map(&path).cloned().unwrap_or_default());
        if !entries.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(entries));
        }
    }
    let mut spec = wanted.find_map("/spec").cloned().unwrap_or_default();
    if let Some(suspend) = live.find("/spec/suspend").filter(|suspend| suspend.is_boolean()) {
        spec.insert("suspend".to_owned(), suspend.clone());
    }
    json!({
        "apiVersion": wanted.read_text("/apiVersion"),
        "kind": wanted.read_text("/kind"),
        "metadata": metadata,
        "spec": spec,
    })
}

/// Checks whether a live object is as planned. Returns the first part that differs.
pub(crate) fn find_drift(live: &Value, planned: &Value, keys: &OwnKeys) -> Option<String> {
    let replacement = make_replacement(live, planned, keys);
    let (live, wanted) = (ObjectView::new(live), ObjectView::new(&replacement));
    let empty = Value::Object(Map::new());
    let spec = |object: ObjectView<'_>| object.find("/spec").cloned().unwrap_or_else(|| empty.clone());
    let (live_spec, wanted_spec) = (spec(live), spec(wanted));
    if let Some(path) = comparison::find_difference(&live_spec, &wanted_spec, "spec") {
        return Some(path);
    }
    let none = Value::Array(Vec::new());
    for (field, absent) in [("labels", &empty), ("annotations", &empty), ("ownerReferences", &none)] {
        let path = format!("/metadata/{field}");
        let (live, wanted) = (live.find(&path).unwrap_or(absent), wanted.find(&path).unwrap_or(absent));
        if let Some(path) = comparison::find_difference(live, wanted, &format!("metadata.{field}")) {
            return Some(path);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: OwnKeys = OwnKeys {
        labels: &["own"],
        annotations: &[],
    };

    fn live(uid: &str, proof: &str) -> Live {
        Live::Present(Object(
            json!({ "metadata": { "uid": uid, "annotations": { CREATION_PROOF: proof } } }),
        ))
    }

    #[test]
    fn uid_or_unspent_proof_makes_an_object_ours() {
        let digests = [digest_proof("secret")];
        let record = |uid| {
            Some(Record {
                uid,
                proof_digests: &digests,
            })
        };
        assert_eq!(
            judge_ownership(record(Some("1")), Some(&live("1", ""))),
            Ownership::Ours("1")
        );
        assert_eq!(
            judge_ownership(record(None), Some(&live("2", "secret"))),
            Ownership::Ours("2")
        );
        // A known uid ends the meaning of the proof.
        assert_eq!(
            judge_ownership(record(Some("1")), Some(&live("2", "secret"))),
            Ownership::Foreign
        );
        assert_eq!(
            judge_ownership(record(None), Some(&live("2", "guess"))),
            Ownership::Foreign
        );
        assert_eq!(judge_ownership(record(None), Some(&live("2", ""))), Ownership::Foreign);
        assert_eq!(judge_ownership(None, Some(&live("2", "secret"))), Ownership::Foreign);
        assert_eq!(judge_ownership(None, None), Ownership::Unread);
        assert_eq!(judge_ownership(None, Some(&Live::Absent)), Ownership::Missing);
    }

    #[test]
    fn proof_of_one_object_is_not_that_of_another() {
        let id = |name: &str| ObjectId {
            namespace: "a".to_owned(),
            name: name.to_owned(),
            group: "g".to_owned(),
            kind: "K".to_owned(),
        };
        assert_ne!(derive_proof(&["r"], &id("x")), derive_proof(&["r"], &id("y")));
        assert_ne!(derive_proof(&["r"], &id("x")), derive_proof(&["q"], &id("x")));
        assert_eq!(derive_proof(&["r"], &id("x")), derive_proof(&["r"], &id("x")));
    }

    #[test]
    fn record_keeps_the_last_digests() {
        let mut digests = Vec::new();
        for proof in ["a", "b", "b", "c", "d", "e"] {
            add_digest(&mut digests, proof);
        }
        assert_eq!(digests, ["b", "c", "d", "e"].map(digest_proof));
    }

    #[test]
    fn replacement_keeps_suspend_and_what_others_own() {
        let planned = json!({
            "apiVersion": "v2", "kind": "K",
            "metadata": { "name": "a", "namespace": "n", "labels": { "new": "1" } },
            "spec": { "interval": "5m0s" },
        });
        let live = json!({
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "finalizers": ["f"], "generation": 3,
                "labels": { "own": "old", "theirs": "1" }, "annotations": { "x": "y" }, "ownerReferences": [{ "uid": "o" }],
            },
            "spec": { "interval": "1m0s", "suspend": true, "postRenderers": [] },
            "status": {},
        });
        let replacement = make_replacement(&live, &planned, &KEYS);
        assert_eq!(
            replacement,
            json!({
                "apiVersion": "v2", "kind": "K",
                "metadata": {
                    "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "finalizers": ["f"],
                    "labels": { "new": "1", "theirs": "1" }, "annotations": { "x": "y" },
                },
                "spec": { "interval": "5m0s", "suspend": true },
            })
        );
        assert_eq!(find_drift(&live, &planned, &KEYS).as_deref(), Some("spec.interval"));
        assert_eq!(find_drift(&replacement, &planned, &KEYS), None);
    }
}
