//! The wait for objects that are being deleted, and its message.

use tenure_api::{ObjectId, ObjectView, reason};

use super::context::Context;
use super::desired::DesiredObject;
use super::{Phase, outcome};
use crate::answer::Live;
use crate::outcome::join_names;

/// The most bytes of a list of finalizers in a message.
const LONGEST_LIST: usize = 256;
/// The most bytes of a list of awaited objects in a message.
const HELD_NAMED: usize = 700;

/// Waits, within the attempt's time, until deleted objects are gone and can be re-created.
pub(super) fn wait_until_gone(context: &mut Context<'_>, gone: &[&DesiredObject]) -> Phase<()> {
    if gone.is_empty() {
        return Ok(());
    }
    let subjects: Vec<String> = gone.iter().map(|object| object.target.id.subject()).collect();
    let deadline = context.find_deadline();
    if context.now >= deadline {
        let message = format!("timeout waiting for the deletion of: {}", list_held(context, gone));
        return Err(outcome::plan_failed(
            context.fork(),
            reason::RECONCILIATION_FAILED,
            message,
        ));
    }
    for subject in subjects {
        context.withhold(subject, "it is being deleted: waiting until it is gone");
    }
    Err(outcome::plan_waiting(
        context.fork(),
        deadline,
        describe_wait(context, gone),
    ))
}

pub(super) fn describe_wait(context: &Context<'_>, gone: &[&DesiredObject]) -> String {
    format!("Waiting for objects to be deleted: {}", list_held(context, gone))
}

/// Objects that are being deleted, each with the finalizers that hold it.
fn list_held(context: &Context<'_>, gone: &[&DesiredObject]) -> String {
    let held = gone.iter().map(|object| describe_held(context, &object.target.id));
    join_names(&held.collect::<Vec<_>>(), HELD_NAMED)
}

/// Returns an object that is being deleted, with the finalizers that hold it.
pub(super) fn describe_held(context: &Context<'_>, id: &ObjectId) -> String {
    let live = context.snapshot.live.get(id).and_then(Live::object);
    let finalizers: Vec<String> = live
        .into_iter()
        .flat_map(|live| ObjectView::new(live).list_texts("/metadata/finalizers"))
        .map(str::to_owned)
        .collect();
    match finalizers.is_empty() {
        true => id.subject(),
        false => format!(
            "{} (finalizers hold it: {})",
            id.subject(),
            join_names(&finalizers, LONGEST_LIST)
        ),
    }
}
