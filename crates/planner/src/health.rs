//! Whether an object is as its spec wants it: kstatus' rules, from the object alone.
//!
//! Order, as in Flux: being deleted → generation not observed → conditions Reconciling and Stalled → the kind's own rule → the Ready
//! condition → without either, an object that exists is current.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answer::Live;

/// The health of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Health {
    /// As its spec wants it.
    Current,
    /// On the way there.
    InProgress(String),
    /// It will not get there by itself.
    Failed(String),
    /// It is being deleted.
    Terminating,
    /// It does not exist.
    NotFound,
    /// It cannot be told.
    Unknown(String),
}

impl Health {
    /// kstatus' word.
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

    /// What there is to say.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::InProgress(message) | Self::Failed(message) | Self::Unknown(message) => message,
            Self::Current | Self::Terminating | Self::NotFound => "",
        }
    }
}

/// The health of what was read.
#[must_use]
pub fn of_live(live: &Live) -> Health {
    match live {
        Live::Absent | Live::Unserved => Health::NotFound,
        Live::Present(object) => of(&object.0),
        Live::Failed(failure) => Health::Unknown(failure.message.clone()),
    }
}

/// The health of an object.
#[must_use]
pub fn of(object: &Value) -> Health {
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return Health::Terminating;
    }
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    let observed = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
    if let (Some(generation), Some(observed)) = (generation, observed)
        && generation != observed
    {
        return Health::InProgress(format!("generation {generation} is not observed yet ({observed} is)"));
    }
    if let Some((status, message)) = condition(object, "Reconciling")
        && status == "True"
    {
        return Health::InProgress(message);
    }
    if let Some((status, message)) = condition(object, "Stalled")
        && status == "True"
    {
        return Health::Failed(message);
    }
    let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let (group, _) = tenure_api::inventory::split_api_version(api_version);
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    match (group, kind) {
        ("apps" | "extensions", "Deployment") => deployment(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("apps" | "extensions", "DaemonSet") => daemon_set(object),
        ("apps" | "extensions", "ReplicaSet") => replica_set(object),
        ("", "Pod") => pod(object),
        ("", "PersistentVolumeClaim") => persistent_volume_claim(object),
        ("", "Service") => service(object),
        ("batch", "Job") => job(object),
        ("policy", "PodDisruptionBudget") => Health::Current,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => custom_resource_definition(object),
        ("", "Secret" | "ConfigMap") | ("batch", "CronJob") => Health::Current,
        _ => ready_condition(object),
    }
}

/// A condition as an object of any kind states it; what it leaves out is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatedCondition<'a> {
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

impl<'a> StatedCondition<'a> {
    /// The first condition of that type in the object's status.
    pub(crate) fn of(object: &'a Value, type_: &str) -> Option<Self> {
        fn text<'a>(condition: &'a Value, key: &str) -> &'a str {
            condition.get(key).and_then(Value::as_str).unwrap_or_default()
        }
        let conditions = object.pointer("/status/conditions")?.as_array()?;
        let condition = conditions.iter().find(|condition| text(condition, "type") == type_)?;
        Some(Self {
            status: text(condition, "status"),
            reason: text(condition, "reason"),
            message: text(condition, "message"),
        })
    }
}

fn condition(object: &Value, type_: &str) -> Option<(String, String)> {
    StatedCondition::of(object, type_).map(|condition| (condition.status.to_owned(), condition.message.to_owned()))
}

fn number(object: &Value, pointer: &str, default: i64) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(default)
}

fn ready_condition(object: &Value) -> Health {
    match condition(object, "Ready") {
        None => Health::Current,
        Some((status, _)) if status == "True" => Health::Current,
        Some((status, message)) if status == "False" => Health::InProgress(if message.is_empty() {
            "Ready is False".to_owned()
        } else {
            message
        }),
        Some((_, message)) => Health::InProgress(if message.is_empty() {
            "Ready is Unknown".to_owned()
        } else {
            message
        }),
    }
}

