//! The objects that run one lane in a cluster, if each lane has a Pod of its own: its Deployment, which the controllers write, and the NetworkPolicies of
//! all lanes, which the installer writes. The name of a lane decides only labels, names and the account. The program, and the addresses it may reach, are
//! the same for all lanes of a sort.

use serde_json::{Map, Value, json};

use super::{
    HEALTH_PORT, PROGRAM, Sources, Workload, add_label, confine_container, confine_pod, list_ways, mebibytes, metadata,
    probe, selector, tcp,
};
use crate::metadata::{MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE};

/// The port on which lanes connect to the controllers.
pub const LANE_PORT: u16 = 9643;
/// The Service of that port.
pub const LANE_SERVICE: &str = "tenure-lanes";
/// The Secret with the certificate of that port, and the key of its authority.
pub const LANE_SECRET: &str = "tenure-lanes";
/// The ConfigMap with the authority that lanes trust.
pub const LANE_AUTHORITY: &str = "tenure-lanes";
/// The audience of the token by which a lane proves its identity there. No other server accepts it, not
/// even an API server.
pub const LANE_AUDIENCE: &str = "tenure-lanes.tenure-system";
/// The label of all objects that run a lane: the sort of lane.
pub const LANE_LABEL: &str = "tenure.dev/lane";
/// The label with the tenant of a tenant's lane.
const TENANT_OF_LANE: &str = "tenure.dev/lane-of";
/// The name of the Pods' component.
const COMPONENT: &str = "lane";
/// The only writable folder.
const DATA: &str = "/var/lib/tenure";
/// The path of the authority in a Pod.
const AUTHORITY: &str = "/etc/tenure/hub";
/// The path of the tokens in a Pod.
const TOKENS: &str = "/var/run/secrets/tenure";
/// The lifetime of tokens. A kubelet renews them earlier.
const TOKEN_SECONDS: u32 = 3600;

/// The common settings of all Deployments of lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LanePods {
    /// The image that holds the program.
    pub image: String,
    /// The PriorityClass of the Pods.
    pub priority_class: Option<String>,
    /// The address of the controllers: a host and a port.
    pub hub: String,
    /// The log filter of the program, as in `TENURE_LOG`.
    pub log: Option<String>,
    /// The limit of a lane's memory, in bytes.
    pub memory: u64,
    /// The limit of its disk, in bytes.
    pub disk: u64,
}

/// Returns the default address of the controllers for lanes: the Service.
#[must_use]
pub fn usual_hub() -> String {
    format!("{LANE_SERVICE}.{PLATFORM_NAMESPACE}.svc:{LANE_PORT}")
}

/// Returns the labels of one lane, which no other one has: of its sort, and of its tenant if it has
/// one.
fn select(lane: &str) -> Map<String, Value> {
    let (sort, tenant) = match lane.split_once('/') {
        Some((sort, tenant)) => (sort, Some(tenant)),
        None => (lane, None),
    };
    let mut labels = Map::new();
    labels.insert("app.kubernetes.io/name".to_owned(), json!("tenure"));
    labels.insert("app.kubernetes.io/component".to_owned(), json!(COMPONENT));
    labels.insert(LANE_LABEL.to_owned(), json!(sort));
    if let Some(tenant) = tenant {
        labels.insert(TENANT_OF_LANE.to_owned(), json!(tenant));
    }
    labels
}

/// Returns the selector of the Pods of all lanes.
pub(super) fn select_all() -> Value {
    json!({"matchLabels": {"app.kubernetes.io/name": "tenure", "app.kubernetes.io/component": COMPONENT}})
}

/// Checks whether an object of the platform namespace with these labels is a lane's.
#[must_use]
pub fn is_lane_deployment(labels: &Value) -> bool {
    labels.get(LANE_LABEL).is_some() && labels.get(MANAGED_BY).is_some_and(|by| by == MANAGED_BY_TENURE)
}

