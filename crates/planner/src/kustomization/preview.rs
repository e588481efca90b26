//! What a Kustomization would do, for whoever asks before it is committed: the same phases as always, in the mode that writes nothing, and what
//! they found as data.
//!
//! Owns what of an object may be shown. Refuses to decide: which objects differ is `apply`'s and `prune`'s to say.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tenure_api::ObjectId;
use tenure_api::metadata::APPLY_MODE;

use super::mode::ApplyMode;
use super::types::Snapshot;
use super::{Phase, Plan, deletion, settle};
use crate::answer::WriteAnswer;
use crate::mask;
use crate::object::Origin;

/// What would be done about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DifferenceKind {
    /// It isn't there, and would be made.
    Created,
    /// It would be changed.
    Changed,
    /// It would get another owner of its fields.
    TakenOver,
    /// It would be deleted and made anew.
    Recreated,
    /// It would be deleted.
    Pruned,
    /// What would become of it can't be told now.
    Unseen,
}

/// Something that would be done.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// About which object; none where a whole kind can't be looked at.
    pub object: Option<ObjectId>,
    /// What.
    pub change: DifferenceKind,
    /// The same in words.
    pub words: String,
    /// Where it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The object as it is; without what may be in no text, and without bookkeeping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The object as the API server says that it would be; likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

impl Snapshot {
    /// Looks only, whatever the Kustomization says: [`preview`] wants nothing else.
    pub fn look_only(&mut self) {
        let annotations = self.kustomization.metadata.annotations.get_or_insert_default();
        annotations.insert(APPLY_MODE.to_owned(), "DetectOnly".to_owned());
        self.attempt.apply = Some("DetectOnly".to_owned());
    }
}

/// What a Kustomization would do, once everything is known that it takes.
///
/// # Errors
/// The plan, whose steps are to be carried out first: they read, render and dry-run. Without steps its status says why nothing can be told.
pub fn preview(snapshot: &Snapshot, now: Timestamp) -> Result<Vec<Difference>, Box<Plan>> {
    if snapshot.kustomization.metadata.deletion_timestamp.is_some() {
        let mut plan = deletion::plan(snapshot, now);
        plan.steps.clear();
        return Err(Box::new(plan));
    }
    look(snapshot, now)
}

fn look(snapshot: &Snapshot, now: Timestamp) -> Phase<Vec<Difference>> {
    let (context, desired, _) = settle(snapshot, now)?;
    debug_assert_eq!(context.mode, ApplyMode::DetectOnly, "see Snapshot::look_only");
    let unknown = desired.unknown.iter().map(|(id, message)| Difference {
        object: Some(id.clone()),
        change: DifferenceKind::Unseen,
        words: message.clone(),
        origin: None,
        before: None,
        after: None,
    });
    let detected = context.detected.iter().map(|detected| {
        let id = detected.id.as_ref();
        let wanted = desired.objects.iter().find(|object| Some(&object.target.id) == id);
        let live = id.and_then(|id| context.live(id)).and_then(|live| live.object());
        let answers = &snapshot.attempt;
        let answered = id.and_then(|id| answers.tried.get(id).or_else(|| answers.dry_runs.get(id)));
        let would_be = match answered {
            Some(WriteAnswer::Done(object)) => Some(&object.0),
            _ => wanted.map(|wanted| &wanted.object.0),
        };
        let is_gone = detected.what == DifferenceKind::Pruned;
        // Of what goes it isn't known what stands in it: it is named alone.
        let shown = |object: Option<&Value>| object.filter(|_| !is_gone).cloned();
        let (mut before, mut after) = (shown(live), shown(would_be));
        mask::mask(
            before.as_mut(),
            after.as_mut(),
            id.is_some_and(|id| desired.holds_values_of_others(id)),
        );
        for object in [&mut before, &mut after].into_iter().flatten() {
            leave_out_bookkeeping(object);
        }
        Difference {
            object: detected.id.clone(),
            change: detected.what,
            words: detected.line.clone(),
            origin: wanted.map(|wanted| wanted.origin.clone()),
            before,
            after,
        }
    });
    Ok(detected.chain(unknown).collect())
}

/// Leaves out what the API server and controllers write: nobody wants it from Git.
fn leave_out_bookkeeping(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "managedFields",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "selfLink",
        ] {
            metadata.remove(field);
        }
    }
}
