//! The statuses of objects that finish once: Pods, Jobs, volume claims. An object that already has a later status
//! stays unchanged.

use serde_json::{Value, json};

use super::super::object_name::get_text;

/// Reports a Pod as running and ready, or as succeeded if it is not to be restarted.
pub(super) fn report_pod(object: &Value) -> Option<Value> {
    if !matches!(get_text(object, "/status/phase"), "" | "Pending") {
        return None;
    }
    let created = get_text(object, "/metadata/creationTimestamp");
    let restarts = matches!(get_text(object, "/spec/restartPolicy"), "" | "Always");
    let containers: Vec<Value> = object
        .pointer("/spec/containers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|container| {
            let state = if restarts {
                json!({ "running": { "startedAt": created } })
            } else {
                json!({ "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": created, "finishedAt": created } })
            };
            json!({
                "name": get_text(container, "/name"),
                "image": get_text(container, "/image"),
                "imageID": "",
                "ready": restarts,
                "started": restarts,
                "restartCount": 0,
                "state": state,
            })
        })
        .collect();
    let ready = if restarts { "True" } else { "False" };
    let conditions: Vec<Value> = [
        ("PodScheduled", "True"),
        ("Initialized", "True"),
        ("ContainersReady", ready),
        ("Ready", ready),
    ]
    .into_iter()
    .map(|(kind, status)| {
        let mut condition =
            json!({ "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": created });
        if status == "False"
            && let Some(fields) = condition.as_object_mut()
        {
            fields.insert("reason".to_owned(), json!("PodCompleted"));
        }
        condition
    })
    .collect();
    let mut status = object
        .get("status")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    status.insert(
        "phase".to_owned(),
        json!(if restarts { "Running" } else { "Succeeded" }),
    );
    status.insert("startTime".to_owned(), json!(created));
    status.insert("conditions".to_owned(), json!(conditions));
    status.insert("containerStatuses".to_owned(), json!(containers));
    Some(Value::Object(status))
}

/// Reports a Job as completed, unless it is suspended.
pub(super) fn report_job(object: &Value) -> Option<Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let has = |kind: &str| {
        conditions.is_some_and(|list| {
            list.iter()
                .any(|condition| get_text(condition, "/type") == kind && get_text(condition, "/status") == "True")
        })
    };
    if has("Complete") || has("Failed") {
        return None;
    }
    let created = get_text(object, "/metadata/creationTimestamp");
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastProbeTime": created,
            "lastTransitionTime": created,
        })
    };
    if object.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
        let suspended = json!({ "conditions": [condition("Suspended", "JobSuspended", "Job suspended")] });
        return (!has("Suspended")).then_some(suspended);
    }
    let completions = object.pointer("/spec/completions").and_then(Value::as_i64).unwrap_or(1);
    let message = "Reached expected number of succeeded pods";
    Some(json!({
        "startTime": created,
        "completionTime": created,
        "succeeded": completions,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
        "conditions": [
            condition("SuccessCriteriaMet", "CompletionsReached", message),
            condition("Complete", "CompletionsReached", message),
        ],
    }))
}

/// Reports a claim as bound with its requested size.
pub(super) fn report_claim(object: &Value) -> Option<Value> {
    if !matches!(get_text(object, "/status/phase"), "" | "Pending") {
        return None;
    }
    let spec = |pointer: &str, default: Value| object.pointer(pointer).cloned().unwrap_or(default);
    Some(json!({
        "phase": "Bound",
        "accessModes": spec("/spec/accessModes", json!([])),
        "capacity": spec("/spec/resources/requests", json!({})),
    }))
}

/// Gives a Service of type LoadBalancer its cluster IP as its address; nothing listens there. A Service with a load
/// balancer class belongs to another controller.
pub(super) fn report_service(object: &Value) -> Option<Value> {
    let has_address = object
        .pointer("/status/loadBalancer/ingress")
        .and_then(Value::as_array)
        .is_some_and(|addresses| !addresses.is_empty());
    let is_ours =
        get_text(object, "/spec/type") == "LoadBalancer" && get_text(object, "/spec/loadBalancerClass").is_empty();
    if has_address || !is_ours {
        return None;
    }
    let asked = get_text(object, "/spec/loadBalancerIP");
    let own = object.pointer("/spec/clusterIPs").and_then(Value::as_array);
    let addresses: Vec<&str> = match asked {
        "" => own.into_iter().flatten().filter_map(Value::as_str).collect(),
        asked => vec![asked],
    };
    let addresses: Vec<Value> = addresses
        .into_iter()
        .map(|address| json!({ "ip": address, "ipMode": "VIP" }))
        .collect();
    if addresses.is_empty() {
        return None;
    }
    let mut status = object
        .get("status")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    status.insert("loadBalancer".to_owned(), json!({ "ingress": addresses }));
    Some(Value::Object(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_runs_or_has_run() {
        let pod_with = |policy: &str| {
            json!({
                "metadata": { "creationTimestamp": "2026-01-02T03:04:05Z" },
                "spec": { "restartPolicy": policy, "containers": [{ "name": "c", "image": "i:1" }] },
                "status": { "phase": "Pending", "qosClass": "BestEffort" },
            })
        };
        let running = report_pod(&pod_with("Always")).unwrap_or_default();
        assert_eq!(running["phase"], "Running");
        assert_eq!(running["qosClass"], "BestEffort");
        assert_eq!(running["conditions"][3]["status"], "True");
        assert_eq!(running["containerStatuses"][0]["ready"], true);
        let done = report_pod(&pod_with("Never")).unwrap_or_default();
        assert_eq!(
            (&done["phase"], &done["conditions"][3]["reason"]),
            (&json!("Succeeded"), &json!("PodCompleted"))
        );
        assert_eq!(report_pod(&json!({ "status": { "phase": "Failed" } })), None);
    }

    #[test]
    fn a_job_completes_unless_suspended() {
        let done = report_job(&json!({ "spec": { "completions": 3 } })).unwrap_or_default();
        assert_eq!(done["succeeded"], 3);
        assert_eq!(report_job(&json!({ "status": done })), None);
        let suspended = report_job(&json!({ "spec": { "suspend": true } })).unwrap_or_default();
        assert_eq!(suspended["conditions"][0]["type"], "Suspended");
        assert_eq!(
            report_job(&json!({ "spec": { "suspend": true }, "status": suspended })),
            None
        );
        assert!(report_job(&json!({ "spec": { "suspend": false }, "status": suspended })).is_some());
    }

    #[test]
    fn a_load_balancer_has_an_address() {
        let mut object = json!({ "spec": { "type": "LoadBalancer", "clusterIPs": ["10.96.0.7"] } });
        let status = report_service(&object).unwrap_or_default();
        assert_eq!(
            status,
            json!({ "loadBalancer": { "ingress": [{ "ip": "10.96.0.7", "ipMode": "VIP" }] } })
        );
        object["spec"]["loadBalancerIP"] = json!("192.0.2.9");
        let asked = report_service(&object).unwrap_or_default();
        assert_eq!(asked["loadBalancer"]["ingress"][0]["ip"], "192.0.2.9");
        object["status"] = status;
        assert_eq!(report_service(&object), None);
        assert_eq!(
            report_service(&json!({ "spec": { "type": "ClusterIP", "clusterIPs": ["10.96.0.7"] } })),
            None
        );
    }

    #[test]
    fn a_claim_gets_what_it_asks_for() {
        let object =
            json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
        let status = report_claim(&object).unwrap_or_default();
        assert_eq!(
            status,
            json!({ "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" } })
        );
        assert_eq!(report_claim(&json!({ "status": status })), None);
    }
}
