//! The health of an object, by kstatus' rules and from the object alone.
//!
//! Order, as in Flux: being deleted → generation not observed → conditions Reconciling and Stalled → the kind's own rule → the Ready condition → without either, an
//! object that exists is current. An object of a kind whose controller always writes a status is unknown until that controller has written it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::reason::NO_CONTROLLER;

use crate::answer::Live;

/// The health of an object, in kstatus' terms. A text is the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Health {
    /// The object is as its spec wants it.
    Current,
    /// A controller is still bringing the object to its spec.
    InProgress(String),
    /// The object will not become ready by itself.
    Failed(String),
    /// The object is being deleted.
    Terminating,
    /// The object does not exist.
    NotFound,
    /// The health is unknown.
    Unknown(String),
}

impl Health {
    /// Returns the name of kstatus for this health.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::InProgress(_) => "InProgress",
            Self::Failed(_) => "Failed",
            Self::Terminating => "Terminating",
            Self::NotFound => "NotFound",
            Self::Unknown(_) => "Unknown",
        }
    }

    /// Returns the message, empty if the health has none.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::InProgress(message) | Self::Failed(message) | Self::Unknown(message) => message,
            Self::Current | Self::Terminating | Self::NotFound => "",
        }
    }
}

/// Returns the health by the result of a read.
#[must_use]
pub fn assess_live(live: &Live) -> Health {
    match live {
        Live::Absent | Live::Unserved => Health::NotFound,
        Live::Present(object) => assess_object(&object.0),
        Live::Failed(failure) => Health::Unknown(failure.message.clone()),
    }
}

/// Returns the health of an existing object.
#[must_use]
pub fn assess_object(object: &Value) -> Health {
    let object = ObjectView::new(object);
    if object.is_being_deleted() {
        return Health::Terminating;
    }
    let generation = object.find_number("/metadata/generation");
    let observed = object.find_number("/status/observedGeneration");
    if let (Some(generation), Some(observed)) = (generation, observed)
        && generation != observed
        && observed != NOTHING_OBSERVED
    {
        return Health::InProgress(format!(
            "its controller has not processed generation {generation} yet (the last one is {observed})"
        ));
    }
    if let Some(condition) = object.find_condition("Reconciling")
        && condition.status == "True"
    {
        return Health::InProgress(condition.message.to_owned());
    }
    if let Some(condition) = object.find_condition("Stalled")
        && condition.status == "True"
    {
        return Health::Failed(condition.message.to_owned());
    }
    let api_version = object.read_text("/apiVersion");
    let (group, _) = tenure_api::inventory::split_api_version(api_version);
    let kind = object.read_text("/kind");
    match (group, kind) {
        ("apps" | "extensions", "Deployment") => assess_deployment(object),
        ("apps", "StatefulSet") => assess_stateful_set(object),
        ("apps" | "extensions", "DaemonSet") => assess_daemon_set(object),
        ("apps" | "extensions", "ReplicaSet") => assess_replica_set(object),
        ("", "Pod") => assess_pod(object),
        ("", "PersistentVolumeClaim") => assess_volume_claim(object),
        ("", "Service") => assess_service(object),
        ("batch", "Job") => assess_job(object),
        ("policy", "PodDisruptionBudget") => Health::Current,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => assess_definition(object),
        ("", "Secret" | "ConfigMap") | ("batch", "CronJob") => Health::Current,
        _ => assess_ready_condition(object),
    }
}

/// The observed generation that the schemas of Flux's kinds set before a controller has written the status.
const NOTHING_OBSERVED: i64 = -1;

/// The kinds whose controllers always write a status. For other kinds, a missing status says nothing.
const WITH_STATUS: [(&str, &[&str]); 8] = [
    (
        "tenure.dev",
        &["Surface", "AccessProvider", "FluxAccess", "FluxAccessRequest"],
    ),
    ("kustomize.toolkit.fluxcd.io", &["Kustomization"]),
    ("helm.toolkit.fluxcd.io", &["HelmRelease"]),
    (
        "source.toolkit.fluxcd.io",
        &[
            "Bucket",
            "ExternalArtifact",
            "GitRepository",
            "HelmChart",
            "HelmRepository",
            "OCIRepository",
        ],
    ),
    ("source.extensions.fluxcd.io", &["ArtifactGenerator"]),
    ("notification.toolkit.fluxcd.io", &["Receiver"]),
    (
        "image.toolkit.fluxcd.io",
        &["ImagePolicy", "ImageRepository", "ImageUpdateAutomation"],
    ),
    ("capsule.clastix.io", &["Tenant"]),
];

