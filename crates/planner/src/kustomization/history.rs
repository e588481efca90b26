//! The history of a status, and how long things took.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::kustomization::{self, KustomizationStatus};

use super::context::Context;
use super::origin::describe_revision;

/// Entries of the history (Flux's).
const HISTORY: usize = 5;

/// Puts the end of an attempt into the history: one entry a build and outcome, newest first.
pub(super) fn record_attempt(status: &mut KustomizationStatus, context: &Context<'_>, digest: &str, outcome: &str) {
    let now = crate::outcome::cut_to_seconds(context.now);
    let took = write_go_duration(find_elapsed(context.now, context.snapshot.attempt.started));
    let found = status
        .history
        .iter()
        .position(|entry| entry.digest == digest && entry.last_reconciled_status == outcome);
    let entry = match found {
        Some(position) => {
            let mut entry = status.history.remove(position);
            entry.last_reconciled = now;
            entry.last_reconciled_duration = took;
            entry.total_reconciliations += 1;
            entry
        }
        None => kustomization::Snapshot {
            digest: digest.to_owned(),
            first_reconciled: now.clone(),
            last_reconciled: now,
            last_reconciled_duration: took,
            last_reconciled_status: outcome.to_owned(),
            metadata: context
                .revision
                .as_deref()
                .map(|revision| describe_revision(context.snapshot, revision)),
            total_reconciliations: 1,
        },
    };
    status.history.insert(0, entry);
    status.history.truncate(HISTORY);
}

/// Returns the time from `since` until `now`.
pub(super) fn find_elapsed(now: Timestamp, since: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// Writes a duration as Go prints it, to the millisecond: `1m0s`, `250ms`.
pub(super) fn write_go_duration(duration: Duration) -> String {
    let milliseconds = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    go_words::duration::print(milliseconds.saturating_mul(1_000_000))
}
