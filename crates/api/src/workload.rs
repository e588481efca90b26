//! What runs the controllers inside a cluster, as data: a Deployment, who its Pods may talk to, and what evictions leave of them.
//! Owns every number in it that doesn't come from whoever installs. It refuses to hold rights: those are `installation`'s, and are
//! the same whoever runs the process.

mod lanes;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::{Value, json};

use crate::admission_webhooks;
use crate::metadata::{
    CONTROLLER_SERVICE_ACCOUNT, MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE, SHARD_LABEL, SHARD_LEASE_PREFIX,
    SHARDING_KEY,
};

pub use lanes::{
    LANE_AUDIENCE, LANE_AUTHORITY, LANE_LABEL, LANE_PORT, LANE_SECRET, LANE_SERVICE, LanePods, is_lane_deployment,
    lane_deployment, usual_hub,
};

/// The user and the group that the process has: numbers, so that a kubelet can tell that they aren't root's.
pub const USER: u32 = 65532;
/// The port of the probes.
pub const HEALTH_PORT: u16 = 9440;
/// The port of the metrics.
pub const METRICS_PORT: u16 = 8080;
/// What that port is called: as in Flux's Pods, so that what scrapes those finds it.
const METRICS_PORT_NAME: &str = "http-prom";
/// The port of requests to Receivers (Flux's).
pub const HOOK_PORT: u16 = 9292;
/// The Service of requests to Receivers (Flux's): what an Ingress or a load balancer leads to.
pub const HOOK_SERVICE: &str = "webhook-receiver";
/// The port of artifacts for who proves to be somebody, and the one for helm-controller.
pub const ARTIFACT_PORT: u16 = 9743;
/// See [`ARTIFACT_PORT`].
pub const OPEN_ARTIFACT_PORT: u16 = 9790;
/// The Service of artifacts.
pub const ARTIFACT_SERVICE: &str = "tenure-artifacts";
/// Where the certificate is in a Pod of the authority that an API server proves itself by.
const ADMISSION_CLIENTS: &str = "/etc/tenure/admission-clients";
/// Where the certificate for artifacts is in a Pod.
const ARTIFACT_CERTIFICATE: &str = "/etc/tenure/artifacts";
/// What Flux's helm-controller is labelled with.
const HELM_CONTROLLER: (&str, &str) = ("app", "helm-controller");
/// What the program is called in an image that has nothing else.
pub const PROGRAM: &str = "/tenure";
/// The only folder that can be written.
const DATA: &str = "/var/lib/tenure";
/// Where the API server listens when nobody says it: 443 for the Service, 6443 for what is behind it, which is what many
/// network plugins look at.
const API_SERVER_PORTS: [u16; 2] = [443, 6443];
/// Where a cache of a node answers to names, in clusters that have one.
const NODE_LOCAL_DNS: &str = "169.254.20.10/32";
/// The ports of DNS: the usual one, and the one that OpenShift's Pods listen on.
const DNS_PORTS: [u16; 2] = [53, 5353];

/// What of IPv4 no source may reach: the same that the dialer's policy refuses. A test of the program compares the two.
pub const CLOSED_IPV4: [(&str, u8); 15] = [
    ("0.0.0.0", 8),
    ("10.0.0.0", 8),
    ("100.64.0.0", 10),
    ("127.0.0.0", 8),
    ("168.63.129.16", 32),
    ("169.254.0.0", 16),
    ("172.16.0.0", 12),
    ("192.0.0.0", 24),
    ("192.0.2.0", 24),
    ("192.88.99.0", 24),
    ("192.168.0.0", 16),
    ("198.18.0.0", 15),
    ("198.51.100.0", 24),
    ("203.0.113.0", 24),
    ("224.0.0.0", 3),
];
/// What of the global unicast addresses of IPv6 no source may reach, besides what 6to4 addresses carry. (ISATAP's form, which the
/// dialer judges too, is no range.)
pub const CLOSED_IPV6: [&str; 3] = ["2001::/23", "2001:db8::/32", "3fff::/20"];