fn in_progress(done: i64, wanted: i64, word: &str) -> Option<Health> {
    (done < wanted).then(|| Health::InProgress(format!("{word}: {done}/{wanted}")))
}

fn unobserved(object: &Value) -> Option<Health> {
    let observed = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
    (observed.is_none() && object.pointer("/metadata/generation").is_some())
        .then(|| Health::InProgress("generation is not observed yet".to_owned()))
}

fn deployment(object: &Value) -> Health {
    let deadline_exceeded = object
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|condition| condition.get("reason").and_then(Value::as_str) == Some("ProgressDeadlineExceeded"));
    if deadline_exceeded.is_some() {
        return Health::Failed("progress deadline exceeded".to_owned());
    }
    if let Some((status, message)) = condition(object, "ReplicaFailure")
        && status == "True"
    {
        return Health::InProgress(message);
    }
    if let Some(health) = unobserved(object) {
        return health;
    }
    let wanted = number(object, "/spec/replicas", 1);
    let replicas = number(object, "/status/replicas", 0);
    let updated = number(object, "/status/updatedReplicas", 0);
    let ready = number(object, "/status/readyReplicas", 0);
    let available = number(object, "/status/availableReplicas", 0);
    in_progress(updated, wanted, "updated replicas")
        .or_else(|| {
            (replicas > wanted)
                .then(|| Health::InProgress(format!("{} old replicas are still there", replicas - wanted)))
        })
        .or_else(|| in_progress(available, updated, "available replicas"))
        .or_else(|| in_progress(ready, wanted, "ready replicas"))
        .or_else(|| match condition(object, "Available") {
            Some((status, _)) if status == "True" => None,
            // A Deployment of no replicas has nothing that could become available.
            None if wanted == 0 => None,
            Some((_, message)) => Some(Health::InProgress(message)),
            None => Some(Health::InProgress("not available yet".to_owned())),
        })
        .unwrap_or(Health::Current)
}

