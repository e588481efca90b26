//! What goes wrong with telling somebody, as an event on the Alert: by the lane, seldom, and on no way that leads to an Alert again.

use std::collections::BTreeMap;

use kube::Resource as _;
use serde_json::json;
use tenure_api::metadata::NOTIFICATION_CONTROLLER;
use tenure_api::{Alert, reason};
use tenure_cluster::{EventKind, EventRecorder, ObjectEvent};

use crate::lane::Lane;
use crate::reconciled::Reconciled as _;

/// What is said about an Alert.
#[derive(Debug)]
pub(super) struct Complaint {
    reason: &'static str,
    message: String,
    annotations: BTreeMap<String, String>,
}

impl Complaint {
    pub(super) fn new(reason: &'static str, message: String) -> Self {
        Self {
            reason,
            message,
            annotations: BTreeMap::new(),
        }
    }

    /// That several say something else under one name.
    pub(super) fn of_conflicts(conflicts: BTreeMap<String, String>) -> Self {
        let names: Vec<&str> = conflicts.keys().map(String::as_str).collect();
        let message = format!(
            "metadata key conflicts detected: {} is said by several, and the last of them is heard",
            names.join(", ")
        );
        Self {
            reason: reason::METADATA_APPEND_FAILED,
            message,
            annotations: BTreeMap::new(),
        }
    }
}

/// Says something about an Alert.
pub(super) async fn complain(lane: &Lane, (namespace, alert): (&str, &Alert), complaint: Complaint) {
    let name = alert.meta().name.clone().unwrap_or_default();
    tracing::debug!(namespace, alert = name, complaint.message, "an Alert");
    let Some(history) = lane.herald.open_history(&(namespace.to_owned(), name.clone())) else {
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
        reason: complaint.reason.to_owned(),
        message: complaint.message,
        annotations: complaint.annotations,
        related: None,
    };
    let recorder = EventRecorder::new(lane.act_as_itself(), NOTIFICATION_CONTROLLER);
    recorder.record(&mut *history.lock().await, &object, &event).await;
}