/// What an installer chooses about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The image that holds the program.
    pub image: String,
    /// How many Pods there are: one leads, the others wait.
    pub replicas: u32,
    /// The PriorityClass of the Pods.
    pub priority_class: Option<String>,
    /// Whether requests to Receivers are taken.
    pub hooks: bool,
    /// The namespace of the helm-controller that artifacts are served to, if they are.
    pub helm_controller: Option<String>,
    /// The Secret with the certificate under which artifacts are served to who may get them, if they are.
    pub artifact_secret: Option<String>,
    /// Whether the API server asks about what is written.
    pub admission: bool,
    /// The Secret with the authority, `ca.crt`, of whose certificates the API server shows one, if it does.
    pub admission_client_secret: Option<String>,
    /// What `tenure run` is told besides.
    pub arguments: Vec<String>,
    /// Where the API server is; nothing stands for every address, on its usual ports.
    pub api_servers: Vec<SocketAddr>,
    /// Single addresses that sources may reach although they are none of the Internet's.
    pub source_addresses: Vec<SocketAddr>,
    /// Ranges that sources may reach although they are none of the Internet's.
    pub source_networks: Vec<String>,
    /// Ranges that no source may reach although they are the Internet's, each with its first address: the cluster's own.
    pub cluster_ranges: Vec<String>,
    /// The namespace whose Pods may ask for metrics; without it there are none to ask for.
    pub metrics_from: Option<String>,
    /// How many bytes of memory the process may take.
    pub memory: u64,
    /// How many bytes of disk it may take.
    pub disk: u64,
    /// Whether each lane has a Pod of its own.
    pub lanes: bool,
    /// Single addresses that sources of the platform alone may reach.
    pub platform_addresses: Vec<SocketAddr>,
    /// The shards that have Pods of their own; with any, the others see to what is in none.
    pub shards: Vec<String>,
}

/// What one instance of the controllers consists of: the main one, or a shard's.
struct Part<'a> {
    workload: &'a Workload,
    shard: Option<&'a str>,
}

impl Workload {
    /// Whether artifacts are served to others.
    #[must_use]
    pub fn has_artifacts(&self) -> bool {
        self.helm_controller.is_some() || self.artifact_secret.is_some()
    }

    /// What the Deployments of lanes have of it, where each lane has a Pod of its own.
    #[must_use]
    pub fn describe_lane_pods(&self) -> LanePods {
        LanePods {
            image: self.image.clone(),
            priority_class: self.priority_class.clone(),
            hub: usual_hub(),
            ..LanePods::default()
        }
    }

    /// Where artifacts are, as statuses tell it: there is one address, and helm-controller shows no token.
    fn artifact_url(&self) -> String {
        let scheme = if self.helm_controller.is_some() {
            "http"
        } else {
            "https"
        };
        format!("{scheme}://{ARTIFACT_SERVICE}.{PLATFORM_NAMESPACE}.svc")
    }

    /// What is installed when nothing but the image is chosen, and what `deploy/` holds.
    #[must_use]
    pub fn usual(image: &str) -> Self {
        Self {
            image: image.to_owned(),
            replicas: 2,
            memory: 1248 << 20,
            disk: 9 << 30,
            ..Self::default()
        }
    }
}

/// All that runs the controllers, in an order in which it can be applied: who may talk to whom comes before anybody talks.
#[must_use]
pub fn objects(workload: &Workload) -> Vec<Value> {
    let shards = workload.shards.iter().map(|shard| Some(shard.as_str()));
    let parts: Vec<Part<'_>> = std::iter::once(None)
        .chain(shards)
        .map(|shard| Part { workload, shard })
        .collect();
    let mut objects = vec![closed_namespace()];
    objects.extend(parts.iter().map(Part::traffic));
    if workload.hooks {
        objects.push(hook_service());
    }
    if workload.has_artifacts() {
        objects.push(artifact_service(workload));
    }
    if workload.admission {
        objects.push(admission_service());
    }
    if workload.lanes {
        objects.push(lanes::service());
        objects.extend(lanes::traffic(workload));
    }
    objects.extend(
        parts
            .iter()
            .flat_map(|part| [part.disruption_budget(), part.deployment()]),
    );
    objects
}

