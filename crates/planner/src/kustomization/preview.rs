//! The preview of a Kustomization before a commit: the usual phases, in the mode that writes nothing, with their results as data.
//!
//! The preview leaves out the parts of an object that may not be shown. It makes no decision: `apply` and `prune` say which objects differ.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use structured_merge::FieldPath;
use tenure_api::metadata::APPLY_MODE;
use tenure_api::{ObjectId, ObjectView};

use super::apply_mode::{ApplyMode, describe_change};
use super::types::Snapshot;
use super::{Phase, Plan, deletion, run_apply_phases};
use crate::answer::WriteAnswer;
use crate::fields;
use crate::object::Origin;
use crate::redaction;

/// The expected action for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DifferenceKind {
    /// The object doesn't exist, and would be created.
    Created,
    /// The object would be changed.
    Changed,
    /// The fields of the object would get another owner.
    TakenOver,
    /// The object would be deleted and re-created.
    Recreated,
    /// The object would be deleted.
    Pruned,
    /// The action is unknown for now.
    Unseen,
}

/// An action that an apply or a prune would take on an object, with the content before and after it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The object; unset if a whole kind can't be looked up.
    pub object: Option<ObjectId>,
    /// The kind of the action.
    pub change: DifferenceKind,
    /// The action in words.
    pub words: String,
    /// The place of the object in the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The fields that would be changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<ChangedField>,
    /// The live object, without confidential content and bookkeeping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The object as it would be by the API server's answer, also without confidential content and bookkeeping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// A field of an object that an apply would change.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedField {
    /// The path for people.
    pub path: String,
    /// The place of the field in the repository. Unset if the field isn't in Git.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The path in the form of managedFields.
    #[serde(skip)]
    pub field: FieldPath,
}

impl ChangedField {
    fn from_difference(difference: &fields::Difference) -> Self {
        Self {
            path: difference.path.clone(),
            origin: None,
            field: difference.make_field_path(),
        }
    }
}

impl Difference {
    /// Finds the place of each field in the repository, and names the places in the words.
    pub fn locate_fields(&mut self, locate: impl Fn(&FieldPath) -> Option<Origin>) {
        let Some(object) = self.object.as_ref().filter(|_| !self.fields.is_empty()) else {
            return;
        };
        for field in &mut self.fields {
            field.origin = locate(&field.field);
        }
        let named = self.fields.iter().map(|field| match &field.origin {
            Some(origin) => format!("{} ({origin})", field.path),
            None => format!("{} (not in Git)", field.path),
        });
        self.words = describe_change(&object.subject(), &named.collect::<Vec<_>>());
    }
}

impl Snapshot {
    /// Sets the mode that only detects differences, in place of the mode of the Kustomization. [`preview_changes`] needs this mode.
    pub fn look_only(&mut self) {
        let annotations = self.kustomization.metadata.annotations.get_or_insert_default();
        annotations.insert(APPLY_MODE.to_owned(), "DetectOnly".to_owned());
        self.attempt.apply = Some("DetectOnly".to_owned());
    }
}

/// Previews the actions of a Kustomization, once all necessary facts are known.
///
/// # Errors
/// The plan, whose steps have to be executed first: they read, render and dry-run. If it has no steps, its status says why a preview is impossible.
pub fn preview_changes(snapshot: &Snapshot, now: Timestamp) -> Result<Vec<Difference>, Box<Plan>> {
    if snapshot.kustomization.metadata.deletion_timestamp.is_some() {
        let mut plan = deletion::plan(snapshot, now);
        plan.steps.clear();
        return Err(Box::new(plan));
    }
    find_differences(snapshot, now)
}

fn find_differences(snapshot: &Snapshot, now: Timestamp) -> Phase<Vec<Difference>> {
    let (context, desired, _) = run_apply_phases(snapshot, now)?;
    debug_assert_eq!(context.mode, ApplyMode::DetectOnly, "see Snapshot::look_only");
    let unknown = desired.unknown.iter().map(|(id, message)| Difference {
        object: Some(id.clone()),
        change: DifferenceKind::Unseen,
        words: message.clone(),
        origin: None,
        fields: Vec::new(),
        before: None,
        after: None,
    });
    let detected = context.detected.iter().map(|detected| {
        let id = detected.id.as_ref();
        let wanted = desired.objects.iter().find(|object| Some(&object.target.id) == id);
        let live = id.and_then(|id| context.find_live(id)).and_then(|live| live.object());
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
        // The content of a deleted object isn't known, so only its name is shown.
        let shown = |object: Option<&Value>| object.filter(|_| !is_gone).cloned();
        let (mut before, mut after) = (shown(live), shown(would_be));
        redaction::redact_values(
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
            fields: detected.fields.iter().map(ChangedField::from_difference).collect(),
            before,
            after,
        }
    });
    Ok(detected.chain(unknown).collect())
}

/// Replaces the temporary name, under which an object was created in a dry-run, by the object's own name. Kubernetes also writes the name into labels of some kinds,
/// such as Jobs.
fn rename_trial(mut object: Value, name: &str) -> Value {
    let trial = ObjectView::new(&object).read_text("/metadata/name").to_owned();
    if !trial.is_empty() {
        rename_values(&mut object, &trial, name);
    }
    object
}

fn rename_values(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text == from => to.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rename_values(item, from, to)),
        Value::Object(fields) => fields.values_mut().for_each(|field| rename_values(field, from, to)),
        _ => {}
    }
}

/// Removes the fields that the API server and controllers write, which don't belong in Git.
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
