//! The next action for one object of a stage, by its known state: read, dry-run, take over, apply, wait, or leave it.
//!
//! This module decides about one object, and looks at no other object. [`super::apply`] decides about a stage as a whole.

use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::metadata::{RECONCILE, SSA};

use super::apply_mode::ApplyMode;
use super::contested_fields;
use super::context::Context;
use super::desired::DesiredObject;
use super::field_takeover;
use super::ownership::{self, KeptObject, Ownership};
use super::recreate::{self, Recreation};
use super::types::{DriftedField, MatchedDigests};
use super::unmanaged_annotations;
use crate::answer::{DeleteAnswer, Failure, Live, Reason, WriteAnswer};
use crate::comparable::select_comparable;
use crate::fields;
use crate::object::Object;
use crate::plan::{Delete, TakeOver};

/// The next action for one object.
pub(super) enum ObjectAction {
    Nothing,
    Skip(String),
    Read,
    DryRun,
    Try,
    TryDelete(Delete),
    TakeOver(TakeOver),
    Apply(Change),
    Delete(Delete),
    WaitGone,
    /// The owner of the object, named here, may be about to drop it.
    WaitOwner(String),
    /// Another Kustomization owns the object.
    Kept(KeptObject),
    /// The object was applied, and kubectl changed it at the same time. The plan looks at the object again.
    LookAgain,
    Refused(Failure),
}

/// An apply of one object: its content, and the differences for the report.
#[derive(Default)]
pub(super) struct Change {
    pub(super) forced_back: Vec<DriftedField>,
    /// The content to apply instead of the whole desired object, if some of its fields are left to other writers.
    pub(super) payload: Option<Object>,
    /// The fields that would change, for [`ApplyMode::DetectOnly`](super::apply_mode::ApplyMode::DetectOnly).
    pub(super) fields: Vec<fields::Difference>,
}