/// Where requests to Receivers come in.
fn hook_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(HOOK_SERVICE),
        "spec": {
            "type": "ClusterIP", "selector": selector(),
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "hooks"}]
        }
    })
}

/// Where the API server asks.
fn admission_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(admission_webhooks::SERVICE),
        "spec": {
            "type": "ClusterIP", "selector": selector(),
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": "admission"}]
        }
    })
}

/// Where artifacts are taken.
fn artifact_service(workload: &Workload) -> Value {
    let port = |name: &str, port: u16| json!({"name": name, "port": port, "protocol": "TCP", "targetPort": format!("artifacts-{name}")});
    let open = workload.helm_controller.as_ref().map(|_| port("http", 80));
    let proven = workload.artifact_secret.as_ref().map(|_| port("https", 443));
    let ports: Vec<Value> = open.into_iter().chain(proven).collect();
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(ARTIFACT_SERVICE),
        "spec": {"type": "ClusterIP", "selector": selector(), "ports": ports}
    })
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": PLATFORM_NAMESPACE, "labels": labels()})
}

fn selector() -> Value {
    json!({"app.kubernetes.io/name": "tenure", "app.kubernetes.io/component": "controllers"})
}

fn labels() -> Value {
    labelled(selector(), MANAGED_BY, MANAGED_BY_TENURE)
}

fn labelled(mut labels: Value, label: &str, value: &str) -> Value {
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(label.to_owned(), json!(value));
    }
    labels
}

