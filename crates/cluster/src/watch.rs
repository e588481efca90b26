//! One watch: list, follow, list again when the history is gone, begin again with growing pauses when it breaks.
//! It delivers each change once and also what vanished while it was not looking. Refuses to give up.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use crate::client::{Client, ListOptions, namespace_of, typed};
use crate::error::ClusterError;
use crate::mapping::Resource;

/// How long the server is asked to keep a watch open.
const OPEN_SECONDS: u64 = 290;
/// How much later than that a silent connection is given up.
const SILENCE: Duration = Duration::from_secs(OPEN_SECONDS + 30);
/// First and longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// The longest single event that is read.
const LONGEST_EVENT: usize = 64 << 20;

/// What a watch saw.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// An object is there, new or changed.
    Changed(Value),
    /// An object is gone, or no longer selected.
    Deleted {
        /// Its namespace; empty for cluster-scoped kinds.
        namespace: String,
        /// Its name.
        name: String,
        /// The revision at which it was found gone.
        revision: String,
    },
    /// Everything that was there at this revision has been delivered.
    Synced {
        /// The revision.
        revision: String,
    },
    /// The watch goes on where it broke; nothing was missed.
    Resumed,
    /// Nothing changed until this revision (a bookmark).
    Progress {
        /// The revision.
        revision: String,
    },
    /// The watch broke and will begin again.
    Failed(ClusterError),
}

/// What is known of the objects: the revision of each, to tell what a new list changes.
struct Known {
    versions: HashMap<(String, String), String>,
    resource_version: String,
}

/// Watches a resource in one namespace, or in all, and gives every event to `sink`. It ends when it is dropped.
pub async fn watch(
    client: &Client,
    resource: &Resource,
    namespace: Option<&str>,
    labels: Option<&str>,
    mut sink: impl FnMut(WatchEvent),
) -> Infallible {
    let mut known = Known {
        versions: HashMap::new(),
        resource_version: String::new(),
    };
    let mut pause = PAUSES.0;
    loop {
        let error = match round(client, resource, namespace, labels, &mut known, &mut sink).await {
            Ok(()) => {
                pause = PAUSES.0;
                continue;
            }
            Err(error) => error,
        };
        if let ClusterError::Expired { .. } = error {
            known.resource_version.clear();
            continue;
        }
        sink(WatchEvent::Failed(error));
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Lists if there is no revision to go on from, and follows until the server ends the watch.
async fn round(
    client: &Client,
    resource: &Resource,
    namespace: Option<&str>,
    labels: Option<&str>,
    known: &mut Known,
    sink: &mut impl FnMut(WatchEvent),
) -> Result<(), ClusterError> {
    if known.resource_version.is_empty() {
        let options = ListOptions {
            labels: labels.map(str::to_owned),
            fields: None,
        };
        let listed = client.list_pages(resource, namespace, &options).await?;
        let mut before = std::mem::take(&mut known.versions);
        for object in listed.items {
            let (key, version) = key_and_version(&object);
            let changed = before.remove(&key).is_none_or(|old| old != version);
            known.versions.insert(key, version);
            if changed {
                sink(WatchEvent::Changed(object));
            }
        }
        for (namespace, name) in before.into_keys() {
            let revision = listed.resource_version.clone();
            sink(WatchEvent::Deleted {
                namespace,
                name,
                revision,
            });
        }
        known.resource_version = listed.resource_version;
        sink(WatchEvent::Synced {
            revision: known.resource_version.clone(),
        });
    }
    let seconds = OPEN_SECONDS.to_string();
    let from = known.resource_version.clone();
    let mut parameters = vec![
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", seconds.as_str()),
        ("resourceVersion", from.as_str()),
    ];
    if let Some(labels) = labels {
        parameters.push(("labelSelector", labels));
    }
    let response = client.open_watch(resource, namespace, &parameters).await?;
    sink(WatchEvent::Resumed);
    follow(response.into_body(), resource, known, sink).await
}

async fn follow(
    mut body: Body,
    resource: &Resource,
    known: &mut Known,
    sink: &mut impl FnMut(WatchEvent),
) -> Result<(), ClusterError> {
    let mut line: Vec<u8> = Vec::new();
    loop {
        let frame = tokio::time::timeout(SILENCE, body.frame())
            .await
            .map_err(|_| ClusterError::Timeout { after: SILENCE })?;
        let data = match frame {
            None => return Ok(()),
            Some(Err(error)) => {
                return Err(ClusterError::Unreachable {
                    problem: error.to_string(),
                });
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(_) => continue,
            },
        };
        let mut rest = data.as_ref();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (head, tail) = rest.split_at(end);
            line.extend_from_slice(head);
            if !line.is_empty() {
                event(&line, resource, known, sink)?;
            }
            line.clear();
            rest = tail.get(1..).unwrap_or_default();
        }
        line.extend_from_slice(rest);
        if line.len() > LONGEST_EVENT {
            return Err(broken(
                resource,
                format!("an event is longer than {LONGEST_EVENT} bytes"),
            ));
        }
    }
}

fn event(
    line: &[u8],
    resource: &Resource,
    known: &mut Known,
    sink: &mut impl FnMut(WatchEvent),
) -> Result<(), ClusterError> {
    let mut event: Value = serde_json::from_slice(line).map_err(|error| broken(resource, error.to_string()))?;
    let object = event.get_mut("object").map(Value::take).unwrap_or_default();
    let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind == "ERROR" {
        let code = object
            .get("code")
            .and_then(Value::as_u64)
            .and_then(|code| u16::try_from(code).ok());
        let message = object
            .get("message")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        return Err(match code {
            Some(410) => ClusterError::Expired { message },
            code => ClusterError::Refused {
                code: code.unwrap_or(500),
                reason: object
                    .get("reason")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned(),
                message,
            },
        });
    }
    let (key, version) = key_and_version(&object);
    known.resource_version.clone_from(&version);
    match kind {
        "ADDED" | "MODIFIED" => {
            known.versions.insert(key, version);
            sink(WatchEvent::Changed(typed(object, resource)));
        }
        "DELETED" => {
            known.versions.remove(&key);
            let (namespace, name) = key;
            sink(WatchEvent::Deleted {
                namespace,
                name,
                revision: version,
            });
        }
        "BOOKMARK" => sink(WatchEvent::Progress { revision: version }),
        other => return Err(broken(resource, format!("an event of type {other:?}"))),
    }
    Ok(())
}

fn broken(resource: &Resource, problem: String) -> ClusterError {
    ClusterError::Decode {
        what: format!("the watch of {}", resource.plural),
        problem,
    }
}

fn key_and_version(object: &Value) -> ((String, String), String) {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    (
        (namespace_of(object).to_owned(), text("/metadata/name")),
        text("/metadata/resourceVersion"),
    )
}

/// Up to a quarter longer, so that many watches that broke together do not come back together. The clock's nanoseconds are random enough.
fn jittered(pause: Duration) -> Duration {
    let nanoseconds = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |time| time.subsec_nanos());
    pause + pause / 4 * (nanoseconds % 1000) / 1000
}
