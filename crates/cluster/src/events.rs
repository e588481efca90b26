//! Events (core/v1) about objects, as whoever keeps their books. What was said last is not said again before a while has passed, and an object has
//! a budget of events, so that whatever goes wrong in a loop does not fill the store.
//! Refuses to fail its caller: an event that can't be written is logged.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::ObjectView;

use crate::client::{Client, read_namespace, require_name};
use crate::error::ClusterError;

/// The longest message of an event in bytes (Kubernetes' `NoteLengthLimit`).
const LONGEST_MESSAGE: usize = 1024;
/// How long the event that was written last is not written again, and how long a repeated one is counted on the same object.
const COUNTED_FOR: Duration = Duration::from_secs(600);
/// How many events of one object are remembered for counting.
const REMEMBERED: usize = 16;
/// How many events an object may have at once (client-go's burst), and how soon it may have one more.
const BURST: u32 = 25;
const ONE_MORE: Duration = Duration::from_secs(60);

/// Whether an event tells of something wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Nothing is wrong.
    Normal,
    /// Something is.
    Warning,
}

impl EventKind {
    /// The word as it stands in the object.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What is said about an object.
#[derive(Clone, Debug)]
pub struct ObjectEvent {
    /// Whether something is wrong.
    pub kind: EventKind,
    /// A word in CamelCase.
    pub reason: String,
    /// For people; cut to 1024 bytes.
    pub message: String,
    /// Annotations of the event, as Flux's revision.
    pub annotations: BTreeMap<String, String>,
    /// Another object that it is about, wherever that is.
    pub related: Option<Value>,
}

/// What was said about one object lately. It belongs to whoever speaks about that object: objects share no memory and no lock.
#[derive(Debug)]
pub struct EventHistory {
    /// The newest last.
    said: VecDeque<Said>,
    /// Whom it was said of: a namesake begins with a clean sheet.
    uid: String,
    budget: u32,
    /// Up to when the budget has been refilled.
    refilled: Option<SystemTime>,
    unlogged_failures: u64,
}

#[derive(Clone, Debug)]
struct Said {
    kind: EventKind,
    reason: String,
    message: String,
    name: String,
    /// How often it happened, written or not.
    count: u64,
    /// When it was written first.
    first: SystemTime,
}

/// What is to be done about an event.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It is counted, and nothing is written.
    Count,
    /// It is written anew.
    Create,
    /// The count of the one that was written under this name is written.
    Recount { name: String, count: u64 },
}

impl Default for EventHistory {
    fn default() -> Self {
        Self {
            said: VecDeque::new(),
            uid: String::new(),
            budget: BURST,
            refilled: None,
            unlogged_failures: 0,
        }
    }
}

impl EventHistory {
    fn judge(&mut self, uid: &str, event: &ObjectEvent, message: &str, now: SystemTime) -> Verdict {
        // What is written elsewhere, with the object as what it is related to, has none.
        if !uid.is_empty() && self.uid != uid {
            *self = Self {
                uid: uid.to_owned(),
                ..Self::default()
            };
        }
        let same = |said: &Said| said.kind == event.kind && said.reason == event.reason && said.message == message;
        self.said.retain(|said| now < said.first + COUNTED_FOR);
        let known = self.said.iter().position(same);
        let last = self.said.len().checked_sub(1);
        if let Some(index) = known
            && let Some(said) = self.said.get_mut(index)
        {
            said.count += 1;
            if known == last {
                return Verdict::Count;
            }
        }
        if !self.spend(now) {
            return Verdict::Count;
        }
        match known.and_then(|index| self.said.remove(index)) {
            Some(said) => {
                let verdict = Verdict::Recount {
                    name: said.name.clone(),
                    count: said.count,
                };
                self.said.push_back(said);
                verdict
            }
            None => Verdict::Create,
        }
    }

