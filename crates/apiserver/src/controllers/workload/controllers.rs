//! The statuses of kinds with a number of Pods: Deployments, ReplicaSets, ReplicationControllers, StatefulSets and
//! DaemonSets. Each generation gets a status once.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::object_name::get_text;
use crate::authentication::api_time;

/// The reason of a Deployment whose ReplicaSet was refused, as in Kubernetes.
const REFUSED: &str = "ReplicaSetCreateError";

/// Returns the object's generation, unless its status has observed it already.
fn find_unobserved_generation(object: &Value) -> Option<i64> {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let generation = number("/metadata/generation").unwrap_or(1);
    (number("/status/observedGeneration") != Some(generation)).then_some(generation)
}

fn get_replicas(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

/// Returns the current status, to be changed: other fields stay.
fn copy_status(object: &Value) -> Map<String, Value> {
    object
        .get("status")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

/// Sets counts. Zero counts are left out, as in Kubernetes.
fn set_counts(status: &mut Map<String, Value>, counts: &[(&str, i64)]) {
    for (key, count) in counts {
        if *count == 0 {
            status.remove(*key);
        } else {
            status.insert((*key).to_owned(), json!(count));
        }
    }
}

/// Returns the status of a rolled out Deployment.
pub(super) fn report_deployment(object: &Value) -> Option<Value> {
    // The condition still reports a refused ReplicaSet, and it is now accepted. So the status is written again.
    let generation = match find_progressing_condition(object) {
        Some(condition) if get_text(condition, "/reason") == REFUSED => {
            object.pointer("/metadata/generation")?.as_i64()?
        }
        _ => find_unobserved_generation(object)?,
    };
    let replicas = get_replicas(object);
    let mut status = copy_status(object);
    status.insert("observedGeneration".to_owned(), json!(generation));
    set_counts(
        &mut status,
        &[
            ("replicas", replicas),
            ("updatedReplicas", replicas),
            ("readyReplicas", replicas),
            ("availableReplicas", replicas),
            ("unavailableReplicas", 0),
        ],
    );
    let created = get_text(object, "/metadata/creationTimestamp");
    let name = get_text(object, "/metadata/name");
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": created,
            "lastUpdateTime": created,
        })
    };
    let progress = format!("Deployment \"{name}\" has successfully progressed.");
    status.insert(
        "conditions".to_owned(),
        json!([
            condition(
                "Available",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability."
            ),
            condition("Progressing", "NewReplicaSetAvailable", &progress),
        ]),
    );
    Some(Value::Object(status))
}

fn find_progressing_condition(deployment: &Value) -> Option<&Value> {
    let conditions = deployment.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| get_text(condition, "/type") == "Progressing")
}

/// Returns a Deployment with the condition that its newest ReplicaSet was refused, and why; `None` if the condition
/// exists already. The generation counts as observed only once a ReplicaSet is accepted.
pub(crate) fn with_refusal(deployment: &Value, set: &str, why: &str, now: Timestamp) -> Option<Value> {
    let message = format!("Failed to create new replica set \"{set}\": {why}");
    let is_refused = find_progressing_condition(deployment).is_some_and(|condition| {
        get_text(condition, "/reason") == REFUSED && get_text(condition, "/message") == message
    });
    if is_refused {
        return None;
    }
    let now = api_time(now);
    let condition = json!({
        "type": "Progressing",
        "status": "False",
        "reason": REFUSED,
        "message": message,
        "lastTransitionTime": now,
        "lastUpdateTime": now,
    });
    let mut status = copy_status(deployment);
    let conditions = status.get("conditions").and_then(Value::as_array).cloned();
    let mut conditions = conditions.unwrap_or_default();
    conditions.retain(|condition| get_text(condition, "/type") != "Progressing");
    conditions.push(condition);
    status.insert("conditions".to_owned(), Value::Array(conditions));
    let mut deployment = deployment.clone();
    deployment
        .as_object_mut()?
        .insert("status".to_owned(), Value::Object(status));
    Some(deployment)
}

/// Returns the status of a ReplicaSet or ReplicationController whose replicas are all available.
pub(super) fn replica_set(object: &Value) -> Option<Value> {
    let generation = find_unobserved_generation(object)?;
    let replicas = get_replicas(object);
    let mut status = copy_status(object);
    status.insert("observedGeneration".to_owned(), json!(generation));
    status.insert("replicas".to_owned(), json!(replicas));
    set_counts(
        &mut status,
        &[
            ("fullyLabeledReplicas", replicas),
            ("readyReplicas", replicas),
            ("availableReplicas", replicas),
        ],
    );
    Some(Value::Object(status))
}

