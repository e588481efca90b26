//! Collects the changes of an attempt for one event. The event comes with the result of the attempt, or alone if the attempt waits for health. If an attempt ends or
//! restarts before its event, the changes are kept for the next event.

use std::collections::HashSet;

use tenure_api::{ObjectId, reason};

use super::context::Context;
use super::outcome;
use super::types::{Attempt, Memory, UnreportedChanges};
use crate::answer::{DeleteAnswer, WriteAnswer};
use crate::plan::EventKind;

/// Records that a step of this plan changes an object, with the line for the event.
pub(super) fn record_change(context: &mut Context<'_>, id: &ObjectId, line: String) {
    context.memory.changed_by.clone_from(&context.revision);
    context.memory.changes.insert(id.clone(), line);
}

/// Adds events for all unreported changes: one for each applied revision.
pub(super) fn report_changes(context: &mut Context<'_>) {
    retain_changes(context);
    report_all_but(context, 0);
}

/// Keeps the changes of this attempt for the next event. Changes by earlier revisions get their events at once.
pub(super) fn retain_changes(context: &mut Context<'_>) {
    store_changes(&mut context.memory, &context.snapshot.attempt);
    report_earlier_changes(context);
}

/// Adds events for the unreported changes by earlier revisions.
pub(super) fn report_earlier_changes(context: &mut Context<'_>) {
    report_all_but(context, 1);
}

/// Moves the changes that an attempt has made into [`Memory::unreported`]. The answers of the attempt say which were made.
pub(super) fn store_changes(memory: &mut Memory, attempt: &Attempt) {
    let changes = std::mem::take(&mut memory.changes);
    let revision = memory.changed_by.take();
    let find_line = |(id, line): (ObjectId, String)| {
        let is_deleted = matches!(
            attempt.deleted.get(&id),
            Some(DeleteAnswer::Accepted | DeleteAnswer::Absent)
        );
        match attempt.applied.get(&id) {
            Some(WriteAnswer::Done(_)) => Some(line),
            Some(WriteAnswer::Failed(_)) => is_deleted.then(|| format!("{} deleted, and not recreated", id.subject())),
            None => is_deleted.then_some(line),
        }
    };
    let lines: Vec<String> = changes.into_iter().filter_map(find_line).collect();
    if lines.is_empty() {
        return;
    }
    match memory.unreported.last_mut() {
        Some(unreported) if unreported.revision == revision => {
            // The list must not grow when attempts restart again and again.
            let known: HashSet<&String> = unreported.lines.iter().collect();
            let new: Vec<String> = lines.into_iter().filter(|line| !known.contains(line)).collect();
            unreported.lines.extend(new);
        }
        _ => memory.unreported.push(UnreportedChanges { revision, lines }),
    }
}

fn report_all_but(context: &mut Context<'_>, kept: usize) {
    let count = context.memory.unreported.len().saturating_sub(kept);
    for unreported in context.memory.unreported.drain(..count) {
        context.events.push(outcome::make_event(
            EventKind::Normal,
            reason::PROGRESSING,
            unreported.lines.join("\n"),
            unreported.revision.as_deref(),
        ));
    }
}