/// Returns the Deployment of a lane. It has the name of the lane's account.
#[must_use]
pub fn lane_deployment(pods: &LanePods, lane: &str, account: &str) -> Value {
    let own = Value::Object(select(lane));
    let labels = add_label(own.clone(), MANAGED_BY, MANAGED_BY_TENURE);
    let arguments = [
        "lane".to_owned(),
        format!("--hub={}", pods.hub),
        format!("--hub-authority={AUTHORITY}/ca.crt"),
        format!("--hub-token={TOKENS}/hub"),
        format!("--api-token={TOKENS}/api"),
        format!("--data={DATA}/data"),
        format!("--health-address={HEALTH_PORT}"),
    ];
    let mut environment = vec![json!({"name": "TENURE_LOG_FORMAT", "value": "json"})];
    if let Some(log) = &pods.log {
        environment.push(json!({"name": "TENURE_LOG", "value": log}));
    }
    let token = |path: &str, audience: Option<&str>| {
        let mut source = json!({"path": path, "expirationSeconds": TOKEN_SECONDS});
        if let (Some(audience), Some(source)) = (audience, source.as_object_mut()) {
            source.insert("audience".to_owned(), json!(audience));
        }
        json!({"serviceAccountToken": source})
    };
    let container = json!({
        "name": "lane", "image": pods.image, "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAM], "args": arguments, "env": environment,
        "ports": [{"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        "livenessProbe": probe("/livez", 3), "readinessProbe": probe("/readyz", 2),
        "securityContext": confine_container(),
        // Unlike the controllers, a lane has a CPU limit, too: its tenant may be hostile, and it has no Lease that it could lose by that.
        "resources": {
            "requests": {"cpu": "20m", "memory": "48Mi", "ephemeral-storage": "64Mi"},
            "limits": {"cpu": "2", "memory": mebibytes(pods.memory)}
        },
        "volumeMounts": [
            {"name": "data", "mountPath": DATA},
            {"name": "authority", "mountPath": AUTHORITY, "readOnly": true},
            {"name": "tokens", "mountPath": TOKENS, "readOnly": true}
        ]
    });
    let mut pod = json!({
        "serviceAccountName": account, "automountServiceAccountToken": false, "enableServiceLinks": false,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        // Running work ends first.
        "terminationGracePeriodSeconds": 30,
        "securityContext": confine_pod(),
        "containers": [container],
        "volumes": [
            {"name": "data", "emptyDir": {"sizeLimit": mebibytes(pods.disk)}},
            {"name": "authority", "configMap": {"name": LANE_AUTHORITY, "defaultMode": 0o444}},
            {"name": "tokens", "projected": {"defaultMode": 0o440, "sources": [
                token("hub", Some(LANE_AUDIENCE)), token("api", None)
            ]}}
        ]
    });
    if let (Some(class), Some(pod)) = (&pods.priority_class, pod.as_object_mut()) {
        pod.insert("priorityClassName".to_owned(), json!(class));
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": account, "namespace": PLATFORM_NAMESPACE, "labels": labels.clone()},
        "spec": {
            "replicas": 1, "revisionHistoryLimit": 1,
            "selector": {"matchLabels": own},
            // Two Pods of one lane don't work at the same time: the second would wait for the first, and occupy resources
            // of a node.
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels}, "spec": pod}
        }
    })
}

/// Returns the Service by which lanes connect to the controllers.
pub(super) fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(LANE_SERVICE),
        "spec": {
            "type": "ClusterIP", "selector": selector(),
            "ports": [{"name": "lanes", "port": LANE_PORT, "protocol": "TCP", "targetPort": "lanes"}]
        }
    })
}

/// Returns the NetworkPolicies of lanes: the controllers, and other addresses that they need. The platform's lane may reach
/// more than a tenant's.
pub(super) fn traffic(workload: &Workload) -> [Value; 2] {
    let all = ["tenant", "pool", "protected"];
    let policy = |name: &str, sorts: &[&str], sources: Sources| {
        let mut egress = list_ways(workload, Some(sources));
        egress.push(json!({"to": [{"podSelector": {"matchLabels": selector()}}], "ports": tcp(&[LANE_PORT])}));
        let mut selected = select_all();
        if let Some(selected) = selected.as_object_mut() {
            selected.insert(
                "matchExpressions".to_owned(),
                json!([{"key": LANE_LABEL, "operator": "In", "values": sorts}]),
            );
        }
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata(name),
            "spec": {"podSelector": selected, "policyTypes": ["Ingress", "Egress"], "egress": egress}
        })
    };
    [
        policy("tenure-lanes", &all, Sources::Tenants),
        policy("tenure-lane-platform", &["platform"], Sources::All),
    ]
}

#[cfg(test)]
mod tests;
