//! Defaults that depend on a whole kind.

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::{is_empty, object_at, set, text};
use crate::schema::resources::of_containers;

/// Fills in what objects of that kind get beyond their structs' own defaults.
pub(in crate::schema) fn programmatic(group: &str, version: &str, kind: &str, value: &mut Value) {
    let Value::Object(object) = value else { return };
    match (group, kind) {
        ("", "Namespace") => namespace(object),
        ("", "Secret") => secret(object),
        ("", "Service") => {
            with_spec(object, service);
            balancer_modes(object);
        }
        ("", "Pod") => with_spec(object, pod),
        ("", "ReplicationController") => replication_controller(object),
        ("", "PersistentVolume") => {
            with_spec(object, |spec| {
                set(spec, "persistentVolumeReclaimPolicy", "Retain");
                set(spec, "volumeMode", "Filesystem");
            });
            if let Some(status) = object_at(object, "status") {
                set(status, "phase", "Pending");
            }
        }
        ("", "Endpoints") => {
            let subsets = object
                .get_mut("subsets")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten();
            for port in subsets
                .filter_map(|subset| subset.get_mut("ports")?.as_array_mut())
                .flatten()
            {
                if let Value::Object(port) = port {
                    set(port, "protocol", "TCP");
                }
            }
        }
        ("", "Node") => {
            if let Some(Value::Object(status)) = object.get_mut("status")
                && let Some(capacity) = status.get("capacity").cloned()
            {
                set(status, "allocatable", capacity);
            }
        }
        ("apps", "Deployment") => with_spec(object, deployment),
        ("apps", "DaemonSet") => with_spec(object, daemon_set),
        ("apps", "StatefulSet") => with_spec(object, stateful_set),
        ("apps", "ReplicaSet") => with_spec(object, |spec| set(spec, "replicas", 1)),
        ("batch", "Job") => job(object),
        ("batch", "CronJob") => with_spec(object, |spec| {
            set(spec, "concurrencyPolicy", "Allow");
            set(spec, "suspend", false);
            set(spec, "successfulJobsHistoryLimit", 3);
            set(spec, "failedJobsHistoryLimit", 1);
        }),
        ("networking.k8s.io", "NetworkPolicy") => with_spec(object, |spec| {
            if is_empty(spec, "policyTypes") {
                let egress = !is_empty(spec, "egress");
                spec.insert(
                    "policyTypes".into(),
                    if egress {
                        json!(["Ingress", "Egress"])
                    } else {
                        json!(["Ingress"])
                    },
                );
            }
        }),
        ("networking.k8s.io", "IngressClass") => with_spec(object, |spec| {
            if let Some(Value::Object(parameters)) = spec.get_mut("parameters") {
                set(parameters, "scope", "Cluster");
            }
        }),
        ("autoscaling", "HorizontalPodAutoscaler") => with_spec(object, |spec| autoscaler(version, spec)),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            if let Some(reference) = object_at(object, "roleRef") {
                set(reference, "apiGroup", "rbac.authorization.k8s.io");
            }
        }
        ("storage.k8s.io", "StorageClass") => {
            set(object, "reclaimPolicy", "Delete");
            set(object, "volumeBindingMode", "Immediate");
        }
        ("storage.k8s.io", "CSIDriver") => with_spec(object, csi_driver),
        ("discovery.k8s.io", "EndpointSlice") => {
            for port in object
                .get_mut("ports")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                if let Value::Object(port) = port {
                    set(port, "name", "");
                    set(port, "protocol", "TCP");
                }
            }
        }
        ("scheduling.k8s.io", "PriorityClass") => set(object, "preemptionPolicy", "PreemptLowerPriority"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => custom_resource_definition(object),
        _ => {}
    }
}

fn with_spec(object: &mut Map<String, Value>, fill: impl FnOnce(&mut Map<String, Value>)) {
    if let Some(spec) = object_at(object, "spec") {
        fill(spec);
    }
}

/// Text data becomes data, and is never stored as such.
fn secret(object: &mut Map<String, Value>) {
    set(object, "type", "Opaque");
    if let Some(Value::Object(texts)) = object.remove("stringData")
        && let Some(data) = object_at(object, "data")
    {
        for (key, value) in texts {
            let bytes = value.as_str().unwrap_or_default();
            data.insert(key, base64::engine::general_purpose::STANDARD.encode(bytes).into());
        }
    }
}

fn namespace(object: &mut Map<String, Value>) {
    if let Some(metadata) = object_at(object, "metadata") {
        let name = text(metadata, "name").to_owned();
        if !name.is_empty()
            && let Some(labels) = object_at(metadata, "labels")
        {
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
        }
    }
    if let Some(status) = object_at(object, "status") {
        set(status, "phase", "Active");
    }
}

