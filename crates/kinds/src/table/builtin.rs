//! Cells of built-in kinds: which kind has which, and the simple ones.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{NONE, age, int_or_string, list, number, or, selector, size, text};
use super::{Columns, duration, networking, storage, workloads};

/// One object's cells.
pub(super) fn cells(group: &str, resource: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = Value::from(text(object, "/metadata/name"));
    let age = || age(object, now);
    match (group, resource) {
        ("", "pods") => workloads::pod(object, now),
        ("", "configmaps") => vec![
            name,
            (size(object, "/data") + size(object, "/binaryData")).into(),
            age(),
        ],
        ("", "secrets") => vec![name, text(object, "/type").into(), size(object, "/data").into(), age()],
        ("", "namespaces") => vec![name, text(object, "/status/phase").into(), age()],
        ("", "serviceaccounts") => vec![name, age()],
        ("", "services") => networking::service(object, now),
        ("", "endpoints") => networking::endpoints(object, now),
        ("" | "events.k8s.io", "events") => event(object, now),
        ("", "persistentvolumeclaims") => storage::claim(object, now),
        ("", "persistentvolumes") => storage::volume(object, now),
        ("", "replicationcontrollers") | ("apps", "replicasets") => workloads::replica_set(object, now),
        ("", "podtemplates") => workloads::pod_template(object),
        ("", "resourcequotas") => quota(object, now),
        ("", "nodes") => node(object, now),
        ("", "componentstatuses") => component(object),
        ("apps", "deployments") => workloads::deployment(object, now),
        ("apps", "statefulsets") => workloads::stateful_set(object, now),
        ("apps", "daemonsets") => workloads::daemon_set(object, now),
        ("apps", "controllerrevisions") => workloads::revision(object, now),
        ("batch", "jobs") => workloads::job(object, now),
        ("batch", "cronjobs") => workloads::cron_job(object, now),
        ("autoscaling", "horizontalpodautoscalers") => workloads::autoscaler(object, now),
        ("policy", "poddisruptionbudgets") => {
            let part = |pointer: &str| Value::from(int_or_string(object, pointer).unwrap_or_else(|| "N/A".to_owned()));
            let allowed = number(object, "/status/disruptionsAllowed");
            vec![
                name,
                part("/spec/minAvailable"),
                part("/spec/maxUnavailable"),
                allowed.into(),
                age(),
            ]
        }
        ("networking.k8s.io", "ingresses") => networking::ingress(object, now),
        ("networking.k8s.io", "ingressclasses") => networking::ingress_class(object, now),
        ("networking.k8s.io", "networkpolicies") => vec![name, selector(object, "/spec/podSelector").into(), age()],
        ("networking.k8s.io", "servicecidrs") => {
            let parts: Vec<&str> = list(object, "/spec/cidrs").iter().filter_map(Value::as_str).collect();
            vec![name, parts.join(",").into(), age()]
        }
        ("networking.k8s.io", "ipaddresses") => networking::ip_address(object, now),
        ("discovery.k8s.io", "endpointslices") => networking::endpoint_slice(object, now),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => binding(object, now),
        ("coordination.k8s.io", "leases") => vec![name, text(object, "/spec/holderIdentity").into(), age()],
        ("node.k8s.io", "runtimeclasses") => vec![name, text(object, "/handler").into(), age()],
        ("scheduling.k8s.io", "priorityclasses") => {
            let default = object.get("globalDefault") == Some(&Value::Bool(true));
            vec![
                name,
                number(object, "/value").into(),
                default.into(),
                age(),
                text(object, "/preemptionPolicy").into(),
            ]
        }
        ("storage.k8s.io", "storageclasses") => storage::class(object, now),
        ("storage.k8s.io", "csidrivers") => storage::driver(object, now),
        ("storage.k8s.io", "csinodes") => vec![name, list(object, "/spec/drivers").len().into(), age()],
        ("storage.k8s.io", "volumeattributesclasses") => vec![name, text(object, "/driverName").into(), age()],
        ("storage.k8s.io", "volumeattachments") => storage::attachment(object, now),
        ("certificates.k8s.io", "certificatesigningrequests") => signing_request(object, now),
        ("apiregistration.k8s.io", "apiservices") => api_service(object, now),
        ("admissionregistration.k8s.io", _) => admission(resource, object, now),
        // Name and creation time, like roles and resource definitions have them.
        _ => vec![name, text(object, "/metadata/creationTimestamp").into()],
    }
}