impl Part<'_> {
    fn name(&self) -> String {
        self.shard.map_or_else(
            || CONTROLLER_SERVICE_ACCOUNT.to_owned(),
            |shard| format!("{SHARD_LEASE_PREFIX}{shard}"),
        )
    }

    /// What its Pods are selected by, and no other part's.
    fn selector(&self) -> Value {
        match self.shard {
            None => selector(),
            Some(shard) => {
                json!({"app.kubernetes.io/name": "tenure", "app.kubernetes.io/component": "controllers-of-shard", SHARD_LABEL: shard})
            }
        }
    }

    fn labels(&self) -> Value {
        labelled(self.selector(), MANAGED_BY, MANAGED_BY_TENURE)
    }

    fn metadata(&self) -> Value {
        json!({"name": self.name(), "namespace": PLATFORM_NAMESPACE, "labels": self.labels()})
    }

    /// Where the controllers may connect to. The dialer decides that for each source, after names were resolved; this is the second line,
    /// for a day on which something gets past the first. It can be no narrower than the dialer's policy, or a source that tenants may have
    /// could not be fetched: any port of any public address.
    fn traffic(&self) -> Value {
        let workload = self.workload;
        let egress = match workload.lanes {
            // What sources reach, lanes reach by themselves.
            true => list_ways(workload, None),
            false => list_ways(workload, Some(Sources::All)),
        };
        let mut policy = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": self.metadata(),
            "spec": {"podSelector": {"matchLabels": self.selector()}, "policyTypes": ["Ingress", "Egress"], "egress": egress}
        });
        let mut ingress = Vec::new();
        if let Some(namespace) = &workload.metrics_from {
            let from = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}});
            ingress.push(json!({"from": [from], "ports": tcp(&[METRICS_PORT])}));
        }
        if workload.hooks && self.shard.is_none() {
            // From anywhere: whatever leads here is another thing in every cluster, and each request proves itself.
            ingress.push(json!({"ports": tcp(&[HOOK_PORT])}));
        }
        if let Some(namespace) = workload.helm_controller.as_ref().filter(|_| self.shard.is_none()) {
            // Nobody proves anything there: these Pods, and no others.
            let (label, value) = HELM_CONTROLLER;
            let from = json!({
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "podSelector": {"matchLabels": {label: value}}
            });
            ingress.push(json!({"from": [from], "ports": tcp(&[OPEN_ARTIFACT_PORT])}));
        }
        if workload.artifact_secret.is_some() && self.shard.is_none() {
            // From anywhere: each request proves itself.
            ingress.push(json!({"ports": tcp(&[ARTIFACT_PORT])}));
        }
        if workload.admission && self.shard.is_none() {
            // From anywhere: where an API server's connections come from is another thing in every cluster, and no selector finds it. Who makes a
            // review up is told nothing by it.
            ingress.push(json!({"ports": tcp(&[admission_webhooks::PORT])}));
        }
        if workload.lanes && self.shard.is_none() {
            ingress.push(json!({"from": [{"podSelector": lanes::select_all()}], "ports": tcp(&[LANE_PORT])}));
        }
        if !ingress.is_empty()
            && let Some(spec) = policy.get_mut("spec").and_then(Value::as_object_mut)
        {
            spec.insert("ingress".to_owned(), Value::Array(ingress));
        }
        policy
    }

    /// One Pod at a time is taken away, be there one or many: a bound on how many stay would keep a node with the only one from being drained.
    fn disruption_budget(&self) -> Value {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": self.metadata(),
            "spec": {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": {"matchLabels": self.selector()}}
        })
    }

    fn deployment(&self) -> Value {
        let workload = self.workload;
        let mut arguments = vec![
            "run".to_owned(),
            // A folder of its own: the mounted one belongs to the group, and what is in this one to the process alone.
            format!("--data={DATA}/data"),
            format!("--health-address={HEALTH_PORT}"),
        ];
        let mut ports = vec![json!({"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"})];
        if workload.metrics_from.is_some() {
            arguments.push(format!("--metrics-address={METRICS_PORT}"));
            ports.push(json!({"name": METRICS_PORT_NAME, "containerPort": METRICS_PORT, "protocol": "TCP"}));
        }
        if workload.hooks && self.shard.is_none() {
            arguments.push(format!("--hook-address={HOOK_PORT}"));
            ports.push(json!({"name": "hooks", "containerPort": HOOK_PORT, "protocol": "TCP"}));
        }
        let serves = self.shard.is_none() && workload.has_artifacts();
        if serves {
            arguments.push(format!("--artifact-url={}", workload.artifact_url()));
        }
        if workload.helm_controller.is_some() && serves {
            arguments.push(format!("--artifact-open-address=[::]:{OPEN_ARTIFACT_PORT}"));
            ports.push(json!({"name": "artifacts-http", "containerPort": OPEN_ARTIFACT_PORT, "protocol": "TCP"}));
        }
        let mut mounts = vec![json!({"name": "data", "mountPath": DATA})];
        let mut volumes = vec![json!({"name": "data", "emptyDir": {"sizeLimit": mebibytes(workload.disk)}})];
        if let Some(secret) = workload.artifact_secret.as_ref().filter(|_| serves) {
            arguments.push(format!("--artifact-address={ARTIFACT_PORT}"));
            arguments.push(format!("--artifact-tls-cert={ARTIFACT_CERTIFICATE}/tls.crt"));
            arguments.push(format!("--artifact-tls-key={ARTIFACT_CERTIFICATE}/tls.key"));
            ports.push(json!({"name": "artifacts-https", "containerPort": ARTIFACT_PORT, "protocol": "TCP"}));
            mounts.push(json!({"name": "artifacts", "mountPath": ARTIFACT_CERTIFICATE, "readOnly": true}));
            volumes.push(json!({"name": "artifacts", "secret": {"secretName": secret, "defaultMode": 0o440}}));
        }
        if workload.admission && self.shard.is_none() {
            arguments.push(format!("--admission-address={}", admission_webhooks::PORT));
            ports.push(json!({"name": "admission", "containerPort": admission_webhooks::PORT, "protocol": "TCP"}));
            if let Some(secret) = &workload.admission_client_secret {
                arguments.push(format!("--admission-client-ca={ADMISSION_CLIENTS}/ca.crt"));
                mounts.push(json!({"name": "admission-clients", "mountPath": ADMISSION_CLIENTS, "readOnly": true}));
                // The authority alone: its key, if somebody put it there, is nobody's here.
                let items = json!([{"key": "ca.crt", "path": "ca.crt"}]);
                volumes.push(json!({"name": "admission-clients", "secret": {"secretName": secret, "defaultMode": 0o440, "items": items}}));
            }
        }
        if workload.admission && self.shard.is_some() {
            arguments.push("--admission-elsewhere".to_owned());
        }
        if workload.lanes && self.shard.is_none() {
            arguments.push("--lanes=deployment".to_owned());
            arguments.push(format!("--lane-address={LANE_PORT}"));
            arguments.push(format!("--lane-image={}", workload.image));
            if let Some(class) = &workload.priority_class {
                arguments.push(format!("--lane-priority-class={class}"));
            }
            ports.push(json!({"name": "lanes", "containerPort": LANE_PORT, "protocol": "TCP"}));
        }
        match self.shard {
            Some(shard) => arguments.push(format!("--watch-label-selector={SHARDING_KEY}={shard}")),
            None if !workload.shards.is_empty() => arguments.push(format!("--watch-label-selector=!{SHARDING_KEY}")),
            None => {}
        }
        arguments.extend(workload.arguments.iter().cloned());
        let spread = |key: &str| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": self.selector()}});
        let container = json!({
            "name": "tenure", "image": workload.image, "imagePullPolicy": "IfNotPresent",
            "command": [PROGRAM], "args": arguments,
            "env": [{"name": "TENURE_LOG_FORMAT", "value": "json"}],
            "ports": ports,
            "livenessProbe": probe("/livez", 3), "readinessProbe": probe("/readyz", 2),
            "securityContext": confine_container(),
            // No limit of processor time: who is throttled renews its Lease late, and loses it.
            "resources": {
                "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "256Mi"},
                "limits": {"memory": mebibytes(workload.memory)}
            },
            "volumeMounts": mounts
        });
        let mut pod = json!({
            "serviceAccountName": CONTROLLER_SERVICE_ACCOUNT, "automountServiceAccountToken": true, "enableServiceLinks": false,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            // What is under way ends first, then the Lease is given back.
            "terminationGracePeriodSeconds": 60,
            "securityContext": confine_pod(),
            "topologySpreadConstraints": [spread("kubernetes.io/hostname"), spread("topology.kubernetes.io/zone")],
            "containers": [container],
            "volumes": volumes
        });
        if let (Some(class), Some(pod)) = (&workload.priority_class, pod.as_object_mut()) {
            pod.insert("priorityClassName".to_owned(), json!(class));
        }
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": self.metadata(),
            "spec": {
                "replicas": workload.replicas, "revisionHistoryLimit": 3,
                "selector": {"matchLabels": self.selector()},
                // The next ones wait already when the last one gives the Lease back.
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {"metadata": {"labels": self.labels()}, "spec": pod}
            }
        })
    }
}