/// A balancer's address is one that is its own, unless it says otherwise.
fn balancer_modes(service: &mut Map<String, Value>) {
    let balanced = service.get("spec").and_then(|spec| spec.get("type")) == Some(&Value::from("LoadBalancer"));
    let entries = service
        .get_mut("status")
        .and_then(|status| status.pointer_mut("/loadBalancer/ingress")?.as_array_mut());
    for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
        if balanced && !text(entry, "ip").is_empty() {
            set(entry, "ipMode", "VIP");
        }
    }
}

fn service(spec: &mut Map<String, Value>) {
    set(spec, "sessionAffinity", "None");
    if text(spec, "sessionAffinity") == "None" {
        spec.remove("sessionAffinityConfig");
    } else if text(spec, "sessionAffinity") == "ClientIP"
        && spec
            .get("sessionAffinityConfig")
            .and_then(|config| config.pointer("/clientIP/timeoutSeconds"))
            .is_none()
    {
        spec.insert(
            "sessionAffinityConfig".into(),
            json!({"clientIP": {"timeoutSeconds": 10800}}),
        );
    }
    set(spec, "type", "ClusterIP");
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let Value::Object(port) = port else { continue };
        set(port, "protocol", "TCP");
        let unset = match port.get("targetPort") {
            None => true,
            Some(Value::String(name)) => name.is_empty(),
            Some(number) => number.as_i64() == Some(0),
        };
        if unset {
            let number = port.get("port").cloned().unwrap_or(Value::from(0));
            port.insert("targetPort".into(), number);
        }
    }
    let kind = text(spec, "type").to_owned();
    let external_ips = !is_empty(spec, "externalIPs") && kind == "ClusterIP";
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || external_ips {
        set(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
    }
}

const HUGE_PAGES: &str = "hugepages-";

fn pod(spec: &mut Map<String, Value>) {
    set(spec, "enableServiceLinks", true);
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for field in ["containers", "initContainers"] {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            let Value::Object(container) = container else { continue };
            if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut)
                && let Some(Value::Object(limits)) = resources.get("limits").cloned()
                && let Some(requests) = object_at(resources, "requests")
            {
                for (key, limit) in limits {
                    requests.entry(key).or_insert(limit);
                }
            }
            if host_network {
                for port in container
                    .get_mut("ports")
                    .and_then(Value::as_array_mut)
                    .into_iter()
                    .flatten()
                {
                    if let Value::Object(port) = port
                        && let Some(number) = port.get("containerPort").cloned()
                    {
                        set(port, "hostPort", number);
                    }
                }
            }
        }
    }
    whole_pod(spec);
}

