//! The objects that run the controllers in a cluster, as data: a Deployment, its NetworkPolicies, and its disruption budget.
//! Numbers that an installer doesn't choose are here. Rights are in `installation`, and are the same for every way to run the
//! process.

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

/// The user and the group of the process. They are numbers, so that a kubelet can see that they aren't root's.
pub const USER: u32 = 65532;
/// The port of the probes.
pub const HEALTH_PORT: u16 = 9440;
/// The port of the metrics.
pub const METRICS_PORT: u16 = 8080;
/// The name of that port. Flux's Pods use the same name, so existing scrape configurations find it.
const METRICS_PORT_NAME: &str = "http-prom";
/// The port of requests to Receivers (Flux's).
pub const HOOK_PORT: u16 = 9292;
/// The Service of requests to Receivers (Flux's): an Ingress or a load balancer leads to it.
pub const HOOK_SERVICE: &str = "webhook-receiver";
/// The port of artifacts for authenticated clients, and the one for helm-controller.
pub const ARTIFACT_PORT: u16 = 9743;
/// See [`ARTIFACT_PORT`].
pub const OPEN_ARTIFACT_PORT: u16 = 9790;
/// The Service of artifacts.
pub const ARTIFACT_SERVICE: &str = "tenure-artifacts";
/// The path in a Pod of the authority that signs the API server's client certificate.
const ADMISSION_CLIENTS: &str = "/etc/tenure/admission-clients";
/// The path of the certificate for artifacts in a Pod.
const ARTIFACT_CERTIFICATE: &str = "/etc/tenure/artifacts";
/// The label of Flux's helm-controller.
const HELM_CONTROLLER: (&str, &str) = ("app", "helm-controller");
/// The path of the program in an image that has nothing else.
pub const PROGRAM: &str = "/tenure";
/// The only writable folder.
const DATA: &str = "/var/lib/tenure";
/// The default ports of the API server: 443 for the Service, 6443 for the server behind it, which many network plugins
/// check.
const API_SERVER_PORTS: [u16; 2] = [443, 6443];
/// The address of a node's DNS cache, in clusters that have one.
const NODE_LOCAL_DNS: &str = "169.254.20.10/32";
/// The ports of DNS: the usual one, and the one that OpenShift's Pods listen on.
const DNS_PORTS: [u16; 2] = [53, 5353];

/// The ranges of IPv4 that no source may reach: the same that the dialer's policy denies. A test of the program compares the two.
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
/// The ranges of IPv6 global unicast addresses that no source may reach, besides those in 6to4 addresses. (The dialer also checks
/// ISATAP's form, which is no range.)
pub const CLOSED_IPV6: [&str; 3] = ["2001::/23", "2001:db8::/32", "3fff::/20"];

/// The choices of an installer for the controllers' Pods: image, number, limits, ports, and reachable addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The image that holds the program.
    pub image: String,
    /// The number of Pods: one leads, the others wait.
    pub replicas: u32,
    /// The PriorityClass of the Pods.
    pub priority_class: Option<String>,
    /// Whether requests to Receivers are accepted.
    pub hooks: bool,
    /// The namespace of the helm-controller that artifacts are served to, if they are.
    pub helm_controller: Option<String>,
    /// The Secret with the certificate for serving artifacts to authorised clients, if they are served.
    pub artifact_secret: Option<String>,
    /// Whether the API server calls the admission webhooks.
    pub admission: bool,
    /// The Secret with the authority, `ca.crt`, of the API server's client certificate, if it shows one.
    pub admission_client_secret: Option<String>,
    /// Further arguments of `tenure run`.
    pub arguments: Vec<String>,
    /// The addresses of the API server. An empty list means every address, on the usual ports.
    pub api_servers: Vec<SocketAddr>,
    /// Single addresses that sources may reach although they aren't the Internet's.
    pub source_addresses: Vec<SocketAddr>,
    /// Ranges that sources may reach although they aren't the Internet's.
    pub source_networks: Vec<String>,
    /// Ranges of the Internet that no source may reach, each with its first address: the cluster's own.
    pub cluster_ranges: Vec<String>,
    /// The namespace whose Pods may request metrics. Without it no metrics are served.
    pub metrics_from: Option<String>,
    /// The limit of the process's memory, in bytes.
    pub memory: u64,
    /// The limit of its disk, in bytes.
    pub disk: u64,
    /// Whether each lane has a Pod of its own.
    pub lanes: bool,
    /// Single addresses that only sources of the platform may reach.
    pub platform_addresses: Vec<SocketAddr>,
    /// The shards that have Pods of their own. With any, the other Pods reconcile everything outside of shards.
    pub shards: Vec<String>,
}

