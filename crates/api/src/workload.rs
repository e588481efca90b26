//! What runs the controllers inside a cluster, as data: a Deployment, who its Pods may talk to, and what evictions leave of them.
//! Owns every number in it that doesn't come from whoever installs. It refuses to hold rights: those are `installation`'s, and are
//! the same whoever runs the process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::{Value, json};

use crate::metadata::{
    CONTROLLER_SERVICE_ACCOUNT, MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE, SHARD_LABEL, SHARD_LEASE_PREFIX,
    SHARDING_KEY,
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
    /// The shards that have Pods of their own; with any, the others see to what is in none.
    pub shards: Vec<String>,
}

/// What one instance of the controllers consists of: the main one, or a shard's.
struct Part<'a> {
    workload: &'a Workload,
    shard: Option<&'a str>,
}

impl Workload {
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
        let tcp = |ports: &[u16]| -> Value {
            ports
                .iter()
                .map(|port| json!({"protocol": "TCP", "port": port}))
                .collect()
        };
        let dns: Vec<Value> = DNS_PORTS
            .iter()
            .flat_map(|port| ["UDP", "TCP"].map(|protocol| json!({"protocol": protocol, "port": port})))
            .collect();
        let mut egress = vec![
            json!({"to": [{"namespaceSelector": {}}, {"ipBlock": {"cidr": NODE_LOCAL_DNS}}], "ports": dns}),
            json!({"to": open_blocks(&workload.cluster_ranges), "ports": [{"protocol": "TCP"}]}),
        ];
        if workload.api_servers.is_empty() {
            // Its address is another one in every cluster, and none that a selector finds.
            egress.push(json!({"ports": tcp(&API_SERVER_PORTS)}));
        }
        for address in workload.api_servers.iter().chain(&workload.source_addresses) {
            egress.push(json!({"to": [{"ipBlock": {"cidr": only(address.ip())}}], "ports": tcp(&[address.port()])}));
        }
        if !workload.source_networks.is_empty() {
            let blocks: Vec<Value> = workload
                .source_networks
                .iter()
                .map(|network| json!({"ipBlock": {"cidr": network}}))
                .collect();
            egress.push(json!({"to": blocks, "ports": [{"protocol": "TCP"}]}));
        }
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
        match self.shard {
            Some(shard) => arguments.push(format!("--watch-label-selector={SHARDING_KEY}={shard}")),
            None if !workload.shards.is_empty() => arguments.push(format!("--watch-label-selector=!{SHARDING_KEY}")),
            None => {}
        }
        arguments.extend(workload.arguments.iter().cloned());
        let probe = |path: &str, failures: u32| json!({"httpGet": {"path": path, "port": "health"}, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": failures});
        let spread = |key: &str| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": self.selector()}});
        let mebibytes = |bytes: u64| format!("{}Mi", bytes.div_ceil(1 << 20));
        let container = json!({
            "name": "tenure", "image": workload.image, "imagePullPolicy": "IfNotPresent",
            "command": [PROGRAM], "args": arguments,
            "env": [{"name": "TENURE_LOG_FORMAT", "value": "json"}],
            "ports": ports,
            "livenessProbe": probe("/livez", 3), "readinessProbe": probe("/readyz", 2),
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "privileged": false, "runAsNonRoot": true,
                "runAsUser": USER, "runAsGroup": USER, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}
            },
            // No limit of processor time: who is throttled renews its Lease late, and loses it.
            "resources": {
                "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "256Mi"},
                "limits": {"memory": mebibytes(workload.memory)}
            },
            "volumeMounts": [{"name": "data", "mountPath": DATA}]
        });
        let mut pod = json!({
            "serviceAccountName": CONTROLLER_SERVICE_ACCOUNT, "automountServiceAccountToken": true, "enableServiceLinks": false,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            // What is under way ends first, then the Lease is given back.
            "terminationGracePeriodSeconds": 60,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"}
            },
            "topologySpreadConstraints": [spread("kubernetes.io/hostname"), spread("topology.kubernetes.io/zone")],
            "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {"sizeLimit": mebibytes(workload.disk)}}]
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
mod tests {
    use super::*;

    fn workload() -> Workload {
        Workload {
            image: "example/tenure:1@sha256:0".to_owned(),
            replicas: 2,
            priority_class: None,
            hooks: false,
            arguments: vec!["--flux-namespace=gitops".to_owned()],
            api_servers: Vec::new(),
            source_addresses: Vec::new(),
            cluster_ranges: Vec::new(),
            source_networks: Vec::new(),
            metrics_from: None,
            shards: Vec::new(),
            memory: (1 << 30) + 1,
            disk: 1 << 30,
        }
    }

    /// Nobody comes in by default; for metrics one namespace does, on one port.
    #[test]
    fn metrics_are_reached_from_one_namespace() {
        let closed = find(&objects(&workload()), "NetworkPolicy", "tenure-controller");
        assert_eq!(closed["spec"]["ingress"], Value::Null);
        let open = Workload {
            metrics_from: Some("monitoring".to_owned()),
            ..workload()
        };
        let objects = objects(&open);
        let policy = find(&objects, "NetworkPolicy", "tenure-controller");
        assert_eq!(
            policy["spec"]["ingress"],
            json!([{"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
                    "ports": [{"protocol": "TCP", "port": METRICS_PORT}]}])
        );
        let deployment = find(&objects, "Deployment", "tenure-controller");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["ports"][1]["name"], METRICS_PORT_NAME);
        let arguments = container["args"].as_array().expect("a list");
        assert!(arguments.contains(&json!("--metrics-address=8080")), "{arguments:?}");
        let both = Workload { hooks: true, ..open };
        let policy = find(&super::objects(&both), "NetworkPolicy", "tenure-controller");
        let ports = |rule: usize| policy["spec"]["ingress"][rule]["ports"][0]["port"].clone();
        assert_eq!((ports(0), ports(1)), (json!(METRICS_PORT), json!(HOOK_PORT)));
        assert_eq!(policy["spec"]["ingress"][0]["from"][0]["podSelector"], Value::Null);
        assert!(
            policy["spec"]["ingress"][0]["from"].is_array(),
            "who asks for hooks doesn't open the metrics"
        );
    }

    fn find(objects: &[Value], kind: &str, name: &str) -> Value {
        let found = objects
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}")).clone()
    }

