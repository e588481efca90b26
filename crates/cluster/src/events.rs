//! Events (core/v1) about objects, written as the account that does the bookkeeping for the object.
//!
//! A repeated event is only counted for a while. Each object has a budget of events, so a loop of failures can't fill the store. A failed write never fails the caller:
//! the failure is logged.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::ObjectView;

use crate::client::{Client, read_namespace, require_name};
use crate::error::ClusterError;

/// The longest message of an event in bytes (Kubernetes' `NoteLengthLimit`).
const LONGEST_MESSAGE: usize = 1024;
/// The time for which the last written event is not written again, and for which a repeated event is counted on the same object.
const COUNTED_FOR: Duration = Duration::from_secs(600);
/// The number of events of one object that are remembered for counting.
const REMEMBERED: usize = 16;
/// The number of events that an object may have at once, and the time until it may have one more.
const BURST: u32 = 25 + KEPT_FOR_WARNINGS;
/// The part of [`BURST`] that only warnings may use. Without it, the events of many good commits would use up the budget before the first failure. The rest is client-go's
/// burst.
const KEPT_FOR_WARNINGS: u32 = 10;
const ONE_MORE: Duration = Duration::from_secs(60);

/// The `type` of a Kubernetes event, which says whether the event reports a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The event reports no problem.
    Normal,
    /// The event reports a problem.
    Warning,
}

impl EventKind {
    /// Returns the word in the event object.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event about an object.
#[derive(Clone, Debug)]
pub struct ObjectEvent {
    /// Whether the event reports a problem.
    pub kind: EventKind,
    /// A word in CamelCase.
    pub reason: String,
    /// The message for people, cut to 1024 bytes.
    pub message: String,
    /// Annotations of the event, such as Flux's revision.
    pub annotations: BTreeMap<String, String>,
    /// A second object of the event, in any namespace.
    pub related: Option<Value>,
}

/// The recent events of one object. The reconciler of the object owns this value, so objects share no memory and no lock.
#[derive(Debug)]
pub struct EventHistory {
    /// The events, with the newest last.
    past_events: VecDeque<PastEvent>,
    /// The uid of the object. A re-created object with the same name starts with an empty history.
    uid: String,
    budget: u32,
    /// The time up to which the budget has been refilled.
    refilled: Option<SystemTime>,
    unlogged_failures: u64,
}

/// An event of the last [`COUNTED_FOR`], with the name of its event object.
#[derive(Clone, Debug)]
struct PastEvent {
    kind: EventKind,
    reason: String,
    message: String,
    name: String,
    /// The number of occurrences, written or not.
    count: u64,
    /// The time of the first write.
    first: SystemTime,
}

/// The decision about an event: the write that it causes, if any.
#[derive(Debug, PartialEq, Eq)]
enum EventWrite {
    /// Count the event and write nothing.
    Count,
    /// Write a new event.
    Create,
    /// Write the new count into the event with this name.
    Recount { name: String, count: u64 },
}

impl Default for EventHistory {
    fn default() -> Self {
        Self {
            past_events: VecDeque::new(),
            uid: String::new(),
            budget: BURST,
            refilled: None,
            unlogged_failures: 0,
        }
    }
}

impl EventHistory {
    /// Decides whether to write an event, and counts it if an equal event of the same object is recent.
    fn judge(&mut self, uid: &str, event: &ObjectEvent, message: &str, now: SystemTime) -> EventWrite {
        // An event that is written elsewhere, with the object as its related object, has no uid.
        if !uid.is_empty() && self.uid != uid {
            *self = Self {
                uid: uid.to_owned(),
                ..Self::default()
            };
        }
        let same = |past: &PastEvent| past.kind == event.kind && past.reason == event.reason && past.message == message;
        self.past_events.retain(|past| now < past.first + COUNTED_FOR);
        let known = self.past_events.iter().position(same);
        let last = self.past_events.len().checked_sub(1);
        if let Some(index) = known
            && let Some(past) = self.past_events.get_mut(index)
        {
            past.count += 1;
            if known == last {
                return EventWrite::Count;
            }
        }
        if !self.spend(event.kind, now) {
            return EventWrite::Count;
        }
        match known.and_then(|index| self.past_events.remove(index)) {
            Some(past) => {
                let verdict = EventWrite::Recount {
                    name: past.name.clone(),
                    count: past.count,
                };
                self.past_events.push_back(past);
                verdict
            }
            None => EventWrite::Create,
        }
    }