/// The workload of an instance of the controllers: the main one, or that of a shard.
struct InstanceWorkload<'a> {
    workload: &'a Workload,
    shard: Option<&'a str>,
}

impl Workload {
    /// Checks whether artifacts are served to others.
    #[must_use]
    pub fn has_artifacts(&self) -> bool {
        self.helm_controller.is_some() || self.artifact_secret.is_some()
    }

    /// Returns the settings for the Deployments of lanes, if each lane has a Pod of its own.
    #[must_use]
    pub fn describe_lane_pods(&self) -> LanePods {
        LanePods {
            image: self.image.clone(),
            priority_class: self.priority_class.clone(),
            hub: usual_hub(),
            ..LanePods::default()
        }
    }

    /// Returns the address of artifacts for statuses. Only one address is possible, and helm-controller shows no token.
    fn artifact_url(&self) -> String {
        let scheme = if self.helm_controller.is_some() {
            "http"
        } else {
            "https"
        };
        format!("{scheme}://{ARTIFACT_SERVICE}.{PLATFORM_NAMESPACE}.svc")
    }

    /// Returns the workload with all defaults for an image, as in `deploy/`.
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

/// Returns all objects that run the controllers, in an order in which they can be applied: NetworkPolicies come before Pods.
#[must_use]
pub fn objects(workload: &Workload) -> Vec<Value> {
    let shards = workload.shards.iter().map(|shard| Some(shard.as_str()));
    let parts: Vec<InstanceWorkload<'_>> = std::iter::once(None)
        .chain(shards)
        .map(|shard| InstanceWorkload { workload, shard })
        .collect();
    let mut objects = vec![closed_namespace()];
    objects.extend(parts.iter().map(InstanceWorkload::traffic));
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

/// Returns the Service for requests to Receivers.
fn hook_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(HOOK_SERVICE),
        "spec": {
            "type": "ClusterIP", "selector": selector(),
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "hooks"}]
        }
    })
}

/// Returns the Service that the API server calls.
fn admission_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(admission_webhooks::SERVICE),
        "spec": {
            "type": "ClusterIP", "selector": selector(),
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": "admission"}]
        }
    })
}

/// Returns the Service of artifacts.
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
    add_label(selector(), MANAGED_BY, MANAGED_BY_TENURE)
}

fn add_label(mut labels: Value, label: &str, value: &str) -> Value {
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(label.to_owned(), json!(value));
    }
    labels
}