/// Checks whether no controller has written the status of an object that has no condition Ready.
fn is_unobserved(object: ObjectView<'_>) -> bool {
    if object.find_number("/status/observedGeneration") == Some(NOTHING_OBSERVED) {
        return true;
    }
    let (group, _) = tenure_api::inventory::split_api_version(object.read_text("/apiVersion"));
    let kind = object.read_text("/kind");
    let is_empty = object
        .find("/status")
        .and_then(Value::as_object)
        .is_none_or(serde_json::Map::is_empty);
    // Flux's controller leaves such a repository without a status.
    let is_static = kind == "HelmRepository" && object.find_text("/spec/type") == Some("oci");
    let has_status = |(known, kinds): &(&str, &[&str])| *known == group && kinds.contains(&kind);
    is_empty && !is_static && WITH_STATUS.iter().any(has_status)
}

fn assess_ready_condition(object: ObjectView<'_>) -> Health {
    let in_progress = |message: &str, otherwise: &str| {
        let message = if message.is_empty() { otherwise } else { message };
        Health::InProgress(message.to_owned())
    };
    match object.find_condition("Ready") {
        None if is_unobserved(object) => {
            Health::Unknown(format!("{NO_CONTROLLER}: no controller has written its status"))
        }
        None => Health::Current,
        Some(ready) if ready.status == "True" => Health::Current,
        Some(ready) if ready.status == "False" => in_progress(ready.message, "Ready is False"),
        Some(ready) => in_progress(ready.message, "Ready is Unknown"),
    }
}

fn report_progress(done: i64, wanted: i64, word: &str) -> Option<Health> {
    (done < wanted).then(|| Health::InProgress(format!("{word}: {done}/{wanted}")))
}

fn check_observed(object: ObjectView<'_>) -> Option<Health> {
    let observed = object.find_number("/status/observedGeneration");
    (observed.is_none() && object.has("/metadata/generation"))
        .then(|| Health::InProgress("its controller has not processed it yet".to_owned()))
}

fn assess_deployment(object: ObjectView<'_>) -> Health {
    let is_over = |reason: &str| reason == "ProgressDeadlineExceeded";
    if object.list_conditions().any(|condition| is_over(condition.reason)) {
        return Health::Failed("progress deadline exceeded".to_owned());
    }
    if let Some(condition) = object.find_condition("ReplicaFailure")
        && condition.status == "True"
    {
        return Health::InProgress(condition.message.to_owned());
    }
    if let Some(health) = check_observed(object) {
        return health;
    }
    let wanted = object.find_number("/spec/replicas").unwrap_or(1);
    let replicas = object.find_number("/status/replicas").unwrap_or(0);
    let updated = object.find_number("/status/updatedReplicas").unwrap_or(0);
    let ready = object.find_number("/status/readyReplicas").unwrap_or(0);
    let available = object.find_number("/status/availableReplicas").unwrap_or(0);
    report_progress(updated, wanted, "updated replicas")
        .or_else(|| {
            (replicas > wanted)
                .then(|| Health::InProgress(format!("{} old replicas are still there", replicas - wanted)))
        })
        .or_else(|| report_progress(available, updated, "available replicas"))
        .or_else(|| report_progress(ready, wanted, "ready replicas"))
        .or_else(|| match object.find_condition("Available") {
            Some(available) if available.status == "True" => None,
            // A Deployment of no replicas has nothing that could become available.
            None if wanted == 0 => None,
            Some(available) => Some(Health::InProgress(available.message.to_owned())),
            None => Some(Health::InProgress("not available yet".to_owned())),
        })
        .unwrap_or(Health::Current)
}

fn assess_stateful_set(object: ObjectView<'_>) -> Health {
    if object.find_text("/spec/updateStrategy/type") == Some("OnDelete") {
        return Health::Current;
    }
    if let Some(health) = check_observed(object) {
        return health;
    }
    let wanted = object.find_number("/spec/replicas").unwrap_or(1);
    let partition = object
        .find_number("/spec/updateStrategy/rollingUpdate/partition")
        .unwrap_or(0);
    let replicas = object.find_number("/status/replicas").unwrap_or(0);
    let ready = object.find_number("/status/readyReplicas").unwrap_or(0);
    let current = object.find_number("/status/currentReplicas").unwrap_or(0);
    let updated = object.find_number("/status/updatedReplicas").unwrap_or(0);
    if let Some(health) =
        report_progress(replicas, wanted, "replicas").or_else(|| report_progress(ready, wanted, "ready replicas"))
    {
        return health;
    }
    if replicas > wanted {
        return Health::InProgress(format!("{} replicas too many", replicas - wanted));
    }
    if partition > 0 {
        return report_progress(updated, wanted - partition, "updated replicas").unwrap_or(Health::Current);
    }
    if object.read_text("/status/currentRevision") != object.read_text("/status/updateRevision") {
        return report_progress(updated, wanted, "updated replicas")
            .unwrap_or_else(|| Health::InProgress("the revision is being updated".to_owned()));
    }
    report_progress(current, wanted, "current replicas").unwrap_or(Health::Current)
}