    /// Takes one event of this kind from the budget, if the budget allows it.
    fn spend(&mut self, kind: EventKind, now: SystemTime) -> bool {
        let since = *self.refilled.get_or_insert(now);
        let waited = now.duration_since(since).unwrap_or_default();
        let more = u32::try_from(waited.as_secs() / ONE_MORE.as_secs()).unwrap_or(u32::MAX);
        if more > 0 {
            self.budget = self.budget.saturating_add(more).min(BURST);
            self.refilled = Some(now);
        }
        let kept = match kind {
            EventKind::Normal => KEPT_FOR_WARNINGS,
            EventKind::Warning => 0,
        };
        let is_affordable = self.budget > kept;
        self.budget -= u32::from(is_affordable);
        is_affordable
    }

    fn remember(&mut self, event: &ObjectEvent, message: &str, name: String, now: SystemTime) {
        while self.past_events.len() >= REMEMBERED {
            self.past_events.pop_front();
        }
        self.past_events.push_back(PastEvent {
            kind: event.kind,
            reason: event.reason.clone(),
            message: message.to_owned(),
            name,
            count: 1,
            first: now,
        });
    }
}

/// A writer of events.
#[derive(Debug)]
pub struct EventRecorder {
    client: Client,
    component: &'static str,
}

impl EventRecorder {
    /// Returns a recorder with this client. `component` is the source of the events (Flux's controllers: `kustomize-controller`).
    #[must_use]
    pub fn new(client: Client, component: &'static str) -> Self {
        Self { client, component }
    }

    /// Writes one event about an object, or counts a recent one.
    pub async fn record(&self, history: &mut EventHistory, object: &Value, event: &ObjectEvent) {
        match self.write(history, object, event).await {
            Ok(()) => history.unlogged_failures = 0,
            Err(error) => {
                // Only the first failure in a row is logged. A terminating namespace refuses all events.
                if history.unlogged_failures == 0 {
                    tracing::warn!(%error, reason = %event.reason, "an event could not be written");
                }
                history.unlogged_failures += 1;
            }
        }
    }

    async fn write(&self, history: &mut EventHistory, object: &Value, event: &ObjectEvent) -> Result<(), ClusterError> {
        let now = SystemTime::now();
        let message = tenure_api::text::visible(&event.message);
        let message = cut(&message);
        let view = ObjectView::new(object);
        let uid = view.read_text("/metadata/uid");
        let verdict = history.judge(uid, event, message, now);
        if verdict == EventWrite::Count {
            return Ok(());
        }
        let namespace = match read_namespace(object) {
            "" => "default",
            namespace => namespace,
        };
        let resource = self.client.resource("v1", "Event").await?;
        let time = timestamp(now);
        if let EventWrite::Recount { name, count } = &verdict {
            let patch =
                json!({ "count": count, "lastTimestamp": time, "metadata": { "annotations": event.annotations } });
            let target = (namespace, name.as_str());
            let patched = self
                .client
                .merge_patch(&resource, target, None, self.component, &patch)
                .await;
            match patched {
                Ok(_) => return Ok(()),
                Err(error) if error.absent() => {
                    history.past_events.pop_back();
                }
                Err(error) => return Err(error),
            }
        }
        let nanoseconds = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos());
        let name = format!("{}.{nanoseconds:x}", name_prefix(require_name(object)?));
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace, "annotations": event.annotations },
            "involvedObject": {
                "apiVersion": view.read_text("/apiVersion"),
                "kind": view.read_text("/kind"),
                "namespace": read_namespace(object),
                "name": require_name(object)?,
                "uid": uid,
                "resourceVersion": view.read_text("/metadata/resourceVersion"),
            },
            "type": event.kind.as_str(),
            "reason": event.reason,
            "message": message,
            "source": { "component": self.component },
            "reportingComponent": self.component,
            "reportingInstance": "",
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        });
        if let (Some(body), Some(related)) = (body.as_object_mut(), &event.related) {
            body.insert("related".to_owned(), related.clone());
        }
        self.client.create(&body, self.component).await?;
        history.remember(event, message, name, now);
        Ok(())
    }
}

