//! The events of a plan that are recorded in the cluster. A change and its success become one event if both are reported at once, since an event is a write. Events
//! that would have to be cut are not joined. Alerts are not affected: they get each event.

use std::borrow::Cow;

use tenure_api::reason;

use crate::plan::{Event, EventKind, EventPlace};

/// The longest message of a recorded event, in bytes (Kubernetes' limit).
const LONGEST_MESSAGE: usize = 1024;

/// Returns the events to record, in their order.
#[must_use]
pub fn join_events(events: &[Event]) -> Vec<Cow<'_, Event>> {
    let mut joined: Vec<Cow<'_, Event>> = Vec::with_capacity(events.len());
    for event in events {
        match joined.last().and_then(|before| join_pair(before, event)) {
            Some(both) => {
                joined.pop();
                joined.push(Cow::Owned(both));
            }
            None => joined.push(Cow::Borrowed(event)),
        }
    }
    joined
}

/// Joins the event about changes and the event about their success.
fn join_pair(changes: &Event, success: &Event) -> Option<Event> {
    let is = |event: &Event, reason: &str| {
        event.kind == EventKind::Normal && event.place == EventPlace::Beside && event.reason == reason
    };
    let are_one = is(changes, reason::PROGRESSING)
        && is(success, reason::RECONCILIATION_SUCCEEDED)
        && changes.annotations == success.annotations;
    let message = format!("{}\n{}", success.message, changes.message);
    // The length is that of the written form.
    let length = tenure_api::text::visible(&message).len();
    (are_one && length <= LONGEST_MESSAGE).then(|| Event {
        message,
        ..success.clone()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn make_event(reason: &str, message: &str, revision: &str) -> Event {
        Event {
            kind: EventKind::Normal,
            reason: reason.to_owned(),
            message: message.to_owned(),
            annotations: BTreeMap::from([("kustomize.toolkit.fluxcd.io/revision".to_owned(), revision.to_owned())]),
            place: EventPlace::Beside,
        }
    }

    fn list_joined(events: &[Event]) -> Vec<(String, String)> {
        let joined = join_events(events);
        joined
            .iter()
            .map(|event| (event.reason.clone(), event.message.clone()))
            .collect()
    }

    #[test]
    fn changes_and_success_become_one_event() {
        let changes = make_event(reason::PROGRESSING, "ConfigMap/team/a created", "main@sha1:1");
        let success = make_event(
            reason::RECONCILIATION_SUCCEEDED,
            "Reconciliation finished in 1s",
            "main@sha1:1",
        );
        let both = list_joined(&[changes.clone(), success.clone()]);
        let message = "Reconciliation finished in 1s\nConfigMap/team/a created".to_owned();
        assert_eq!(both, [(reason::RECONCILIATION_SUCCEEDED.to_owned(), message)]);
        assert_eq!(list_joined(std::slice::from_ref(&changes)).len(), 1);
        assert_eq!(list_joined(std::slice::from_ref(&success)).len(), 1);
        assert_eq!(list_joined(&[success, changes]).len(), 2, "that came later");
        assert!(list_joined(&[]).is_empty());
    }

    /// Events of another revision, kind or place stay apart, and so do events that are too long together.
    #[test]
    fn only_matching_short_events_are_joined() {
        let changes = make_event(reason::PROGRESSING, "ConfigMap/team/a created", "main@sha1:1");
        let success = make_event(reason::RECONCILIATION_SUCCEEDED, "finished", "main@sha1:1");
        let older = make_event(reason::PROGRESSING, "ConfigMap/team/a created", "main@sha1:0");
        assert_eq!(list_joined(&[older, success.clone()]).len(), 2);
        let warning = Event {
            kind: EventKind::Warning,
            ..success.clone()
        };
        assert_eq!(list_joined(&[changes.clone(), warning]).len(), 2);
        let elsewhere = Event {
            place: EventPlace::Platform,
            ..success.clone()
        };
        assert_eq!(list_joined(&[changes, elsewhere]).len(), 2);
        // As much as fits into one event is one; not a byte is cut for it.
        let long = |length: usize| make_event(reason::PROGRESSING, &"x".repeat(length), "main@sha1:1");
        let room = LONGEST_MESSAGE - success.message.len() - 1;
        assert_eq!(list_joined(&[long(room), success.clone()]).len(), 1);
        assert_eq!(list_joined(&[long(room + 1), success]).len(), 2);
    }
}
