//! One watch: it lists, follows, lists again after its history is gone, and restarts with growing pauses after a failure.
//!
//! The watch delivers each change once, and also deletions that happened during an interruption. It never gives up. If the reader of its events panics, the watch
//! delivers everything again.

use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant, SystemTime};

use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tenure_api::ObjectView;

use crate::client::Client;
use crate::discovery::Resource;
use crate::error::ClusterError;
use crate::list::{PagedList, read_revision};
use crate::raw_object::{RawEvent, RawObject};
use crate::remote_cluster::TextReservation;

/// The requested duration of a watch.
const OPEN_SECONDS: u64 = 290;
/// The time after which a silent connection is closed.
const SILENCE: Duration = Duration::from_secs(OPEN_SECONDS + 30);
/// The first and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// After a round that is shorter than this, a pause follows, even without a failure.
const SHORT: Duration = Duration::from_secs(1);
/// The longest event that is read.
const LONGEST_EVENT: usize = 64 << 20;

/// The longest name of an object, by the rules of Kubernetes.
const LONGEST_NAME: usize = 253;

/// The buffer for an event that is kept until the next event.
const USUAL_EVENT: usize = 64 << 10;

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// An object exists that is new or changed.
    Changed(RawObject),
    /// An object is deleted, or no longer selected.
    Deleted {
        /// The namespace; empty for cluster-scoped kinds.
        namespace: String,
        /// The name.
        name: String,
        /// The revision at which the object was found to be missing.
        revision: String,
    },
    /// A list begins: the existing objects follow in any order, until [`WatchEvent::Synced`].
    Listing,
    /// The watch has delivered all objects that existed at this revision.
    Synced {
        /// The revision.
        revision: String,
    },
    /// The watch continues from the point of the interruption; no change was missed.
    Resumed,
    /// Nothing changed until this revision (a bookmark).
    Progress {
        /// The revision.
        revision: String,
    },
    /// The watch failed and will restart.
    Failed(ClusterError),
}

/// The revision in which the watch delivered each object last. A new list is compared with them, so only changes are delivered.
#[derive(Default)]
struct DeliveredRevisions {
    versions: HashMap<(String, String), String>,
    resource_version: String,
    /// Only new changes are delivered, and the revisions of single objects are not stored.
    only_new: bool,
}