fn stateful_set(object: &Value) -> Health {
    if object.pointer("/spec/updateStrategy/type").and_then(Value::as_str) == Some("OnDelete") {
        return Health::Current;
    }
    if let Some(health) = unobserved(object) {
        return health;
    }
    let wanted = number(object, "/spec/replicas", 1);
    let partition = number(object, "/spec/updateStrategy/rollingUpdate/partition", 0);
    let replicas = number(object, "/status/replicas", 0);
    let ready = number(object, "/status/readyReplicas", 0);
    let current = number(object, "/status/currentReplicas", 0);
    let updated = number(object, "/status/updatedReplicas", 0);
    if let Some(health) =
        in_progress(replicas, wanted, "replicas").or_else(|| in_progress(ready, wanted, "ready replicas"))
    {
        return health;
    }
    if replicas > wanted {
        return Health::InProgress(format!("{} replicas too many", replicas - wanted));
    }
    if partition > 0 {
        return in_progress(updated, wanted - partition, "updated replicas").unwrap_or(Health::Current);
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if text("/status/currentRevision") != text("/status/updateRevision") {
        return in_progress(updated, wanted, "updated replicas")
            .unwrap_or_else(|| Health::InProgress("the revision is being updated".to_owned()));
    }
    in_progress(current, wanted, "current replicas").unwrap_or(Health::Current)
}

fn daemon_set(object: &Value) -> Health {
    if let Some(health) = unobserved(object) {
        return health;
    }
    let Some(wanted) = object.pointer("/status/desiredNumberScheduled").and_then(Value::as_i64) else {
        return Health::InProgress("not scheduled yet".to_owned());
    };
    in_progress(number(object, "/status/currentNumberScheduled", 0), wanted, "scheduled")
        .or_else(|| in_progress(number(object, "/status/updatedNumberScheduled", 0), wanted, "updated"))
        .or_else(|| in_progress(number(object, "/status/numberAvailable", 0), wanted, "available"))
        .or_else(|| in_progress(number(object, "/status/numberReady", 0), wanted, "ready"))
        .unwrap_or(Health::Current)
}

fn replica_set(object: &Value) -> Health {
    if let Some(health) = unobserved(object) {
        return health;
    }
    if let Some((status, message)) = condition(object, "ReplicaFailure")
        && status == "True"
    {
        return Health::InProgress(message);
    }
    let wanted = number(object, "/spec/replicas", 1);
    let replicas = number(object, "/status/replicas", 0);
    in_progress(
        number(object, "/status/fullyLabeledReplicas", 0),
        wanted,
        "labelled replicas",
    )
    .or_else(|| {
        in_progress(
            number(object, "/status/availableReplicas", 0),
            wanted,
            "available replicas",
        )
    })
    .or_else(|| in_progress(number(object, "/status/readyReplicas", 0), wanted, "ready replicas"))
    .or_else(|| (replicas > wanted).then(|| Health::InProgress(format!("{} replicas too many", replicas - wanted))))
    .unwrap_or(Health::Current)
}

fn pod(object: &Value) -> Health {
    match object
        .pointer("/status/phase")
        .and_then(Value::as_str)
        .unwrap_or_default()
    {
        "Succeeded" => Health::Current,
        "Failed" => Health::Failed("the Pod has failed".to_owned()),
        "Running" => match condition(object, "Ready") {
            Some((status, _)) if status == "True" => Health::Current,
            _ => match waiting_reason(object) {
                Some("CrashLoopBackOff") => Health::Failed("a container keeps crashing".to_owned()),
                _ => Health::InProgress("the Pod is running, but not ready".to_owned()),
            },
        },
        _ => match condition(object, "PodScheduled") {
            Some((status, message)) if status == "False" => {
                Health::InProgress(format!("the Pod is not scheduled: {message}"))
            }
            _ => Health::InProgress("the Pod is pending".to_owned()),
        },
    }
}

fn waiting_reason(pod: &Value) -> Option<&str> {
    let statuses = pod.pointer("/status/containerStatuses")?.as_array()?;
    statuses
        .iter()
        .find_map(|status| status.pointer("/state/waiting/reason")?.as_str())
}

fn persistent_volume_claim(object: &Value) -> Health {
    match object
        .pointer("/status/phase")
        .and_then(Value::as_str)
        .unwrap_or_default()
    {
        "Bound" => Health::Current,
        phase => Health::InProgress(format!("the claim is not bound (phase {phase:?})")),
    }
}

fn service(object: &Value) -> Health {
    if object.pointer("/spec/type").and_then(Value::as_str) != Some("LoadBalancer") {
        return Health::Current;
    }
    let ip = object
        .pointer("/spec/clusterIP")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let ingress = object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    if ip.is_empty() || ingress.is_none_or(Vec::is_empty) {
        return Health::InProgress("the load balancer has no address yet".to_owned());
    }
    Health::Current
}

/// A Job must complete, or be suspended. (A started Job is not enough: Flux's own rule, stricter than kstatus'.)
fn job(object: &Value) -> Health {
    if object.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true) {
        return Health::Current;
    }
    if let Some((status, message)) = condition(object, "Failed")
        && status == "True"
    {
        return Health::Failed(message);
    }
    match condition(object, "Complete") {
        Some((status, _)) if status == "True" => Health::Current,
        _ => Health::InProgress("the Job has not completed".to_owned()),
    }
}

fn custom_resource_definition(object: &Value) -> Health {
    if let Some((status, message)) = condition(object, "NamesAccepted")
        && status == "False"
    {
        return Health::Failed(message);
    }
    match condition(object, "Established") {
        Some((status, _)) if status == "True" => Health::Current,
        Some((_, message)) => Health::InProgress(message),
        None => Health::InProgress("not established yet".to_owned()),
    }
}