/// kubectl hides finished pods when asked to; a row says so.
pub(super) fn row_condition(columns: &Columns, object: &Value) -> Option<Value> {
    let Columns::BuiltIn { group, resource, .. } = columns else {
        return None;
    };
    if !group.is_empty() || resource != "pods" {
        return None;
    }
    let (reason, message) = match text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let since = |pointer: &str| {
        let time = text(object, pointer);
        (!time.is_empty()).then(|| duration::since(time, now))
    };
    // The two groups share storage and differ in names.
    let first_of = |pointers: &[&str]| {
        pointers
            .iter()
            .find_map(|pointer| since(pointer))
            .unwrap_or_else(|| "<unknown>".to_owned())
    };
    let first = first_of(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let mut last = since("/lastTimestamp")
        .or_else(|| since("/deprecatedLastTimestamp"))
        .unwrap_or_else(|| first.clone());
    let mut count = number(object, "/count").max(number(object, "/deprecatedCount")).max(1);
    if object.get("series").is_some_and(|series| !series.is_null()) {
        last = first_of(&["/series/lastObservedTime"]);
        count = number(object, "/series/count");
    }
    let involved = if object.get("involvedObject").is_some() {
        "/involvedObject"
    } else {
        "/regarding"
    };
    let kind = text(object, &format!("{involved}/kind")).to_lowercase();
    let name = text(object, &format!("{involved}/name"));
    let target = if name.is_empty() {
        kind
    } else {
        format!("{kind}/{name}")
    };
    let source = if object.get("source").is_some() {
        "/source"
    } else {
        "/deprecatedSource"
    };
    let component = or(
        text(object, &format!("{source}/component")),
        or(
            text(object, "/reportingComponent"),
            text(object, "/reportingController"),
        ),
    );
    let host = or(
        text(object, &format!("{source}/host")),
        text(object, "/reportingInstance"),
    );
    let source = if host.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {host}")
    };
    vec![
        last.into(),
        text(object, "/type").into(),
        text(object, "/reason").into(),
        target.into(),
        text(object, &format!("{involved}/fieldPath")).into(),
        source.into(),
        or(text(object, "/message"), text(object, "/note")).trim().into(),
        first.into(),
        count.into(),
        text(object, "/metadata/name").into(),
    ]
}

fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let subjects = |kind: &str| {
        let found = list(object, "/subjects")
            .iter()
            .filter(|subject| text(subject, "/kind") == kind);
        let names: Vec<String> = found
            .map(|subject| match (kind, text(subject, "/namespace")) {
                ("ServiceAccount", namespace) => format!("{namespace}/{}", text(subject, "/name")),
                _ => text(subject, "/name").to_owned(),
            })
            .collect();
        Value::from(names.join(", "))
    };
    let name = text(object, "/metadata/name").into();
    vec![
        name,
        role.into(),
        age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn quota(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut requests = Vec::new();
    let mut limits = Vec::new();
    for (key, hard) in object
        .pointer("/status/hard")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let used = object
            .pointer("/status/used")
            .and_then(|used| used.get(key))
            .and_then(Value::as_str)
            .unwrap_or("0");
        let part = format!("{key}: {used}/{}", hard.as_str().unwrap_or_default());
        if key.starts_with("limits") {
            limits.push(part)
        } else {
            requests.push(part)
        }
    }
    let name = text(object, "/metadata/name").into();
    vec![
        name,
        requests.join(", ").into(),
        limits.join(", ").into(),
        age(object, now),
    ]
}