/// The selector of a watch.
#[derive(Clone, Copy)]
enum Selector<'a> {
    Labels(Option<&'a str>),
    /// A field selector. Only new changes are delivered.
    NewByFields(&'a str),
}

/// Watches a resource in one namespace, or in all, and gives every event to `sink`. The watch ends when the future is dropped.
pub async fn watch(
    client: &Client,
    resource: &Resource,
    namespace: Option<&str>,
    labels: Option<&str>,
    sink: impl FnMut(WatchEvent) + Send,
) -> Infallible {
    watch_selected(client, resource, namespace, Selector::Labels(labels), sink).await
}

/// Watches new changes of the objects that a field selector selects in one namespace. Existing objects are not delivered, and neither are changes during an interruption
/// that is too long for the server's history. So the watch stores nothing about objects, however many there are.
pub async fn watch_new(
    client: &Client,
    resource: &Resource,
    namespace: &str,
    fields: &str,
    sink: impl FnMut(WatchEvent) + Send,
) -> Infallible {
    watch_selected(client, resource, Some(namespace), Selector::NewByFields(fields), sink).await
}

async fn watch_selected(
    client: &Client,
    resource: &Resource,
    namespace: Option<&str>,
    selector: Selector<'_>,
    mut sink: impl FnMut(WatchEvent) + Send,
) -> Infallible {
    let mut known = DeliveredRevisions {
        only_new: matches!(selector, Selector::NewByFields(_)),
        ..DeliveredRevisions::default()
    };
    let mut pause = PAUSES.0;
    loop {
        let began = Instant::now();
        let ended = AssertUnwindSafe(list_and_follow(
            client, resource, namespace, selector, &mut known, &mut sink,
        ))
        .catch_unwind()
        .await;
        let lasted = began.elapsed() >= SHORT;
        if lasted {
            pause = PAUSES.0;
        }
        let error = match ended {
            Ok(Ok(())) if lasted => continue,
            Ok(Ok(())) => None,
            Ok(Err(ClusterError::Expired { .. })) => {
                known.resource_version.clear();
                if lasted {
                    continue;
                }
                None
            }
            Ok(Err(error)) => Some(error),
            Err(_) => {
                // The reader panicked, so its state is unknown: replay everything.
                known.resource_version.clear();
                known.versions.values_mut().for_each(String::clear);
                tracing::error!(resource = %resource.plural, namespace, "the reader of a watch panicked; it begins again");
                Some(broken(resource, "its reader panicked".to_owned()))
            }
        };
        let longest = match error {
            Some(error) => {
                // A reader that panics at this event, too, still gets its watch again.
                let delivered = std::panic::catch_unwind(AssertUnwindSafe(|| sink(WatchEvent::Failed(error))));
                if delivered.is_err() {
                    known.resource_version.clear();
                }
                PAUSES.1
            }
            // The watch continues from its last revision, and the reader is not notified of the pause.
            None => SHORT,
        };
        tokio::time::sleep(add_jitter(pause.min(longest))).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Lists if no revision is known, and follows until the server ends the watch.
async fn list_and_follow(
    client: &Client,
    resource: &Resource,
    namespace: Option<&str>,
    selector: Selector<'_>,
    known: &mut DeliveredRevisions,
    sink: &mut (impl FnMut(WatchEvent) + Send),
) -> Result<(), ClusterError> {
    if known.resource_version.is_empty() {
        match selector {
            Selector::Labels(labels) => list(client, resource, (namespace, labels), known, sink).await?,
            Selector::NewByFields(_) => {
                known.resource_version = read_revision(client, resource, namespace).await?;
            }
        }
    }
    let seconds = OPEN_SECONDS.to_string();
    let from = known.resource_version.clone();
    let mut parameters = vec![
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", seconds.as_str()),
        ("resourceVersion", from.as_str()),
    ];
    match selector {
        Selector::Labels(labels) => parameters.extend(labels.map(|labels| ("labelSelector", labels))),
        Selector::NewByFields(fields) => parameters.push(("fieldSelector", fields)),
    }
    let response = client.open_watch(resource, namespace, &parameters).await?;
    sink(WatchEvent::Resumed);
    follow(client, response.into_body(), resource, known, sink).await
}

/// Reads all objects, page by page. Delivers each new or changed object, and each object that is missing now as a deletion.
async fn list(
    client: &Client,
    resource: &Resource,
    (namespace, labels): (Option<&str>, Option<&str>),
    known: &mut DeliveredRevisions,
    sink: &mut (impl FnMut(WatchEvent) + Send),
) -> Result<(), ClusterError> {
    let mut pages = PagedList::new(client, resource, namespace, labels)?;
    sink(WatchEvent::Listing);
    // The known revisions are replaced only after all objects were delivered, because the reader may panic before, and a later page may fail.
    let mut versions = HashMap::new();
    let mut revision = String::new();
    let bounds = ObjectLimits::for_client(client);
    let mut pages_read = 0_usize;
    while let Some(page) = pages.read_next().await? {
        pages_read += 1;
        let (items, versions, known) = (page.items, &mut versions, &*known);
        let deliver = || {
            for object in items {
                let key = (object.namespace.clone(), object.name.clone());
                if !bounds.admit(&object, versions.len()) {
                    continue;
                }
                versions.insert(key.clone(), object.revision.clone());
                if known.versions.get(&key) != Some(&object.revision) {
                    sink(WatchEvent::Changed(object));
                }
            }
        };
        client.turns().run(page.bytes, deliver).await;
        revision = page.resource_version;
        if versions.len() >= bounds.objects || pages_read >= bounds.objects {
            return Err(too_many(resource, bounds.objects));
        }
    }
    for (namespace, name) in known.versions.keys().filter(|key| !versions.contains_key(*key)) {
        sink(WatchEvent::Deleted {
            namespace: namespace.clone(),
            name: name.clone(),
            revision: revision.clone(),
        });
    }
    known.versions = versions;
    known.resource_version = revision;
    sink(WatchEvent::Synced {
        revision: known.resource_version.clone(),
    });
    Ok(())
}

/// The limits of a watch: the number of objects, the bytes of an event, and the bytes of a name. In this cluster, only events are limited.
#[derive(Clone, Copy)]
struct ObjectLimits {
    objects: usize,
    event: usize,
    name: usize,
}

impl ObjectLimits {
    fn for_client(client: &Client) -> Self {
        match client.terms() {
            Some(terms) => Self {
                objects: terms.most_objects,
                event: terms.longest.min(LONGEST_EVENT),
                name: LONGEST_NAME,
            },
            None => Self {
                objects: usize::MAX,
                event: LONGEST_EVENT,
                name: usize::MAX,
            },
        }
    }

    /// Checks whether a watch with `count` objects may hold one more, and whether its name is within the limit.
    fn admit(self, object: &RawObject, count: usize) -> bool {
        let longest = object.namespace.len().max(object.name.len()).max(object.revision.len());
        count < self.objects && longest <= self.name
    }
}

/// Returns the error for too many objects. The objects beyond the limit are unknown, so the watch delivers no object.
fn too_many(resource: &Resource, most_objects: usize) -> ClusterError {
    broken(
        resource,
        format!("there are more than {most_objects} objects: none of them is watched"),
    )
}

async fn follow(
    client: &Client,
    mut body: Body,
    resource: &Resource,
    known: &mut DeliveredRevisions,
    sink: &mut (impl FnMut(WatchEvent) + Send),
) -> Result<(), ClusterError> {
    let mut line: Vec<u8> = Vec::new();
    let bounds = ObjectLimits::for_client(client);
    let mut room = TextReservation::default();
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
            room.grow_to(line.len().saturating_add(head.len()), client.terms())?;
            line.extend_from_slice(head);
            if !line.is_empty() {
                let deliver = || {
                    let event = RawEvent::from_line(&line, resource);
                    let event = event.map_err(|error| broken(resource, error.to_string()))?;
                    deliver_event(event, resource, known, bounds, sink)
                };
                client.turns().run(line.len(), deliver).await?;
            }
            line.clear();
            // Small events don't keep the buffer of a large one, because hundreds of watches may exist.
            line.shrink_to(USUAL_EVENT);
            room.clear();
            rest = tail.get(1..).unwrap_or_default();
        }
        room.grow_to(line.len().saturating_add(rest.len()), client.terms())?;
        line.extend_from_slice(rest);
        if line.len() > bounds.event {
            let problem = format!("an event is longer than {} bytes", bounds.event);
            return Err(broken(resource, problem));
        }
    }
}

fn deliver_event(
    event: RawEvent,
    resource: &Resource,
    known: &mut DeliveredRevisions,
    bounds: ObjectLimits,
    sink: &mut (impl FnMut(WatchEvent) + Send),
) -> Result<(), ClusterError> {
    let RawEvent { kind, object } = event;
    if kind == "ERROR" {
        let status = object.read().map_err(|error| broken(resource, error.to_string()))?;
        return Err(describe_end(&status));
    }
    if !bounds.admit(&object, known.versions.len()) {
        return Err(too_many(resource, bounds.objects));
    }
    known.resource_version.clone_from(&object.revision);
    let key = || (object.namespace.clone(), object.name.clone());
    match kind.as_str() {
        "ADDED" | "MODIFIED" => {
            if !known.only_new {
                known.versions.insert(key(), object.revision.clone());
            }
            sink(WatchEvent::Changed(object));
        }
        "DELETED" => {
            known.versions.remove(&key());
            sink(WatchEvent::Deleted {
                namespace: object.namespace,
                name: object.name,
                revision: object.revision,
            });
        }
        "BOOKMARK" => sink(WatchEvent::Progress {
            revision: object.revision,
        }),
        other => return Err(broken(resource, format!("an event of type {other:?}"))),
    }
    Ok(())
}

/// Returns the reason why the server ended a watch: its last event is a Status.
fn describe_end(status: &Value) -> ClusterError {
    let status = ObjectView::new(status);
    let code = status.find("/code").and_then(Value::as_u64);
    let message = status.read_text("/message").to_owned();
    match code.and_then(|code| u16::try_from(code).ok()) {
        Some(410) => ClusterError::Expired { message },
        code => ClusterError::Refused {
            code: code.unwrap_or(500),
            reason: status.read_text("/reason").into(),
            message,
            causes: Vec::new(),
            retry_after: None,
        },
    }
}

fn broken(resource: &Resource, problem: String) -> ClusterError {
    ClusterError::Decode {
        what: format!("the watch of {}", resource.plural),
        problem,
    }
}

/// Returns a pause that is up to a quarter longer, so watches that failed together don't restart together. The clock's nanoseconds are random enough.
fn add_jitter(pause: Duration) -> Duration {
    let nanoseconds = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |time| time.subsec_nanos());
    pause + pause / 4 * (nanoseconds % 1000) / 1000
}
