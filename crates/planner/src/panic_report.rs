//! The status and the event for an object whose reconciler panicked. They don't repeat the panic's message, which may quote the object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::{ObjectMeta, reason};

use crate::outcome;
use crate::plan::{Event, EventKind, EventPlace, Status};

/// Writes the status and an event; `times` is the number of panics in a row.
#[must_use]
pub fn report_panic<T: Status>(status: Option<&T>, metadata: &ObjectMeta, now: Timestamp, times: u32) -> (T, Event) {
    let mut status = status.cloned().unwrap_or_default();
    // The message has no number and no time: a condition that changes each time is written each time.
    let again = if times > 1 { "again and again" } else { "once" };
    let message = format!(
        "the controller failed while it worked on this object ({again}) and starts over, after longer and longer pauses; its log says \
         more. This is a fault of the program: please report it"
    );
    let entry = (
        condition::READY,
        ConditionStatus::Unknown,
        reason::INTERNAL_ERROR,
        message.as_str(),
    );
    outcome::set_condition(status.conditions_mut(), metadata, now, entry);
    let event = Event {
        kind: EventKind::Warning,
        reason: reason::INTERNAL_ERROR.to_owned(),
        message,
        annotations: BTreeMap::new(),
        place: EventPlace::Beside,
    };
    (status, event)
}
