//! Functions that all planners use to report a result: they set conditions, return a status only if it differs, and return an event only if its message is new. Each
//! planner chooses its own reasons and messages.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure_api::condition::{self, Condition, ConditionStatus};
use tenure_api::{ObjectMeta, Time};

use crate::plan::{Event, EventKind, EventPlace, Status};

/// A condition to set: its type, its status, a reason and a message.
pub(crate) type ConditionEntry<'a> = (&'a str, ConditionStatus, &'a str, &'a str);

/// Sets a condition of the object with this metadata.
pub(crate) fn set_condition(
    conditions: &mut Vec<Condition>,
    metadata: &ObjectMeta,
    now: Timestamp,
    entry: ConditionEntry<'_>,
) {
    let (type_, status, reason, message) = entry;
    let condition = Condition {
        type_: type_.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: metadata.generation,
        last_transition_time: cut_to_seconds(now),
    };
    condition::set(conditions, condition);
}

/// Returns the status to write, if it differs from the present one.
pub(crate) fn find_change<T: Status>(old: Option<&T>, new: &T) -> Option<T> {
    (old != Some(new)).then(|| new.clone())
}

/// Checks whether a condition already has this reason and message.
pub(crate) fn has_same_condition(conditions: &[Condition], type_: &str, reason: &str, message: &str) -> bool {
    condition::find(conditions, type_).is_some_and(|old| old.reason == reason && old.message == message)
}

/// Returns an event without annotations, unless the condition Ready already has this reason and message.
pub(crate) fn make_event(conditions: &[Condition], kind: EventKind, reason: &str, message: &str) -> Option<Event> {
    (!has_same_condition(conditions, condition::READY, reason, message)).then(|| Event {
        kind,
        reason: reason.to_owned(),
        message: message.to_owned(),
        annotations: BTreeMap::new(),
        place: EventPlace::default(),
    })
}

/// Sets `lastHandledReconcileAt` to the annotation `requestedAt`, if the annotation is set.
pub(crate) fn record_handled_request(last: &mut Option<String>, requested: Option<&String>) {
    if let Some(requested) = requested {
        *last = Some(requested.clone());
    }
}

/// Reads the value of the annotation `reconcile.fluxcd.io/requestedAt`.
#[must_use]
pub fn read_requested_at(metadata: &ObjectMeta) -> Option<String> {
    metadata
        .annotations
        .as_ref()?
        .get(tenure_api::metadata::REQUESTED_AT)
        .cloned()
}

/// Returns `Kind/namespace/name`.
pub(crate) fn name_subject(kind: &str, metadata: &ObjectMeta) -> String {
    format!(
        "{kind}/{}/{}",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default()
    )
}

/// Joins names for a message: as many as fit into this many bytes, and the number of the others.
pub(crate) fn join_names(names: &[String], bytes: usize) -> String {
    join_some(names, ", ", bytes)
}

/// Joins names with another separator.
pub(crate) fn join_some(names: &[String], between: &str, bytes: usize) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        if !text.is_empty() && text.len() + name.len() + between.len() > bytes {
            let more = names.len() - index;
            text.push_str(&format!(" and {more} more"));
            break;
        }
        if !text.is_empty() {
            text.push_str(between);
        }
        text.push_str(name);
    }
    text
}

/// Returns a time with whole seconds, as statuses have it.
pub(crate) fn cut_to_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// Adds a duration to a time; the result is at most the end of time.
pub(crate) fn add_duration(time: Timestamp, duration: Duration) -> Timestamp {
    SignedDuration::try_from(duration)
        .ok()
        .and_then(|duration| time.checked_add(duration).ok())
        .unwrap_or(Timestamp::MAX)
}