/// Finds the next action for one object from its known state.
pub(super) fn choose_action(context: &mut Context<'_>, object: &DesiredObject) -> ObjectAction {
    let id = &object.target.id;
    let attempt = &context.snapshot.attempt;
    let Some(live) = context.find_live(id) else {
        return find_first_action(context, object);
    };
    if let Some(why) = find_skip_reason(&object.object.0, live.object()) {
        return ObjectAction::Skip(why);
    }
    match attempt.applied.get(id) {
        Some(WriteAnswer::Done(answer)) => {
            // A settled object would stay unchanged: its watch reports no state that the answer has shown already. This is only for fields that some manager has: an
            // annotation of kubectl that Git itself has would come back each time.
            if take_over(context, object, &answer.0).is_some_and(|(_, entries)| !entries.is_empty()) {
                context.memory.settled.remove(id);
                return ObjectAction::LookAgain;
            }
            record_settled(context, object, &answer.0);
            return ObjectAction::Nothing;
        }
        Some(WriteAnswer::Failed(failure)) => return ObjectAction::Refused(failure.clone()),
        None => {}
    }
    if let Live::Failed(failure) = live {
        return ObjectAction::Refused(failure.clone());
    }
    let live_object = match attempt.deleted.get(id) {
        // The read is from before the deletion.
        Some(DeleteAnswer::Absent) => None,
        _ => live.object(),
    };
    if live_object.is_some_and(|live| ObjectView::new(live).is_being_deleted()) {
        return ObjectAction::WaitGone;
    }
    if live_object.is_some() {
        match ownership::find_ownership(context, id) {
            Ownership::Free => {}
            Ownership::Awaited(owner) => return ObjectAction::WaitOwner(owner),
            Ownership::Kept(kept) => return ObjectAction::Kept(kept),
        }
    }
    if let Some(live) = live_object {
        if is_settled(context, object, live) {
            return ObjectAction::Nothing;
        }
        // The mode that only detects drift contends with no other writer, and reports the difference.
        if context.mode != ApplyMode::DetectOnly
            && let Some(why) = contested_fields::find_back_off(context, id)
        {
            return ObjectAction::Skip(why);
        }
    }
    match attempt.deleted.get(id) {
        Some(DeleteAnswer::Failed(failure)) => return ObjectAction::Refused(failure.clone()),
        // The object has changed since the checks before its deletion, so their results don't count.
        Some(DeleteAnswer::Changed { .. }) => {
            return ObjectAction::Refused(recreate::make_conflict());
        }
        // The conflicting object is gone. Its successor needs no dry-run: the refused one has shown everything.
        Some(DeleteAnswer::Accepted | DeleteAnswer::Absent) if live_object.is_none() => {
            return ObjectAction::Apply(Change::default());
        }
        Some(DeleteAnswer::Accepted | DeleteAnswer::Absent) => return ObjectAction::WaitGone,
        None => {}
    }
    if let Some(WriteAnswer::Done(_)) = attempt.taken_over.get(id)
        && context.memory.looked_again.insert(id.clone())
    {
        // Only a further dry-run shows which additions of others the apply will remove.
        return ObjectAction::DryRun;
    }
    if attempt.unseen.contains(id) && is_about_another(live_object, attempt.dry_runs.get(id)) {
        return ObjectAction::DryRun;
    }
    let answer = match attempt.dry_runs.get(id) {
        None => return ObjectAction::DryRun,
        Some(WriteAnswer::Failed(failure)) => {
            let Some(live) = live_object else {
                return ObjectAction::Refused(failure.clone());
            };
            return match recreate::decide_recreation(context, object, live, failure) {
                Recreation::Refused => find_todo_after_refusal(context, object, live, failure),
                Recreation::Try => ObjectAction::Try,
                Recreation::TryDelete(delete) => ObjectAction::TryDelete(delete),
                Recreation::Fails(failure) => ObjectAction::Refused(failure),
                Recreation::Delete(delete) => ObjectAction::Delete(delete),
            };
        }
        Some(WriteAnswer::Done(answer)) => &answer.0,
    };
    let Some(live) = live_object else {
        // Another client has created the object since it was looked up. An object that doesn't exist yet has no version, because a dry-run stores nothing.
        let is_there = find_version(answer).is_some();
        if is_there && context.memory.read_after_all.insert(id.clone()) {
            return ObjectAction::Read;
        }
        return ObjectAction::Apply(Change::default());
    };
    let (without, with) = (
        context.ignored.strip_ignored(answer, live),
        context.ignored.strip_ignored(answer, answer),
    );
    let (before, after) = (select_comparable(&without), select_comparable(&with));
    let take_over = take_over(context, object, live);
    let taken_over = attempt.taken_over.get(id);
    if let Some(WriteAnswer::Failed(failure)) = taken_over {
        return ObjectAction::Refused(failure.clone());
    }
    if (taken_over.is_some() || take_over.is_none()) && before == after {
        record_settled(context, object, live);
        return ObjectAction::Nothing;
    }
    if context.mode == ApplyMode::DetectOnly {
        return ObjectAction::Apply(Change {
            fields: fields::find_differences(&before.to_value(), &after.to_value()),
            ..Change::default()
        });
    }
    let forced_back = contested_fields::find_changes(context, object, live, (&before, &after));
    if let Some(why) = contested_fields::check_contested(context, id, &forced_back) {
        return ObjectAction::Skip(why);
    }
    match take_over {
        Some((step, entries)) if taken_over.is_none() => {
            contested_fields::carry_drift_record(context, id, &forced_back, entries);
            ObjectAction::TakeOver(step)
        }
        _ => ObjectAction::Apply(Change {
            payload: context.ignored.find_part_to_apply(&object.object, live, answer),
            forced_back,
            fields: Vec::new(),
        }),
    }
}

/// Decides about an object after its dry-run was refused. The fields of another manager stay in the object until they are taken over, and can make it
/// invalid: `value` of a variable beside the new `valueFrom`.
fn find_todo_after_refusal(
    context: &mut Context<'_>,
    object: &DesiredObject,
    live: &Value,
    failure: &Failure,
) -> ObjectAction {
    let id = &object.target.id;
    let is_new = !context.snapshot.attempt.taken_over.contains_key(id);
    let may_help = is_new && failure.reason == Reason::Invalid && context.mode != ApplyMode::DetectOnly;
    match take_over(context, object, live) {
        Some((step, entries)) if may_help => {
            contested_fields::carry_drift_record(context, id, &[], entries);
            ObjectAction::TakeOver(step)
        }
        _ => ObjectAction::Refused(failure.clone()),
    }
}

