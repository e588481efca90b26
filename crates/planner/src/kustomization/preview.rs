//! What a Kustomization would do, for whoever asks before it is committed: the same phases as always, in the mode that writes nothing, and what
//! they found as data.
//!
//! Owns what of an object may be shown. Refuses to decide: which objects differ is `apply`'s and `prune`'s to say.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tenure_api::metadata::APPLY_MODE;
use tenure_api::{ObjectId, ObjectView};

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
        let tried = id.and_then(|id| match answers.tried.get(id) {
            Some(WriteAnswer::Done(object)) => Some(rename_trial(object.0.clone(), &id.name)),
            _ => None,
        });
        let answered = id.and_then(|id| answers.dry_runs.get(id));
        let would_be = match (&tried, answered) {
            (Some(object), _) => Some(object),
            (None, Some(WriteAnswer::Done(object))) => Some(&object.0),
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

/// Gives an object that was created in a dry-run, under another name, its own name. Kubernetes writes the name into labels of some kinds, such as Jobs.
fn rename_trial(mut object: Value, name: &str) -> Value {
    let trial = ObjectView::of(&object).read_text("/metadata/name").to_owned();
    if !trial.is_empty() {
        rename(&mut object, &trial, name);
    }
    object
}

fn rename(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text == from => to.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, from, to)),
        Value::Object(fields) => fields.values_mut().for_each(|field| rename(field, from, to)),
        _ => {}
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_trial_has_the_objects_own_name() {
        let trial = json!({
            "kind": "Job", "metadata": { "name": "once-x7", "labels": { "job-name": "once-x7", "app": "once-x7-db" } },
            "spec": { "template": { "spec": { "containers": [{ "name": "once-x7" }] } } },
        });
        assert_eq!(
            rename_trial(trial, "once"),
            json!({
                "kind": "Job", "metadata": { "name": "once", "labels": { "job-name": "once", "app": "once-x7-db" } },
                "spec": { "template": { "spec": { "containers": [{ "name": "once" }] } } },
            })
        );
        assert_eq!(rename_trial(json!({ "a": "" }), "once"), json!({ "a": "" }));
    }
}