    #[test]
    fn the_deployment_says_what_was_chosen_and_nothing_is_written_twice() {
        let mut chosen = workload();
        let objects_by_default = objects(&chosen);
        let by_default = find(&objects_by_default, "Deployment", "tenure-controller");
        let pod = &by_default["spec"]["template"]["spec"];
        assert_eq!(pod["priorityClassName"], Value::Null);
        assert_eq!(pod["containers"][0]["resources"]["limits"]["memory"], "1025Mi");
        assert_eq!(pod["volumes"][0]["emptyDir"]["sizeLimit"], "1024Mi");
        let arguments = pod["containers"][0]["args"].as_array().expect("a list");
        assert_eq!(arguments.last().expect("one"), "--flux-namespace=gitops");
        chosen.priority_class = Some("system-cluster-critical".to_owned());
        let with_class = find(&objects(&chosen), "Deployment", "tenure-controller");
        assert_eq!(
            with_class["spec"]["template"]["spec"]["priorityClassName"],
            "system-cluster-critical"
        );
        // A Deployment whose selector doesn't choose its own Pods is refused, and a budget for other Pods is none.
        let budget = find(&objects_by_default, "PodDisruptionBudget", "tenure-controller");
        let policy = find(&objects_by_default, "NetworkPolicy", "tenure-controller");
        let labels = by_default["spec"]["template"]["metadata"]["labels"]
            .as_object()
            .expect("labels");
        for chosen in [
            &by_default["spec"]["selector"]["matchLabels"],
            &budget["spec"]["selector"]["matchLabels"],
            &policy["spec"]["podSelector"]["matchLabels"],
        ] {
            for (key, value) in chosen.as_object().expect("a selector") {
                assert_eq!(labels.get(key), Some(value), "{key}");
            }
        }
    }

    #[test]
    fn requests_come_in_where_they_are_taken_and_nowhere_else() {
        let closed = objects(&workload());
        assert!(!closed.iter().any(|object| object["kind"] == "Service"));
        let policy = find(&closed, "NetworkPolicy", "tenure-controller");
        assert_eq!(policy["spec"].get("ingress"), None);
        let opened = objects(&Workload {
            hooks: true,
            ..workload()
        });
        let policy = find(&opened, "NetworkPolicy", "tenure-controller");
        assert_eq!(
            policy["spec"]["ingress"],
            json!([{"ports": [{"protocol": "TCP", "port": HOOK_PORT}]}])
        );
        let container = &find(&opened, "Deployment", "tenure-controller")["spec"]["template"]["spec"]["containers"][0];
        let service = find(&opened, "Service", HOOK_SERVICE);
        let target = &service["spec"]["ports"][0]["targetPort"];
        let ports = container["ports"].as_array().expect("ports");
        let port = ports
            .iter()
            .find(|port| port["name"] == *target)
            .expect("the port of the Service");
        assert_eq!(port["containerPort"], HOOK_PORT);
        let arguments = container["args"].as_array().expect("a list");
        assert!(
            arguments.contains(&json!(format!("--hook-address={HOOK_PORT}"))),
            "{arguments:?}"
        );
        for (key, value) in service["spec"]["selector"].as_object().expect("a selector") {
            assert_eq!(labels().get(key), Some(value), "{key}");
        }
    }

