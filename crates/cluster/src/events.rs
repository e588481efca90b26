//! Events (core/v1) about objects, as the controller. An event that repeats is counted, not written anew.
//! Refuses to fail its caller: an event that can't be written is logged.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::client::{Client, name_of, namespace_of};
use crate::error::ClusterError;

/// The longest message of an event in bytes (Kubernetes' `NoteLengthLimit`).
const LONGEST_MESSAGE: usize = 1024;
/// How long a repeated event is counted on the same object.
const COUNTED_FOR: Duration = Duration::from_secs(600);
/// How many events are remembered for counting.
const REMEMBERED: usize = 2048;

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
}

/// Writes events.
#[derive(Debug)]
pub struct EventRecorder {
    client: Client,
    component: &'static str,
    written: Mutex<HashMap<(String, EventKind, String, String), Written>>,
}

#[derive(Clone, Debug)]
struct Written {
    name: String,
    count: u64,
    at: SystemTime,
}

impl EventRecorder {
    /// Writes as that client; `component` stands as the events' source (Flux's controllers: `kustomize-controller`).
    #[must_use]
    pub fn new(client: Client, component: &'static str) -> Self {
        Self {
            client,
            component,
            written: Mutex::new(HashMap::new()),
        }
    }

    /// Writes one event about an object, or counts it when it was written within ten minutes.
    pub async fn record(&self, object: &Value, event: &ObjectEvent) {
        if let Err(error) = self.write(object, event).await {
            tracing::warn!(%error, reason = %event.reason, "an event could not be written");
        }
    }

    async fn write(&self, object: &Value, event: &ObjectEvent) -> Result<(), ClusterError> {
        let now = SystemTime::now();
        let message = cut(&event.message);
        let uid = text(object, "/metadata/uid");
        let key = (uid.to_owned(), event.kind, event.reason.clone(), message.to_owned());
        let namespace = match namespace_of(object) {
            "" => "default",
            namespace => namespace,
        };
        let before = self.remembered().get(&key).cloned();
        let resource = self.client.resource("v1", "Event").await?;
        let time = timestamp(now);
        if let Some(mut written) = before.filter(|written| now < written.at + COUNTED_FOR) {
            written.count += 1;
            let patch = json!({ "count": written.count, "lastTimestamp": time, "metadata": { "annotations": event.annotations } });
            let target = (namespace, written.name.as_str());
            let patched = self
                .client
                .merge_patch(&resource, target, None, self.component, &patch)
                .await;
            match patched {
                Ok(_) => {
                    self.remember(key, written);
                    return Ok(());
                }
                Err(error) if error.absent() => {}
                Err(error) => return Err(error),
            }
        }
        let nanoseconds = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos());
        // The object's name may fill all 253 characters that the event's own may have.
        let prefix: String = name_of(object)?.chars().take(200).collect();
        let name = format!("{}.{nanoseconds:x}", prefix.trim_end_matches(['.', '-']));
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace, "annotations": event.annotations },
            "involvedObject": {
                "apiVersion": text(object, "/apiVersion"),
                "kind": text(object, "/kind"),
                "namespace": namespace_of(object),
                "name": name_of(object)?,
                "uid": uid,
                "resourceVersion": text(object, "/metadata/resourceVersion"),
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
        self.client.create(&body, self.component).await?;
        self.remember(
            key,
            Written {
                name,
                count: 1,
                at: now,
            },
        );
        Ok(())
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<(String, EventKind, String, String), Written>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, key: (String, EventKind, String, String), written: Written) {
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED {
            let now = SystemTime::now();
            remembered.retain(|_, written| now < written.at + COUNTED_FOR / 2);
            if remembered.len() >= REMEMBERED {
                remembered.clear();
            }
        }
        remembered.insert(key, written);
    }
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

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
