//! What is said of an object whose reconciler panicked: that nothing is known of it, and when it is looked at again.
//! Refuses to repeat what the panic said: it may quote what it was about.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::{ObjectMeta, reason};

use crate::ending;
use crate::plan::{Event, EventKind, EventPlace, Status};

/// The status with what is to be said, and an event; `times` is how often in a row it happened.
#[must_use]
pub fn tell_crash<T: Status>(status: Option<&T>, metadata: &ObjectMeta, now: Timestamp, times: u32) -> (T, Event) {
    let mut status = status.cloned().unwrap_or_default();
    // Without number or time in it: a condition that changes each time is written each time.
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
    ending::set_condition(status.conditions_mut(), metadata, now, entry);
    let event = Event {
        kind: EventKind::Warning,
        reason: reason::INTERNAL_ERROR.to_owned(),
        message,
        annotations: BTreeMap::new(),
        place: EventPlace::Beside,
    };
    (status, event)
}