/// Whose sources something may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sources {
    /// Everybody's.
    All,
    /// All but the platform's.
    Tenants,
}

/// These ports of TCP.
fn tcp(ports: &[u16]) -> Value {
    ports
        .iter()
        .map(|port| json!({"protocol": "TCP", "port": port}))
        .collect()
}

/// Where something may connect to: names, the API server, and what sources reach.
fn list_ways(workload: &Workload, sources: Option<Sources>) -> Vec<Value> {
    let dns: Vec<Value> = DNS_PORTS
        .iter()
        .flat_map(|port| ["UDP", "TCP"].map(|protocol| json!({"protocol": protocol, "port": port})))
        .collect();
    let mut egress =
        vec![json!({"to": [{"namespaceSelector": {}}, {"ipBlock": {"cidr": NODE_LOCAL_DNS}}], "ports": dns})];
    if sources.is_some() {
        egress.push(json!({"to": open_blocks(&workload.cluster_ranges), "ports": [{"protocol": "TCP"}]}));
    }
    if workload.api_servers.is_empty() {
        // Its address is another one in every cluster, and none that a selector finds.
        egress.push(json!({"ports": tcp(&API_SERVER_PORTS)}));
    }
    let of_all = workload.source_addresses.iter().filter(|_| sources.is_some());
    let of_platform = workload.platform_addresses.iter();
    let of_platform = of_platform.filter(|_| sources == Some(Sources::All));
    for address in workload.api_servers.iter().chain(of_all).chain(of_platform) {
        egress.push(json!({"to": [{"ipBlock": {"cidr": only(address.ip())}}], "ports": tcp(&[address.port()])}));
    }
    if !workload.source_networks.is_empty() && sources.is_some() {
        let blocks: Vec<Value> = workload
            .source_networks
            .iter()
            .map(|network| json!({"ipBlock": {"cidr": network}}))
            .collect();
        egress.push(json!({"to": blocks, "ports": [{"protocol": "TCP"}]}));
    }
    egress
}