fn assess_daemon_set(object: ObjectView<'_>) -> Health {
    if let Some(health) = check_observed(object) {
        return health;
    }
    let Some(wanted) = object.find_number("/status/desiredNumberScheduled") else {
        return Health::InProgress("not scheduled yet".to_owned());
    };
    report_progress(
        object.find_number("/status/currentNumberScheduled").unwrap_or(0),
        wanted,
        "scheduled",
    )
    .or_else(|| {
        report_progress(
            object.find_number("/status/updatedNumberScheduled").unwrap_or(0),
            wanted,
            "updated",
        )
    })
    .or_else(|| {
        report_progress(
            object.find_number("/status/numberAvailable").unwrap_or(0),
            wanted,
            "available",
        )
    })
    .or_else(|| report_progress(object.find_number("/status/numberReady").unwrap_or(0), wanted, "ready"))
    .unwrap_or(Health::Current)
}

fn assess_replica_set(object: ObjectView<'_>) -> Health {
    if let Some(health) = check_observed(object) {
        return health;
    }
    if let Some(condition) = object.find_condition("ReplicaFailure")
        && condition.status == "True"
    {
        return Health::InProgress(condition.message.to_owned());
    }
    let wanted = object.find_number("/spec/replicas").unwrap_or(1);
    let replicas = object.find_number("/status/replicas").unwrap_or(0);
    report_progress(
        object.find_number("/status/fullyLabeledReplicas").unwrap_or(0),
        wanted,
        "labelled replicas",
    )
    .or_else(|| {
        report_progress(
            object.find_number("/status/availableReplicas").unwrap_or(0),
            wanted,
            "available replicas",
        )
    })
    .or_else(|| {
        report_progress(
            object.find_number("/status/readyReplicas").unwrap_or(0),
            wanted,
            "ready replicas",
        )
    })
    .or_else(|| (replicas > wanted).then(|| Health::InProgress(format!("{} replicas too many", replicas - wanted))))
    .unwrap_or(Health::Current)
}

fn assess_pod(object: ObjectView<'_>) -> Health {
    match object.read_text("/status/phase") {
        "Succeeded" => Health::Current,
        "Failed" => Health::Failed("the Pod has failed".to_owned()),
        "Running" => match object.find_condition("Ready") {
            Some(ready) if ready.status == "True" => Health::Current,
            _ => match find_waiting_reason(object) {
                Some("CrashLoopBackOff") => Health::Failed("a container keeps crashing".to_owned()),
                _ => Health::InProgress("the Pod is running, but not ready".to_owned()),
            },
        },
        _ => match object.find_condition("PodScheduled") {
            Some(scheduled) if scheduled.status == "False" => {
                Health::InProgress(format!("the Pod is not scheduled: {}", scheduled.message))
            }
            _ => Health::InProgress("the Pod is pending".to_owned()),
        },
    }
}

fn find_waiting_reason(pod: ObjectView<'_>) -> Option<&str> {
    pod.list_views("/status/containerStatuses")
        .find_map(|status| status.find_text("/state/waiting/reason"))
}

fn assess_volume_claim(object: ObjectView<'_>) -> Health {
    match object.read_text("/status/phase") {
        "Bound" => Health::Current,
        phase => Health::InProgress(format!("the claim is not bound (phase {phase:?})")),
    }
}

fn assess_service(object: ObjectView<'_>) -> Health {
    if object.find_text("/spec/type") != Some("LoadBalancer") {
        return Health::Current;
    }
    let ip = object.read_text("/spec/clusterIP");
    if ip.is_empty() || object.list("/status/loadBalancer/ingress").is_empty() {
        return Health::InProgress("the load balancer has no address yet".to_owned());
    }
    Health::Current
}

/// Returns the health of a Job. It is current after it has completed, or while it is suspended. (Flux's rule: for kstatus, a started Job is current.)
fn assess_job(object: ObjectView<'_>) -> Health {
    if object.is_true("/spec/suspend") {
        return Health::Current;
    }
    if let Some(condition) = object.find_condition("Failed")
        && condition.status == "True"
    {
        return Health::Failed(condition.message.to_owned());
    }
    match object.find_condition("Complete") {
        Some(complete) if complete.status == "True" => Health::Current,
        _ => Health::InProgress("the Job has not completed".to_owned()),
    }
}

fn assess_definition(object: ObjectView<'_>) -> Health {
    if let Some(condition) = object.find_condition("NamesAccepted")
        && condition.status == "False"
    {
        return Health::Failed(condition.message.to_owned());
    }
    match object.find_condition("Established") {
        Some(established) if established.status == "True" => Health::Current,
        Some(established) => Health::InProgress(established.message.to_owned()),
        None => Health::InProgress("not established yet".to_owned()),
    }
}