    #[test]
    fn a_known_api_server_narrows_what_may_be_reached() {
        let egress = |workload: &Workload| {
            find(&objects(workload), "NetworkPolicy", "tenure-controller")["spec"]["egress"]
                .as_array()
                .expect("rules")
                .clone()
        };
        let mut chosen = workload();
        let anywhere = |rules: &[Value]| rules.iter().filter(|rule| rule.get("to").is_none()).count();
        assert_eq!(anywhere(&egress(&chosen)), 1);
        chosen.api_servers = vec!["10.96.0.1:443".parse().unwrap(), "[fd00::1]:6443".parse().unwrap()];
        chosen.source_networks = vec!["10.1.0.0/16".to_owned()];
        let rules = egress(&chosen);
        assert_eq!(anywhere(&rules), 0);
        let text = serde_json::to_string(&rules).unwrap();
        for cidr in ["10.96.0.1/32", "fd00::1/128", "10.1.0.0/16"] {
            assert!(text.contains(&format!("\"cidr\":\"{cidr}\"")), "{cidr}: {text}");
        }
    }

    #[test]
    fn the_cluster_is_closed_in_every_form_of_its_addresses() {
        let mut chosen = workload();
        chosen.cluster_ranges = ["34.1.0.0/16", "2600:1900::/28", "fd00::/8"].map(str::to_owned).into();
        let policy = find(&objects(&chosen), "NetworkPolicy", "tenure-controller");
        let blocks = policy["spec"]["egress"][1]["to"].as_array().expect("blocks");
        let excepted = |block: &Value| -> Vec<String> {
            let except = block["ipBlock"]["except"].as_array().expect("exceptions");
            except.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let has = |at: usize, range: &str| excepted(&blocks[at]).iter().any(|found| found == range);
        assert!(has(0, "34.1.0.0/16") && has(1, "2600:1900::/28"));
        assert!(has(1, "2002:2201::/32") && has(2, "64:ff9b::2201:0/112"), "{blocks:?}");
        // It is closed already, and an API server refuses an exception that isn't part of its block.
        assert!(!has(1, "fd00::/8"));
    }

    #[test]
    fn an_address_is_carried_where_it_belongs() {
        assert_eq!(carried("2002:", "::", "10.0.0.0", 24), "2002:a00::/24");
        assert_eq!(carried("64:ff9b::", "", "192.168.0.0", 112), "64:ff9b::c0a8:0/112");
    }

    #[test]
    fn a_shard_has_pods_of_its_own() {
        let shards = vec!["a".to_owned(), "b".to_owned()];
        let objects = objects(&Workload { shards, ..workload() });
        let of_kind = |kind: &str| {
            objects
                .iter()
                .filter(|object| object["kind"] == kind)
                .collect::<Vec<_>>()
        };
        let mut selectors = std::collections::BTreeSet::new();
        for (deployment, (name, selector)) in of_kind("Deployment").into_iter().zip([
            ("tenure-controller", "!sharding.fluxcd.io/key"),
            ("tenure-controller-shard-a", "sharding.fluxcd.io/key=a"),
            ("tenure-controller-shard-b", "sharding.fluxcd.io/key=b"),
        ]) {
            assert_eq!(deployment["metadata"]["name"], name);
            let container = &deployment["spec"]["template"]["spec"]["containers"][0];
            let flag = json!(format!("--watch-label-selector={selector}"));
            assert!(
                container["args"]
                    .as_array()
                    .is_some_and(|arguments| arguments.contains(&flag)),
                "{container}"
            );
            let selected = &deployment["spec"]["selector"]["matchLabels"];
            let labels = &deployment["spec"]["template"]["metadata"]["labels"];
            assert!(
                selected
                    .as_object()
                    .is_some_and(|selected| selected.iter().all(|(label, value)| labels[label] == *value))
            );
            // What is for one part selects its Pods and no other part's.
            for kind in ["NetworkPolicy", "PodDisruptionBudget"] {
                let is_its = |object: &&&Value| object["metadata"]["name"] == name;
                let object = of_kind(kind);
                let object = object.iter().find(is_its).expect("one for each part");
                let spec = &object["spec"];
                let of_object = if kind == "NetworkPolicy" {
                    &spec["podSelector"]
                } else {
                    &spec["selector"]
                };
                assert_eq!(of_object["matchLabels"], *selected);
            }
            selectors.insert(selected.to_string());
        }
        assert_eq!((selectors.len(), of_kind("Deployment").len()), (3, 3));
        // Without shards, the only instance is told of none.
        let alone = super::objects(&workload());
        assert!(
            !serde_json::to_string(&alone)
                .expect("JSON")
                .contains("watch-label-selector")
        );
    }
}