/// Finds the first action for an object that was not read yet. An object outside the inventory is probably new, so it gets a dry-run without a read. An object is
/// read first if the inventory names it, if this attempt has sent a request about it, or if an annotation makes the apply depend on its existence.
fn find_first_action(context: &Context<'_>, object: &DesiredObject) -> ObjectAction {
    let id = &object.target.id;
    let attempt = &context.snapshot.attempt;
    let is_touched = attempt.dry_runs.contains_key(id)
        || attempt.tried.contains_key(id)
        || attempt.applied.contains_key(id)
        || attempt.taken_over.contains_key(id)
        || attempt.deleted.contains_key(id);
    let view = object.object.view();
    let depends_on_it = view.has_annotation(SSA, "IfNotPresent") || find_skip_reason(&object.object.0, None).is_some();
    if is_touched || depends_on_it || context.is_named(id) {
        ObjectAction::Read
    } else {
        ObjectAction::DryRun
    }
}

/// Checks whether the object existed at a dry-run that was sent before the first read. Then the dry-run is repeated, since the live object may have changed in
/// between.
fn is_about_another(live: Option<&Value>, dry_run: Option<&WriteAnswer>) -> bool {
    match (live, dry_run) {
        (Some(_), _) => true,
        (None, Some(WriteAnswer::Done(answer))) => find_version(&answer.0).is_some(),
        (None, _) => false,
    }
}

/// Returns the take-over that a live object needs, and the entries of managedFields that it takes.
fn take_over(context: &Context<'_>, object: &DesiredObject, live: &Value) -> Option<(TakeOver, Vec<Value>)> {
    let merge = object.object.view().has_annotation(SSA, "Merge");
    if merge {
        return None;
    }
    field_takeover::find_take_over(
        &context.snapshot.settings,
        object.target.clone(),
        live,
        &object.object.0,
    )
}

/// Returns the resourceVersion of an object, if it has one.
pub(super) fn find_version(live: &Value) -> Option<String> {
    let version = ObjectView::new(live).find_text("/metadata/resourceVersion");
    version.map(str::to_owned)
}

fn is_settled(context: &Context<'_>, object: &DesiredObject, live: &Value) -> bool {
    context
        .memory
        .settled
        .get(&object.target.id)
        .is_some_and(|settled| settled.desired == object.digest && settled.live == digest_live(context, object, live))
}

fn record_settled(context: &mut Context<'_>, object: &DesiredObject, live: &Value) {
    context.memory.recreating.remove(&object.target.id);
    let settled = MatchedDigests {
        desired: object.digest.clone(),
        live: digest_live(context, object, live),
    };
    context.memory.settled.insert(object.target.id.clone(), settled);
}

/// Returns a digest of a live object for comparisons, without ignored fields and without unmanaged annotations.
pub(super) fn digest_live(context: &Context<'_>, object: &DesiredObject, live: &Value) -> String {
    let stripped = context.ignored.strip_ignored(live, live);
    let counting = unmanaged_annotations::strip_unmanaged_annotations(
        &context.snapshot.settings,
        &object.object.0,
        live,
        stripped,
    );
    select_comparable(&counting).digest()
}

/// Returns the reason if an annotation on the desired or on the live object excludes the object from the apply.
pub(super) fn find_skip_reason(desired: &Value, live: Option<&Value>) -> Option<String> {
    let says = |key: &str, value: &str| {
        let on = |object: &Value| ObjectView::new(object).has_annotation(key, value);
        on(desired) || live.is_some_and(on)
    };
    if says(SSA, "Ignore") {
        return Some(format!("annotation {SSA} says Ignore"));
    }
    if says(RECONCILE, "disabled") {
        return Some(format!("annotation {RECONCILE} says disabled"));
    }
    if says(SSA, "IfNotPresent") && live.is_some() {
        return Some(format!("annotation {SSA} says IfNotPresent, and it exists"));
    }
    None
}