fn component(object: &Value) -> Vec<Value> {
    let healthy = list(object, "/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == "Healthy");
    let part = |field: &str| Value::from(healthy.map_or("", |condition| text(condition, field)));
    let status = match healthy.map(|condition| text(condition, "/status")) {
        Some("True") => "Healthy",
        Some("False") => "Unhealthy",
        _ => "Unknown",
    };
    vec![
        text(object, "/metadata/name").into(),
        status.into(),
        part("/message"),
        part("/error"),
    ]
}

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(object, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = Vec::new();
    for (label, value) in object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if let Some(role) = label.strip_prefix("node-role.kubernetes.io/") {
            roles.push(role);
        } else if label == "kubernetes.io/role" {
            roles.extend(value.as_str());
        }
    }
    roles.sort_unstable();
    roles.dedup();
    let address = |kind: &str| {
        let found = list(object, "/status/addresses")
            .iter()
            .find(|address| text(address, "/type") == kind);
        Value::from(found.map_or(NONE, |address| text(address, "/address")))
    };
    let info = |field: &str| Value::from(or(text(object, &format!("/status/nodeInfo/{field}")), "<unknown>"));
    vec![
        text(object, "/metadata/name").into(),
        status.into(),
        or(&roles.join(","), NONE).into(),
        age(object, now),
        text(object, "/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn signing_request(object: &Value, now: Timestamp) -> Vec<Value> {
    let has = |kind: &str| {
        list(object, "/status/conditions")
            .iter()
            .any(|condition| text(condition, "/type") == kind)
    };
    let mut status = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    let duration = object
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64)
        .map(super::human_duration);
    vec![
        text(object, "/metadata/name").into(),
        age(object, now),
        or(text(object, "/spec/signerName"), NONE).into(),
        text(object, "/spec/username").into(),
        duration.unwrap_or_else(|| NONE.to_owned()).into(),
        status.into(),
    ]
}

fn api_service(object: &Value, now: Timestamp) -> Vec<Value> {
    let service = match object.pointer("/spec/service") {
        Some(service) if !service.is_null() => format!("{}/{}", text(service, "/namespace"), text(service, "/name")),
        _ => "Local".to_owned(),
    };
    let available = list(object, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == "Available");
    let available = match available {
        Some(condition) if text(condition, "/status") == "True" => "True".to_owned(),
        Some(condition) => format!("{} ({})", text(condition, "/status"), text(condition, "/reason")),
        None => "Unknown".to_owned(),
    };
    vec![
        text(object, "/metadata/name").into(),
        service.into(),
        available.into(),
        age(object, now),
    ]
}

fn admission(resource: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = Value::from(text(object, "/metadata/name"));
    let parameter_kind = || {
        let kind = object.pointer("/spec/paramKind").filter(|kind| !kind.is_null());
        kind.map_or("<unset>".to_owned(), |kind| {
            format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind"))
        })
    };
    match resource {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            vec![name, list(object, "/webhooks").len().into(), age(object, now)]
        }
        "validatingadmissionpolicies" => {
            vec![
                name,
                list(object, "/spec/validations").len().into(),
                parameter_kind().into(),
                age(object, now),
            ]
        }
        "mutatingadmissionpolicies" => {
            vec![
                name,
                list(object, "/spec/mutations").len().into(),
                parameter_kind().into(),
                age(object, now),
            ]
        }
        _ => {
            let reference = match object
                .pointer("/spec/paramRef")
                .filter(|reference| !reference.is_null())
            {
                None => "<unset>".to_owned(),
                Some(reference) if text(reference, "/name").is_empty() => selector(reference, "/selector"),
                Some(reference) if text(reference, "/namespace").is_empty() => {
                    format!("*/{}", text(reference, "/name"))
                }
                Some(reference) => format!("{}/{}", text(reference, "/namespace"), text(reference, "/name")),
            };
            vec![
                name,
                text(object, "/spec/policyName").into(),
                reference.into(),
                age(object, now),
            ]
        }
    }
}
