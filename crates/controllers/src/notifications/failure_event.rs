//! Reports a failed notification as an event on the Alert. The lane writes it, rarely, and the event never leads to another notification.

use std::collections::BTreeMap;

use kube::Resource as _;
use serde_json::json;
use tenure_api::metadata::NOTIFICATION_CONTROLLER;
use tenure_api::{Alert, reason};
use tenure_cluster::{EventKind, EventRecorder, ObjectEvent};

use crate::lane::Lane;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// A failed notification, as the event on its Alert reports it.
#[derive(Debug)]
pub(super) struct NotificationFailure {
    reason: &'static str,
    message: String,
    annotations: BTreeMap<String, String>,
}

impl NotificationFailure {
    pub(super) fn new(reason: &'static str, message: String) -> Self {
        Self {
            reason,
            message,
            annotations: BTreeMap::new(),
        }
    }

    /// Reports that several Alerts set different values for one name.
    pub(super) fn of_conflicts(conflicts: BTreeMap<String, String>) -> Self {
        let names: Vec<&str> = conflicts.keys().map(String::as_str).collect();
        let message = format!(
            "metadata key conflicts detected: {} is set more than once, and the last value wins",
            names.join(", ")
        );
        Self {
            reason: reason::METADATA_APPEND_FAILED,
            message,
            annotations: BTreeMap::new(),
        }
    }
}

/// Writes the event about a failed notification on its Alert, if the rate of such events allows it.
pub(super) async fn write_failure_event(lane: &Lane, (namespace, alert): (&str, &Alert), failure: NotificationFailure) {
    let name = alert.meta().name.clone().unwrap_or_default();
    tracing::debug!(namespace, alert = name, failure.message, "an Alert");
    let Some(history) = lane
        .notification_queue
        .open_history(&(namespace.to_owned(), name.clone()))
    else {
        return;
    };
    let object = json!({
        "apiVersion": Alert::KIND.api_version, "kind": Alert::KIND.name,
        "metadata": {
            "namespace": namespace, "name": name, "uid": alert.meta().uid, "resourceVersion": alert.meta().resource_version,
        }
    });
    let event = ObjectEvent {
        kind: EventKind::Warning,
        reason: failure.reason.to_owned(),
        message: failure.message,
        annotations: failure.annotations,
        related: None,
    };
    let recorder = EventRecorder::new(lane.act_as_itself(), NOTIFICATION_CONTROLLER);
    recorder.record(&mut *history.lock().await, &object, &event).await;
}