/// What a Pod as a whole asks for and is limited to, where it says a part of it: limits of huge pages are those of its
/// containers; it asks for what its containers ask for, or else for as much as it may have.
fn whole_pod(spec: &mut Map<String, Value>) {
    let containers =
        |spec: &Map<String, Value>, side: &str| of_containers(&Value::Object(spec.clone()), side).to_value();
    let part = |spec: &Map<String, Value>, side: &str| -> Map<String, Value> {
        let part = spec.get("resources").and_then(|resources| resources.get(side));
        part.and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let (mut requests, mut limits) = (part(spec, "requests"), part(spec, "limits"));
    if requests.is_empty() && limits.is_empty() {
        return;
    }
    for (name, amount) in containers(spec, "limits").as_object().into_iter().flatten() {
        if name.starts_with(HUGE_PAGES) && !requests.contains_key(name) {
            limits.entry(name.as_str()).or_insert_with(|| amount.clone());
        }
    }
    if !limits.is_empty() {
        for (name, amount) in containers(spec, "requests").as_object().into_iter().flatten() {
            if matches!(name.as_str(), "cpu" | "memory") {
                requests.entry(name.as_str()).or_insert_with(|| amount.clone());
            }
        }
        for (name, amount) in &limits {
            if matches!(name.as_str(), "cpu" | "memory") || name.starts_with(HUGE_PAGES) {
                requests.entry(name.as_str()).or_insert_with(|| amount.clone());
            }
        }
    }
    if let Some(resources) = object_at(spec, "resources") {
        for (side, amounts) in [("requests", requests), ("limits", limits)] {
            if !amounts.is_empty() {
                resources.insert(side.to_owned(), Value::Object(amounts));
            }
        }
    }
}

fn replication_controller(object: &mut Map<String, Value>) {
    with_spec(object, |spec| set(spec, "replicas", 1));
    let labels = object
        .get("spec")
        .and_then(|spec| spec.pointer("/template/metadata/labels"))
        .cloned();
    if let Some(labels) = labels {
        with_spec(object, |spec| {
            if is_empty(spec, "selector") {
                spec.insert("selector".into(), labels.clone());
            }
        });
        label(object, labels);
    }
}

fn label(object: &mut Map<String, Value>, labels: Value) {
    if let Some(metadata) = object_at(object, "metadata")
        && is_empty(metadata, "labels")
    {
        metadata.insert("labels".into(), labels);
    }
}

fn deployment(spec: &mut Map<String, Value>) {
    set(spec, "replicas", 1);
    if let Some(strategy) = object_at(spec, "strategy") {
        set(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = object_at(strategy, "rollingUpdate")
        {
            set(rolling, "maxUnavailable", "25%");
            set(rolling, "maxSurge", "25%");
        }
    }
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
}

fn daemon_set(spec: &mut Map<String, Value>) {
    if let Some(strategy) = object_at(spec, "updateStrategy") {
        set(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = object_at(strategy, "rollingUpdate")
        {
            set(rolling, "maxUnavailable", 1);
            set(rolling, "maxSurge", 0);
        }
    }
    set(spec, "revisionHistoryLimit", 10);
}

fn stateful_set(spec: &mut Map<String, Value>) {
    set(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = object_at(spec, "updateStrategy") {
        if text(strategy, "type").is_empty() {
            strategy.insert("type".into(), "RollingUpdate".into());
            object_at(strategy, "rollingUpdate");
        }
        if text(strategy, "type") == "RollingUpdate"
            && let Some(Value::Object(rolling)) = strategy.get_mut("rollingUpdate")
        {
            set(rolling, "partition", 0);
        }
    }
    if let Some(retention) = object_at(spec, "persistentVolumeClaimRetentionPolicy") {
        set(retention, "whenDeleted", "Retain");
        set(retention, "whenScaled", "Retain");
    }
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    // Templates are whole objects, and say what they are.
    for claim in spec
        .get_mut("volumeClaimTemplates")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Value::Object(claim) = claim {
            set(claim, "apiVersion", "v1");
            set(claim, "kind", "PersistentVolumeClaim");
        }
    }
}

fn job(object: &mut Map<String, Value>) {
    with_spec(object, |spec| {
        if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
            spec.insert("completions".into(), 1.into());
        }
        set(spec, "parallelism", 1);
        let limit = if spec.contains_key("backoffLimitPerIndex") {
            i32::MAX
        } else {
            6
        };
        set(spec, "backoffLimit", limit);
        set(spec, "completionMode", "NonIndexed");
        set(spec, "suspend", false);
        let replacement = if spec.contains_key("podFailurePolicy") {
            "Failed"
        } else {
            "TerminatingOrFailed"
        };
        set(spec, "podReplacementPolicy", replacement);
        set(spec, "manualSelector", false);
    });
    let labels = object
        .get("spec")
        .and_then(|spec| spec.pointer("/template/metadata/labels"))
        .cloned();
    if let Some(labels) = labels {
        label(object, labels);
    }
}

fn autoscaler(version: &str, spec: &mut Map<String, Value>) {
    set(spec, "minReplicas", 1);
    // Version 1 keeps one number; it is the version without metrics.
    if version == "v2" && is_empty(spec, "metrics") {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        spec.insert(
            "metrics".into(),
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]),
        );
    }
    if let Some(Value::Object(behavior)) = spec.get_mut("behavior") {
        if let Some(up) = object_at(behavior, "scaleUp") {
            set(up, "stabilizationWindowSeconds", 0);
            set(up, "selectPolicy", "Max");
            let policies = json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]);
            set(up, "policies", policies);
        }
        if let Some(down) = object_at(behavior, "scaleDown") {
            set(down, "selectPolicy", "Max");
            set(
                down,
                "policies",
                json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]),
            );
        }
    }
}

fn csi_driver(spec: &mut Map<String, Value>) {
    set(spec, "attachRequired", true);
    for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        set(spec, field, false);
    }
    set(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if is_empty(spec, "volumeLifecycleModes") {
        spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
    }
}

fn custom_resource_definition(object: &mut Map<String, Value>) {
    with_spec(object, |spec| {
        if let Some(names) = object_at(spec, "names") {
            let kind = text(names, "kind").to_owned();
            if !kind.is_empty() {
                set(names, "singular", kind.to_lowercase());
                set(names, "listKind", format!("{kind}List"));
            }
        }
        set(spec, "conversion", json!({"strategy": "None"}));
        if let Some(conversion) = object_at(spec, "conversion")
            && conversion.get("webhook") == Some(&json!({}))
        {
            // One of which nothing is said is none.
            conversion.remove("webhook");
        }
    });
    let storage = object
        .get("spec")
        .and_then(|spec| spec.get("versions"))
        .and_then(Value::as_array)
        .and_then(|versions| {
            versions
                .iter()
                .find(|version| version.get("storage") == Some(&Value::Bool(true)))?
                .get("name")
                .cloned()
        });
    if let Some(storage) = storage
        && let Some(status) = object_at(object, "status")
        && is_empty(status, "storedVersions")
    {
        status.insert("storedVersions".into(), json!([storage]));
    }
}
