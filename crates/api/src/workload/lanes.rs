//! What runs one lane inside a cluster, where each has a Pod of its own: its Deployment, which the controllers write, and who its Pods may talk to, which
//! whoever installs writes for all of them. It refuses to let what a lane is called choose anything but labels, names and the account: what runs, and
//! what it may reach, is the same for all lanes of a sort.

use serde_json::{Map, Value, json};

use super::{
    HEALTH_PORT, PROGRAM, Sources, Workload, confine_container, confine_pod, labelled, list_ways, mebibytes, metadata,
    probe, selector, tcp,
};
use crate::metadata::{MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE};

/// The port on which lanes come to the controllers.
pub const LANE_PORT: u16 = 9643;
/// The Service that leads there.
pub const LANE_SERVICE: &str = "tenure-lanes";
/// The Secret with the certificate that is shown there, and the key of its authority.
pub const LANE_SECRET: &str = "tenure-lanes";
/// The ConfigMap with the authority that lanes trust.
pub const LANE_AUTHORITY: &str = "tenure-lanes";
/// Whom the token is for by which a lane proves itself there: nobody else takes it, no API server either.
pub const LANE_AUDIENCE: &str = "tenure-lanes.tenure-system";
/// The label of everything that runs a lane: what sort of lane it is.
pub const LANE_LABEL: &str = "tenure.dev/lane";
/// The label that says whose a tenant's lane is.
const TENANT_OF_LANE: &str = "tenure.dev/lane-of";
/// The name of the Pods' component.
const COMPONENT: &str = "lane";
/// The only folder that can be written.
const DATA: &str = "/var/lib/tenure";
/// Where the authority is in a Pod.
const AUTHORITY: &str = "/etc/tenure/hub";
/// Where the tokens are in a Pod.
const TOKENS: &str = "/var/run/secrets/tenure";
/// How long tokens hold; a kubelet renews them before that.
const TOKEN_SECONDS: u32 = 3600;

/// What all Deployments of lanes have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LanePods {
    /// The image that holds the program.
    pub image: String,
    /// The PriorityClass of the Pods.
    pub priority_class: Option<String>,
    /// Where the controllers are found: a host and a port.
    pub hub: String,
    /// What the program logs, as `TENURE_LOG` has it.
    pub log: Option<String>,
    /// How many bytes of memory a lane may take.
    pub memory: u64,
    /// How many bytes of disk it may take.
    pub disk: u64,
}

/// Where lanes find the controllers when nobody says it: the Service.
#[must_use]
pub fn usual_hub() -> String {
    format!("{LANE_SERVICE}.{PLATFORM_NAMESPACE}.svc:{LANE_PORT}")
}

/// The labels of one lane, which no other one has: of its sort, and of its tenant if it is one's.
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

/// The Pods of all lanes.
pub(super) fn select_all() -> Value {
    json!({"matchLabels": {"app.kubernetes.io/name": "tenure", "app.kubernetes.io/component": COMPONENT}})
}

/// Whether an object of the platform namespace with these labels is a lane's.
#[must_use]
pub fn is_lane_deployment(labels: &Value) -> bool {
    labels.get(LANE_LABEL).is_some() && labels.get(MANAGED_BY).is_some_and(|by| by == MANAGED_BY_TENURE)
}

/// The Deployment of a lane that is called so, as its account, by which it is named too.
#[must_use]
pub fn lane_deployment(pods: &LanePods, lane: &str, account: &str) -> Value {
    let own = Value::Object(select(lane));
    let labels = labelled(own.clone(), MANAGED_BY, MANAGED_BY_TENURE);
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
        // Of processor time, too, unlike the controllers' own: its tenant may be hostile, and a lane has no Lease that it could lose by that.
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
        // What is under way ends first.
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
            // Two of one lane don't work side by side: the second would wait for the first, and hold its place on a node.
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels}, "spec": pod}
        }
    })
}

/// Where lanes come to the controllers.
pub(super) fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(LANE_SERVICE),
        "spec": {
            "type": "ClusterIP", "selector": selector(),
            "ports": [{"name": "lanes", "port": LANE_PORT, "protocol": "TCP", "targetPort": "lanes"}]
        }
    })
}

/// Where lanes may connect to: the controllers, and what else they need. What the platform's may besides, no tenant's does.
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
