//! What an attempt has changed, told in one event. It is told together with what comes of it where that comes at once, and by itself where it is
//! waited for; refuses to lose it when an attempt ends before it was told.

use tenure_api::{ObjectId, reason};

use super::context::Context;
use super::ending;
use super::types::Untold;
use crate::answer::{DeleteAnswer, WriteAnswer};
use crate::plan::EventKind;

/// Events for all that was changed and not told of yet: one, or one more where an earlier attempt that applied another revision told of nothing.
pub(super) fn report_changes(context: &mut Context<'_>) {
    keep_changes(context);
    if let Some(untold) = context.memory.untold.take() {
        tell(context, untold);
    }
}

/// Keeps what was changed in this attempt until something is told.
pub(super) fn keep_changes(context: &mut Context<'_>) {
    let attempt = &context.snapshot.attempt;
    let changes = std::mem::take(&mut context.memory.changes);
    let is_done = |id: &ObjectId| {
        let deleted = matches!(
            attempt.deleted.get(id),
            Some(DeleteAnswer::Accepted | DeleteAnswer::Absent)
        );
        match attempt.applied.get(id) {
            Some(WriteAnswer::Done(_)) => true,
            Some(WriteAnswer::Failed(_)) => false,
            None => deleted,
        }
    };
    let done = changes.into_iter().filter(|(id, _)| is_done(id));
    let lines: Vec<String> = done.map(|(_, line)| line).collect();
    if lines.is_empty() {
        return;
    }
    let revision = context.revision.clone();
    match context.memory.untold.take() {
        Some(mut untold) if untold.revision == revision => {
            untold.lines.extend(lines);
            context.memory.untold = Some(untold);
        }
        before => {
            if let Some(before) = before {
                tell(context, before);
            }
            context.memory.untold = Some(Untold { revision, lines });
        }
    }
}

fn tell(context: &mut Context<'_>, untold: Untold) {
    context.events.push(ending::event(
        EventKind::Normal,
        reason::PROGRESSING,
        untold.lines.join("\n"),
        untold.revision.as_deref(),
    ));
}