/// What Pods may do to the node that they are on: nothing.
fn confine_pod() -> Value {
    json!({
        "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"}
    })
}

/// See [`confine_pod`].
fn confine_container() -> Value {
    json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "privileged": false, "runAsNonRoot": true,
        "runAsUser": USER, "runAsGroup": USER, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}
    })
}

/// Asks the program for a probe.
fn probe(path: &str, failures: u32) -> Value {
    json!({"httpGet": {"path": path, "port": "health"}, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": failures})
}

fn mebibytes(bytes: u64) -> String {
    format!("{}Mi", bytes.div_ceil(1 << 20))
}

/// Nobody opens a connection to a Pod of the platform namespace. Probes of a kubelet are not held up by policies.
fn closed_namespace() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata("tenure-nobody-comes-in"),
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}
    })
}

/// The public addresses but for the cluster's own: all that sources may reach when no administrator says more.
fn open_blocks(cluster: &[String]) -> Vec<Value> {
    let of_cluster = || cluster.iter().filter_map(|range| range.split_once('/'));
    let closed: Vec<(&str, u8)> = of_cluster()
        .filter(|(address, _)| address.parse::<Ipv4Addr>().is_ok())
        .filter_map(|(address, length)| Some((address, length.parse().ok()?)))
        .chain(CLOSED_IPV4)
        .collect();
    let ranges = |write: &dyn Fn(&str, u8) -> String| -> Vec<String> {
        closed.iter().map(|(address, length)| write(address, *length)).collect()
    };
    let mut global: Vec<String> = CLOSED_IPV6.map(str::to_owned).into();
    // What lies outside of a block can't be an exception of it.
    let is_global = |address: &str| matches!(address.parse::<Ipv6Addr>(), Ok(parsed) if parsed.octets()[0] >> 5 == 1);
    global.extend(
        of_cluster()
            .filter(|(address, _)| is_global(address))
            .map(|(address, length)| format!("{address}/{length}")),
    );
    // 6to4 carries an IPv4 address behind its prefix, NAT64 at its end: they are judged by that one.
    global.extend(ranges(&|address, length| carried("2002:", "::", address, 16 + length)));
    vec![
        json!({"ipBlock": {"cidr": "0.0.0.0/0", "except": ranges(&|address, length| format!("{address}/{length}"))}}),
        json!({"ipBlock": {"cidr": "2000::/3", "except": global}}),
        json!({"ipBlock": {"cidr": "64:ff9b::/96",
            "except": ranges(&|address, length| carried("64:ff9b::", "", address, 96 + length))}}),
    ]
}

/// A range of IPv6 addresses that carry those of a range of IPv4.
fn carried(before: &str, after: &str, address: &str, length: u8) -> String {
    let octets = address.parse().unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
    let [a, b, c, d] = octets.map(u16::from);
    let text = format!("{before}{:x}:{:x}{after}", a << 8 | b, c << 8 | d);
    let written = text
        .parse::<std::net::Ipv6Addr>()
        .map_or(text, |address| address.to_string());
    format!("{written}/{length}")
}

fn only(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

#[cfg(test)]
mod tests;