/// Returns the prefix of an event's name. The object's name may already have all 253 characters that an event's name may have. RBAC's kinds allow characters that event
/// names forbid.
fn name_prefix(name: &str) -> String {
    let is_allowed =
        |letter: &char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '.' | '-');
    let letters = name.chars().take(200);
    let prefix: String = letters
        .map(|letter| Some(letter).filter(is_allowed).unwrap_or('-'))
        .collect();
    let parts = prefix.split('.').map(|part| part.trim_matches('-'));
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return "event".to_owned();
    }
    parts.join(".")
}

fn cut(message: &str) -> &str {
    let mut end = message.len().min(LONGEST_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default()
}

fn timestamp(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(
        |_| "1970-01-01T00:00:00Z".to_owned(),
        |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: &str) -> ObjectEvent {
        ObjectEvent {
            kind: EventKind::Warning,
            reason: "Refused".to_owned(),
            message: message.to_owned(),
            annotations: BTreeMap::new(),
            related: None,
        }
    }

    /// RBAC's kinds have names that events may not have.
    #[test]
    fn event_name_has_only_allowed_characters() {
        for (name, expected) in [
            ("apps", "apps"),
            ("tenure:lane", "tenure-lane"),
            ("system:Admin:.x", "system--dmin.x"),
            (":::", "event"),
        ] {
            assert_eq!(name_prefix(name), expected, "{name}");
        }
        assert_eq!(name_prefix(&"a".repeat(253)).len(), 200);
    }

    /// Records a message as the recorder would, and returns whether anything was written.
    fn record_message(history: &mut EventHistory, message: &str, now: SystemTime) -> bool {
        let event = event(message);
        match history.judge("uid", &event, message, now) {
            EventWrite::Count => false,
            EventWrite::Recount { .. } => true,
            EventWrite::Create => {
                history.remember(&event, message, format!("event-{message}"), now);
                true
            }
        }
    }

    #[test]
    fn a_repeated_event_is_written_once_in_ten_minutes() {
        let (mut history, start) = (EventHistory::default(), SystemTime::UNIX_EPOCH);
        let mut written = 0;
        for second in 0..1800 {
            written += u32::from(record_message(
                &mut history,
                "same",
                start + Duration::from_secs(second),
            ));
        }
        assert_eq!(written, 3, "once in ten minutes");
        // After another event, the repeated event is written again, with its number of occurrences.
        let now = start + Duration::from_secs(1800);
        assert!(record_message(&mut history, "same", now));
        assert!(!record_message(&mut history, "same", now));
        assert!(record_message(&mut history, "other", now));
        let verdict = history.judge("uid", &event("same"), "same", now);
        assert_eq!(
            verdict,
            EventWrite::Recount {
                name: "event-same".to_owned(),
                count: 3
            }
        );
    }

    #[test]
    fn an_object_has_a_budget_of_events() {
        let (mut history, start) = (EventHistory::default(), SystemTime::UNIX_EPOCH);
        let mut written = 0;
        for round in 0..10_000_u32 {
            written += u32::from(record_message(&mut history, &round.to_string(), start));
        }
        assert_eq!(written, BURST);
        for round in 0..10_000_u32 {
            let message = if round % 2 == 0 { "this" } else { "that" };
            written += u32::from(record_message(&mut history, message, start + Duration::from_secs(599)));
        }
        assert_eq!(written, BURST + 9, "one more each minute");
        assert!(history.past_events.len() <= REMEMBERED);
        // An object with the same name and another uid has its own budget.
        assert_eq!(
            history.judge("another", &event("this"), "this", start),
            EventWrite::Create
        );
    }
    #[test]
    fn normal_events_leave_a_budget_for_warnings() {
        let (mut history, start) = (EventHistory::default(), SystemTime::UNIX_EPOCH);
        let mut record = |kind, round: u32, now| {
            let message = round.to_string();
            let event = ObjectEvent {
                kind,
                ..event(&message)
            };
            history.judge("uid", &event, &message, now) == EventWrite::Create
        };
        let count = |written: Vec<bool>| written.into_iter().filter(|written| *written).count();
        let normal = count((0..100).map(|round| record(EventKind::Normal, round, start)).collect());
        assert_eq!(normal, 25);
        let warnings = count(
            (100..200)
                .map(|round| record(EventKind::Warning, round, start))
                .collect(),
        );
        assert_eq!(warnings, 10);
        // A normal event is written again once the warnings have their part back.
        let minutes = (1..=11).map(|minute| start + minute * ONE_MORE);
        let normal = minutes.map(|now| record(EventKind::Normal, 200, now)).collect();
        assert_eq!(count(normal), 1);
    }
}
