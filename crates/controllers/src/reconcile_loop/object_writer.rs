//! Writes to a reconciled object itself: its finalizer, its status, and events about it, as the account of its lane. A write that would change
//! nothing is not sent.

use std::marker::PhantomData;

use jiff::Timestamp;
use kube::Resource as _;
use serde_json::{Value, json};
use tenure_api::{Kustomization, ObjectMeta, ObjectView};
use tenure_cluster::{ClusterError, EventHistory, EventKind, EventRecorder, ObjectEvent, Resource};
use tenure_planner::event_recording::join_events;
use tenure_planner::merge_patch::find_difference;
use tenure_planner::{Event, EventPlace, FinalizerChange, interrupted_attempts, panic_report};

use crate::cluster_view::key::Key;
use crate::reconcile_loop::reconciled::{Home as _, Reconciled, take_written};
use crate::telemetry::spans;

/// The limit of retries of a write after the object changed meanwhile.
const ATTEMPTS: u32 = 4;

/// The result of a write to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// The API server has stored it.
    Stored,
    /// The object is deleted: nothing can be written to it, and nothing more has to be done for it.
    Gone,
}

/// Writes to one reconciled object. It has the version, the finalizers and the status from which the plan was made.
#[derive(Debug)]
pub(crate) struct ObjectWriter<R> {
    key: Key,
    uid: String,
    resource_version: String,
    finalizers: Vec<String>,
    status: Value,
    kind: PhantomData<fn() -> R>,
}

impl<R: Reconciled> ObjectWriter<R> {
    pub(crate) fn new(object: &R) -> Self {
        let metadata = object.meta();
        Self {
            key: Key::from_metadata(R::KIND, metadata),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            status: serde_json::to_value(object.status()).unwrap_or(Value::Null),
            kind: PhantomData,
        }
    }