/// Returns the status of a rolled out StatefulSet.
pub(super) fn stateful_set(object: &Value) -> Option<Value> {
    let generation = find_unobserved_generation(object)?;
    let replicas = get_replicas(object);
    let revision = format!("{}-{generation}", get_text(object, "/metadata/name"));
    let mut status = copy_status(object);
    status.insert("observedGeneration".to_owned(), json!(generation));
    status.insert("replicas".to_owned(), json!(replicas));
    status.insert("availableReplicas".to_owned(), json!(replicas));
    status.insert("currentRevision".to_owned(), json!(revision));
    status.insert("updateRevision".to_owned(), json!(revision));
    set_counts(
        &mut status,
        &[
            ("readyReplicas", replicas),
            ("currentReplicas", replicas),
            ("updatedReplicas", replicas),
        ],
    );
    Some(Value::Object(status))
}

/// Returns the status of a DaemonSet. The cluster has no nodes, so no Pod is desired and none is missing.
pub(super) fn daemon_set(object: &Value) -> Option<Value> {
    let generation = find_unobserved_generation(object)?;
    let mut status = copy_status(object);
    status.insert("observedGeneration".to_owned(), json!(generation));
    for key in [
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberMisscheduled",
        "numberReady",
    ] {
        status.insert(key.to_owned(), json!(0));
    }
    set_counts(
        &mut status,
        &[
            ("updatedNumberScheduled", 0),
            ("numberAvailable", 0),
            ("numberUnavailable", 0),
        ],
    );
    Some(Value::Object(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_generation_is_reported_once() {
        let mut object = json!({
            "metadata": { "name": "web", "generation": 2, "creationTimestamp": "2026-01-02T03:04:05Z" },
            "spec": { "replicas": 3 },
            "status": { "observedGeneration": 1, "unavailableReplicas": 3, "collisionCount": 1 },
        });
        let status = report_deployment(&object).unwrap_or_default();
        assert_eq!(status["readyReplicas"], 3);
        assert_eq!(status["observedGeneration"], 2);
        assert_eq!(status["collisionCount"], 1);
        assert_eq!(status.get("unavailableReplicas"), None);
        object["status"] = status;
        assert_eq!(report_deployment(&object), None);
        // A later status that another writer sets for the generation stays.
        object["status"]["readyReplicas"] = json!(0);
        assert_eq!(report_deployment(&object), None);
    }

    #[test]
    fn a_refused_replica_set_is_reported_until_it_exists() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap_or_default();
        let object = json!({
            "metadata": { "name": "web", "generation": 2 },
            "spec": { "replicas": 3 },
            "status": { "observedGeneration": 2, "readyReplicas": 3 },
        });
        let refused = with_refusal(&object, "web-x", "exceeded quota", now).unwrap_or_default();
        assert_eq!(
            refused["status"]["conditions"][0]["message"],
            "Failed to create new replica set \"web-x\": exceeded quota"
        );
        assert_eq!(
            refused["status"]["conditions"][0]["lastUpdateTime"],
            "2026-01-02T03:04:05Z"
        );
        assert_eq!(with_refusal(&refused, "web-x", "exceeded quota", now), None);
        assert!(with_refusal(&refused, "web-x", "another cause", now).is_some());
        let status = report_deployment(&refused).unwrap_or_default();
        assert_eq!(status["conditions"][1]["reason"], "NewReplicaSetAvailable");
    }

    #[test]
    fn workloads_with_zero_replicas_report_none() {
        let object = json!({ "metadata": { "name": "web", "generation": 1 }, "spec": { "replicas": 0 } });
        let status = report_deployment(&object).unwrap_or_default();
        assert_eq!(status.get("replicas"), None);
        assert_eq!(
            replica_set(&object),
            Some(json!({ "observedGeneration": 1, "replicas": 0 }))
        );
        let stateful = stateful_set(&object).unwrap_or_default();
        assert_eq!(stateful["currentRevision"], stateful["updateRevision"]);
        let daemon = daemon_set(&object).unwrap_or_default();
        assert_eq!(daemon["desiredNumberScheduled"], 0);
    }
}