    /// Takes one event from the budget, if there is one.
    fn spend(&mut self, now: SystemTime) -> bool {
        let since = *self.refilled.get_or_insert(now);
        let waited = now.duration_since(since).unwrap_or_default();
        let more = u32::try_from(waited.as_secs() / ONE_MORE.as_secs()).unwrap_or(u32::MAX);
        if more > 0 {
            self.budget = self.budget.saturating_add(more).min(BURST);
            self.refilled = Some(now);
        }
        let affordable = self.budget > 0;
        self.budget = self.budget.saturating_sub(1);
        affordable
    }

    fn remember(&mut self, event: &ObjectEvent, message: &str, name: String, now: SystemTime) {
        while self.said.len() >= REMEMBERED {
            self.said.pop_front();
        }
        self.said.push_back(Said {
            kind: event.kind,
            reason: event.reason.clone(),
            message: message.to_owned(),
            name,
            count: 1,
            first: now,
        });
    }
}

/// Writes events.
#[derive(Debug)]
pub struct EventRecorder {
    client: Client,
    component: &'static str,
}

impl EventRecorder {
    /// Writes as that client; `component` stands as the events' source (Flux's controllers: `kustomize-controller`).
    #[must_use]
    pub fn new(client: Client, component: &'static str) -> Self {
        Self { client, component }
    }

    /// Writes one event about an object, or counts it when it was said lately.
    pub async fn record(&self, history: &mut EventHistory, object: &Value, event: &ObjectEvent) {
        match self.write(history, object, event).await {
            Ok(()) => history.unlogged_failures = 0,
            Err(error) => {
                // The first of a row; a namespace that is going refuses them all.
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
        let view = ObjectView::of(object);
        let uid = view.read_text("/metadata/uid");
        let verdict = history.judge(uid, event, message, now);
        if verdict == Verdict::Count {
            return Ok(());
        }
        let namespace = match read_namespace(object) {
            "" => "default",
            namespace => namespace,
        };
        let resource = self.client.resource("v1", "Event").await?;
        let time = timestamp(now);
        if let Verdict::Recount { name, count } = &verdict {
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
                    history.said.pop_back();
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

/// What the name of an event about an object begins with. The object's name may fill all 253 characters that the event's own may have, and
/// one of RBAC's kinds has others in it than that may have.
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

    /// RBAC's kinds have names that no event may have.
    #[test]
    fn an_event_is_called_as_events_may_be() {
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

    /// Says it as the recorder would; answers whether anything was written.
    fn say(history: &mut EventHistory, message: &str, now: SystemTime) -> bool {
        let event = event(message);
        match history.judge("uid", &event, message, now) {
            Verdict::Count => false,
            Verdict::Recount { .. } => true,
            Verdict::Create => {
                history.remember(&event, message, format!("event-{message}"), now);
                true
            }
        }
    }

    #[test]
    fn what_was_said_last_is_not_said_again_before_a_while() {
        let (mut history, start) = (EventHistory::default(), SystemTime::UNIX_EPOCH);
        let mut written = 0;
        for second in 0..1800 {
            written += u32::from(say(&mut history, "same", start + Duration::from_secs(second)));
        }
        assert_eq!(written, 3, "once in ten minutes");
        // Something else in between makes it news again, and tells how often it happened.
        let now = start + Duration::from_secs(1800);
        assert!(say(&mut history, "same", now));
        assert!(!say(&mut history, "same", now));
        assert!(say(&mut history, "other", now));
        let verdict = history.judge("uid", &event("same"), "same", now);
        assert_eq!(
            verdict,
            Verdict::Recount {
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
            written += u32::from(say(&mut history, &round.to_string(), start));
        }
        assert_eq!(written, BURST);
        for round in 0..10_000_u32 {
            let message = if round % 2 == 0 { "this" } else { "that" };
            written += u32::from(say(&mut history, message, start + Duration::from_secs(599)));
        }
        assert_eq!(written, BURST + 9, "one more each minute");
        assert!(history.said.len() <= REMEMBERED);
        // A namesake has its own.
        assert_eq!(history.judge("another", &event("this"), "this", start), Verdict::Create);
    }
}