    /// Returns the key of the object.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    fn target(&self) -> (&str, &str) {
        (&self.key.namespace, &self.key.name)
    }

    async fn resource(&self, home: &R::Home) -> Result<Resource, ClusterError> {
        home.controller().resource(R::KIND.api_version, R::KIND.name).await
    }

    /// Adds or removes a finalizer. A deleted object is no error.
    pub(crate) async fn change_finalizer(
        &self,
        home: &R::Home,
        change: &FinalizerChange,
    ) -> Result<WriteResult, ClusterError> {
        let resource = self.resource(home).await?;
        let (mut version, mut finalizers) = (self.resource_version.clone(), self.finalizers.clone());
        for attempt in 1.. {
            let mut wanted = finalizers.clone();
            match change {
                FinalizerChange::Add(name) if !wanted.contains(name) => wanted.push(name.clone()),
                FinalizerChange::Add(_) => return Ok(WriteResult::Stored),
                FinalizerChange::Remove(name) => wanted.retain(|finalizer| finalizer != name),
            }
            if wanted == finalizers {
                return Ok(WriteResult::Stored);
            }
            // With the resourceVersion: otherwise a finalizer that another writer added meanwhile would be lost.
            let patch = json!({ "metadata": { "uid": self.uid, "resourceVersion": version, "finalizers": wanted } });
            let patched = home
                .bookkeeper_of(&self.key.namespace)
                .await
                .merge_patch(&resource, self.target(), None, R::KIND.manager, &patch)
                .await;
            match patched {
                Ok(applied) => {
                    take_written::<R>(home, applied.object);
                    return Ok(WriteResult::Stored);
                }
                Err(ClusterError::NotFound { .. }) => return Ok(WriteResult::Gone),
                Err(ClusterError::Conflict { .. }) if attempt < ATTEMPTS => {
                    let Some(fresh) = self.fresh(home, &resource).await? else {
                        return Ok(WriteResult::Gone);
                    };
                    let view = ObjectView::new(&fresh);
                    version = view.read_text("/metadata/resourceVersion").to_owned();
                    finalizers = view.list_texts("/metadata/finalizers").map(str::to_owned).collect();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(WriteResult::Stored)
    }

    /// Writes the changed fields of the status, and sends nothing if there is no change. A deleted object is no error.
    pub(crate) async fn write_status(&self, home: &R::Home, status: &R::Status) -> Result<WriteResult, ClusterError> {
        spans::note_status(status);
        let status = &serde_json::to_value(status).unwrap_or(Value::Null);
        let resource = self.resource(home).await?;
        let mut old = self.status.clone();
        let mut version = self.resource_version.clone();
        for attempt in 1.. {
            let Some(difference) = find_difference(&old, status) else {
                return Ok(WriteResult::Stored);
            };
            let mut metadata = json!({ "uid": self.uid });
            let is_shared = R::SHARED_RECORD.is_some_and(|field| difference.get(field).is_some());
            if is_shared && let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("resourceVersion".to_owned(), Value::from(version.as_str()));
            }
            let patch = json!({ "metadata": metadata, "status": difference });
            let patched = home
                .bookkeeper_of(&self.key.namespace)
                .await
                .merge_patch(&resource, self.target(), Some("status"), R::KIND.manager, &patch)
                .await;
            match patched {
                Ok(applied) => {
                    take_written::<R>(home, applied.object);
                    return Ok(WriteResult::Stored);
                }
                Err(ClusterError::NotFound { .. }) => return Ok(WriteResult::Gone),
                // Either the object was re-created, and this status is not for the new one, or many wrote at once. Only the uid tells.
                Err(error @ ClusterError::Conflict { .. }) if attempt < ATTEMPTS => {
                    let Some(mut fresh) = self.fresh(home, &resource).await? else {
                        return Ok(WriteResult::Gone);
                    };
                    if is_shared && self.is_record_another(&fresh) {
                        // The next plan uses the record that another writer changed meanwhile.
                        take_written::<R>(home, fresh);
                        return Err(error);
                    }
                    ObjectView::new(&fresh)
                        .read_text("/metadata/resourceVersion")
                        .clone_into(&mut version);
                    old = fresh.get_mut("status").map(Value::take).unwrap_or_default();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(WriteResult::Stored)
    }

    /// Checks whether another writer has changed the shared field since the plan was made.
    fn is_record_another(&self, fresh: &Value) -> bool {
        let now = fresh.get("status").unwrap_or(&Value::Null);
        R::SHARED_RECORD.is_some_and(|field| now.get(field) != self.status.get(field))
    }

    /// Reads the current object; `None` if it is deleted or was re-created.
    async fn fresh(&self, home: &R::Home, resource: &Resource) -> Result<Option<Value>, ClusterError> {
        match home
            .bookkeeper_of(&self.key.namespace)
            .await
            .get(resource, &self.key.namespace, &self.key.name)
            .await
        {
            Ok(fresh) if ObjectView::new(&fresh).find_text("/metadata/uid") == Some(self.uid.as_str()) => {
                Ok(Some(fresh))
            }
            Ok(_) | Err(ClusterError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the object's cached metadata, or the metadata from which its plan was made.
    fn find_metadata(&self, home: &R::Home) -> ObjectMeta {
        let current = home.caches().get::<R>().get(&self.key.namespace, &self.key.name);
        let current = current.filter(|object| object.meta().uid.as_deref() == Some(self.uid.as_str()));
        current.map_or_else(
            || ObjectMeta {
                name: Some(self.key.name.clone()),
                namespace: Some(self.key.namespace.clone()),
                uid: Some(self.uid.clone()),
                resource_version: Some(self.resource_version.clone()),
                ..ObjectMeta::default()
            },
            |object| object.meta().clone(),
        )
    }

    /// Writes events about the object.
    pub(crate) async fn write_events(&self, home: &R::Home, event_history: &mut EventHistory, events: &[Event]) {
        let itself = json!({
            "apiVersion": R::KIND.api_version,
            "kind": R::KIND.name,
            "metadata": {
                "namespace": self.key.namespace,
                "name": self.key.name,
                "uid": self.uid,
                "resourceVersion": self.resource_version,
            }
        });
        // An event is in the namespace of its object, and for the platform in the platform namespace.
        let platform = home.platform_namespace();
        let platform =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "namespace": platform, "name": platform } });
        let related = json!({
            "apiVersion": R::KIND.api_version,
            "kind": R::KIND.name,
            "namespace": self.key.namespace,
            "name": self.key.name,
            "uid": self.uid,
        });
        let mut recorded = Vec::with_capacity(events.len());
        for event in events {
            if home.takes_event(&self.key, event) {
                continue;
            }
            R::send_event(home, &self.find_metadata(home), event).await;
            recorded.push(event.clone());
        }
        for event in join_events(&recorded) {
            let event = event.as_ref();
            let other;
            // The lane of an event's namespace writes it.
            let (object, related, place) = match &event.place {
                EventPlace::Beside => (&itself, None, self.key.namespace.as_str()),
                EventPlace::Platform => (&platform, Some(related.clone()), home.platform_namespace()),
                EventPlace::Kustomization { namespace, name, uid } => {
                    other = json!({
                        "apiVersion": Kustomization::api_version(&()), "kind": Kustomization::kind(&()),
                        "metadata": { "namespace": namespace, "name": name, "uid": uid },
                    });
                    (&other, Some(related.clone()), namespace.as_str())
                }
            };
            let event = describe_event(event, related);
            let recorder = EventRecorder::new(home.bookkeeper_of(place).await, R::KIND.reporter);
            recorder.record(event_history, object, &event).await;
        }
    }
}

/// Returns an event of a plan in the form for the API server.
pub(crate) fn describe_event(event: &Event, related: Option<Value>) -> ObjectEvent {
    ObjectEvent {
        kind: match event.kind {
            tenure_planner::EventKind::Normal => EventKind::Normal,
            tenure_planner::EventKind::Warning => EventKind::Warning,
        },
        reason: event.reason.clone(),
        message: event.message.clone(),
        annotations: event.annotations.clone(),
        related,
    }
}

/// Reports in the status of a reconciled object, and as an event, that its reconciler panicked.
pub(crate) async fn report_crash<R: Reconciled>(
    home: &R::Home,
    key: &Key,
    event_history: &mut EventHistory,
    times: u32,
) -> Result<(), ClusterError> {
    let Some(object) = home.caches().get::<R>().get(&key.namespace, &key.name) else {
        return Ok(());
    };
    let writer = ObjectWriter::new(object.as_ref());
    let (new, event) = panic_report::report_panic(object.status(), object.meta(), Timestamp::now(), times);
    writer.write_status(home, &new).await?;
    writer.write_events(home, event_history, &[event]).await;
    Ok(())
}

/// Reports in the status of a reconciled object that it waits, because the controllers ended so often while it was being reconciled.
pub(crate) async fn report_wait<R: Reconciled>(home: &R::Home, key: &Key, crashes: u32, until: Timestamp) {
    report_pause::<R>(home, key, &interrupted_attempts::describe_wait(crashes, until)).await;
}

/// Reports in the status of a reconciled object why it waits.
pub(crate) async fn report_pause<R: Reconciled>(home: &R::Home, key: &Key, message: &str) {
    let Some(object) = home.caches().get::<R>().get(&key.namespace, &key.name) else {
        return;
    };
    let writer = ObjectWriter::new(object.as_ref());
    let waiting = interrupted_attempts::report_wait(object.status(), object.meta(), Timestamp::now(), message);
    if let Err(error) = writer.write_status(home, &waiting).await {
        tracing::debug!(object = %key, %error, "the status that it waits could not be written");
    }
}