impl InstanceWorkload<'_> {
    fn name(&self) -> String {
        self.shard.map_or_else(
            || CONTROLLER_SERVICE_ACCOUNT.to_owned(),
            |shard| format!("{SHARD_LEASE_PREFIX}{shard}"),
        )
    }

    /// Returns the labels that select this part's Pods, and no other part's.
    fn selector(&self) -> Value {
        match self.shard {
            None => selector(),
            Some(shard) => {
                json!({"app.kubernetes.io/name": "tenure", "app.kubernetes.io/component": "controllers-of-shard", SHARD_LABEL: shard})
            }
        }
    }

    fn labels(&self) -> Value {
        add_label(self.selector(), MANAGED_BY, MANAGED_BY_TENURE)
    }

    fn metadata(&self) -> Value {
        json!({"name": self.name(), "namespace": PLATFORM_NAMESPACE, "labels": self.labels()})
    }

    /// Returns the NetworkPolicy of connections from and to the controllers. The dialer decides for each source after name resolution.
    /// This policy is the second line, in case a connection gets past the first. It can't be narrower than the dialer's policy, or a
    /// permitted source of a tenant could not be fetched: any port of any public address.
    fn traffic(&self) -> Value {
        let workload = self.workload;
        let egress = match workload.lanes {
            // With lanes, the sources' connections start in their Pods.
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
            // From anywhere: the way to this port differs between clusters, and each request is authenticated.
            ingress.push(json!({"ports": tcp(&[HOOK_PORT])}));
        }
        if let Some(namespace) = workload.helm_controller.as_ref().filter(|_| self.shard.is_none()) {
            // This port has no authentication: only these Pods may connect.
            let (label, value) = HELM_CONTROLLER;
            let from = json!({
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "podSelector": {"matchLabels": {label: value}}
            });
            ingress.push(json!({"from": [from], "ports": tcp(&[OPEN_ARTIFACT_PORT])}));
        }
        if workload.artifact_secret.is_some() && self.shard.is_none() {
            // From anywhere: each request is authenticated.
            ingress.push(json!({"ports": tcp(&[ARTIFACT_PORT])}));
        }
        if workload.admission && self.shard.is_none() {
            // From anywhere: the origin of an API server's connections differs between clusters, and no selector matches it. An invented review
            // gets no information.
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

    /// Returns a budget that evicts one Pod at a time, with one or many: a minimum of available Pods would stop the drain of a node with the only one.
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
            // A folder of its own: the mounted one belongs to the group, and this one to the process alone.
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
                // The authority alone: if the Secret also has its key, the key is not mounted.
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
            // No CPU limit: a throttled process renews its Lease late, and loses it.
            "resources": {
                "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "256Mi"},
                "limits": {"memory": mebibytes(workload.memory)}
            },
            "volumeMounts": mounts
        });
        let mut pod = json!({
            "serviceAccountName": CONTROLLER_SERVICE_ACCOUNT, "automountServiceAccountToken": true, "enableServiceLinks": false,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            // Running work ends first, and then the Lease is released.
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
                // The next Pods already wait when the last one releases the Lease.
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {"metadata": {"labels": self.labels()}, "spec": pod}
            }
        })
    }
}

/// The sources whose addresses Pods may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sources {
    /// The sources of the platform and of all tenants.
    All,
    /// The sources of tenants, without the platform's.
    Tenants,
}

/// Returns these ports of TCP.
fn tcp(ports: &[u16]) -> Value {
    ports
        .iter()
        .map(|port| json!({"protocol": "TCP", "port": port}))
        .collect()
}

/// Returns the permitted connections of Pods: DNS, the API server, and the addresses of sources.
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
        // The API server's address differs between clusters, and no selector matches it.
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

/// Returns the security context of a Pod: it may do nothing to its node.
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

/// Returns a probe of the program.
fn probe(path: &str, failures: u32) -> Value {
    json!({"httpGet": {"path": path, "port": "health"}, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": failures})
}

fn mebibytes(bytes: u64) -> String {
    format!("{}Mi", bytes.div_ceil(1 << 20))
}

/// Returns a policy against all connections to Pods of the platform namespace. Policies don't stop a kubelet's probes.
fn closed_namespace() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata("tenure-nobody-comes-in"),
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}
    })
}

/// Returns the public addresses without the cluster's own: everything that sources may reach unless an administrator allows more.
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
    // An exception of a block must be a part of it.
    let is_global = |address: &str| matches!(address.parse::<Ipv6Addr>(), Ok(parsed) if parsed.octets()[0] >> 5 == 1);
    global.extend(
        of_cluster()
            .filter(|(address, _)| is_global(address))
            .map(|(address, length)| format!("{address}/{length}")),
    );
    // 6to4 has an IPv4 address after its prefix, and NAT64 has one at its end. This address decides.
    global.extend(ranges(&|address, length| {
        write_ipv6_range("2002:", "::", address, 16 + length)
    }));
    vec![
        json!({"ipBlock": {"cidr": "0.0.0.0/0", "except": ranges(&|address, length| format!("{address}/{length}"))}}),
        json!({"ipBlock": {"cidr": "2000::/3", "except": global}}),
        json!({"ipBlock": {"cidr": "64:ff9b::/96",
            "except": ranges(&|address, length| write_ipv6_range("64:ff9b::", "", address, 96 + length))}}),
    ]
}

/// Returns a range of IPv6 addresses that contain the addresses of a range of IPv4.
fn write_ipv6_range(before: &str, after: &str, address: &str, length: u8) -> String {
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
