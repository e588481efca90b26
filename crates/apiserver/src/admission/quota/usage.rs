//! How much of what quotas count an object is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenure_kinds::schema::quantity::Quantity;
use tenure_kinds::schema::resources::{Resources, list, of_pod};

use super::super::{Action, Attributes, classes};
use super::scopes;
use crate::registry::View;

/// The names of what Pods use, beside their number.
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Of these, containers must say how much they want once a quota counts them.
const REQUIRED: [&str; 6] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];
const BY_CLASS: &str = ".storageclass.storage.k8s.io/";

/// What kind of thing is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Pods,
    Services,
    Claims,
    /// Anything else, of which only the number counts: group and plural.
    Other(String, String),
}

impl Kind {
    fn of_resource(group: &str, plural: &str) -> Self {
        match (group, plural) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::Claims,
            _ => Self::Other(group.to_owned(), plural.to_owned()),
        }
    }

    /// What a request would be charged as, if it is of a sort that is.
    pub(super) fn of(attributes: &Attributes<'_>) -> Option<Self> {
        let (group, plural) = &attributes.resource().stored_as;
        if plural == "events" {
            return None;
        }
        let kind = Self::of_resource(group, plural);
        let charged = match (&kind, attributes.subresource(), attributes.action) {
            (_, "", Action::Create) | (Self::Services | Self::Claims, "", Action::Update) => true,
            (Self::Pods, "resize", Action::Update) => true,
            // A Pod that is to end by itself from now on falls under other quotas. What it was is not charged again.
            (Self::Pods, "", Action::Update) => true,
            _ => false,
        };
        charged.then_some(kind)
    }

    fn place(&self) -> (&str, &str) {
        match self {
            Self::Pods => ("", "pods"),
            Self::Services => ("", "services"),
            Self::Claims => ("", "persistentvolumeclaims"),
            Self::Other(group, plural) => (group, plural),
        }
    }

    /// `count/deployments.apps`.
    fn count_name(&self) -> String {
        match self.place() {
            ("", plural) => format!("count/{plural}"),
            (group, plural) => format!("count/{plural}.{group}"),
        }
    }

    /// The older name of the number of these.
    fn alias(&self) -> Option<&str> {
        match self.place() {
            (
                "",
                plural @ ("pods"
                | "services"
                | "persistentvolumeclaims"
                | "configmaps"
                | "resourcequotas"
                | "replicationcontrollers"
                | "secrets"),
            ) => Some(plural),
            _ => None,
        }
    }

    /// Whether a quota's resource of this name is about these.
    pub(super) fn counts(&self, name: &str) -> bool {
        if name == self.count_name() || self.alias() == Some(name) {
            return true;
        }
        match self {
            Self::Pods => {
                let bare = name.strip_prefix("requests.").unwrap_or(name);
                let compute =
                    COMPUTE.contains(&bare) || name.strip_prefix("limits.").is_some_and(|name| COMPUTE.contains(&name));
                compute || bare.starts_with("hugepages-") || is_extended(name)
            }
            Self::Services => matches!(name, "services.nodeports" | "services.loadbalancers"),
            Self::Claims => {
                name == "requests.storage"
                    || name
                        .split_once(BY_CLASS)
                        .is_some_and(|(_, what)| matches!(what, "requests.storage" | "persistentvolumeclaims"))
            }
            Self::Other(..) => false,
        }
    }
}

/// Whether a quota's resource is one that nodes offer beside the usual ones, `requests.nvidia.com/gpu`.
fn is_extended(name: &str) -> bool {
    name.strip_prefix("requests.")
        .is_some_and(|name| name.contains('/') && !name.contains("kubernetes.io/"))
}

/// How much an object is.
pub(super) fn of(kind: &Kind, object: &Value) -> Resources {
    let mut used = Resources::default();
    used.set(kind.count_name(), Quantity::whole(1));
    match kind {
        Kind::Pods => {
            if has_ended(object) {
                return used;
            }
            used.set("pods", Quantity::whole(1));
            used.add(&compute(&of_pod(object, "requests"), &of_pod(object, "limits")));
        }
        Kind::Services => service(object, &mut used),
        Kind::Claims => claim(object, &mut used),
        Kind::Other(..) => {
            if let Some(alias) = kind.alias() {
                used.set(alias, Quantity::whole(1));
            }
        }
    }
    used
}

/// Whether a Pod has run its course, and uses nothing any more.
fn has_ended(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str);
    let grace = pod
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    matches!(phase, Some("Failed" | "Succeeded")) || grace == Some(0)
}

/// Requests and limits under the names that quotas have for them.
fn compute(requests: &Resources, limits: &Resources) -> Resources {
    let mut used = Resources::default();
    for (name, amount) in &requests.0 {
        if COMPUTE.contains(&name.as_str()) || name.starts_with("hugepages-") {
            used.set(name.as_str(), *amount);
            used.set(format!("requests.{name}"), *amount);
        } else if name.contains('/') {
            used.set(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in &limits.0 {
        if COMPUTE.contains(&name.as_str()) {
            used.set(format!("limits.{name}"), *amount);
        }
    }
    used
}

fn service(object: &Value, used: &mut Resources) {
    used.set("services", Quantity::whole(1));
    let ports = list(object, "/spec/ports");
    let (mut node_ports, mut balancers) = (0, 0);
    match object.pointer("/spec/type").and_then(Value::as_str) {
        Some("NodePort") => node_ports = ports.len(),
        Some("LoadBalancer") => {
            balancers = 1;
            let allocates = object
                .pointer("/spec/allocateLoadBalancerNodePorts")
                .and_then(Value::as_bool);
            let given = ports
                .iter()
                .filter(|port| port.get("nodePort").and_then(Value::as_i64).unwrap_or_default() != 0);
            node_ports = if allocates == Some(false) {
                given.count()
            } else {
                ports.len()
            };
        }
        _ => {}
    }
    used.set("services.nodeports", Quantity::whole(node_ports));
    used.set("services.loadbalancers", Quantity::whole(balancers));
}

fn claim(object: &Value, used: &mut Resources) {
    let class = classes::of_claim(object);
    let mut set = |name: &str, amount: Quantity| {
        used.set(name, amount);
        if !class.is_empty() {
            used.set(format!("{class}{BY_CLASS}{name}"), amount);
        }
    };
    set("persistentvolumeclaims", Quantity::whole(1));
    let storage = |pointer: &str| Resources::read(object.pointer(pointer)).get("storage");
    if let Some(wanted) = storage("/spec/resources/requests") {
        let allocated = storage("/status/allocatedResources").filter(|allocated| *allocated > wanted);
        set("requests.storage", allocated.unwrap_or(wanted).round_up());
    }
}

/// What containers do not say although a quota counts it, as `cpu for: a,b; memory for: a`.
pub(super) fn constraints(kind: &Kind, restricted: &Resources, pod: &Value) -> Result<(), String> {
    if *kind != Kind::Pods
        || pod
            .pointer("/spec/resources")
            .is_some_and(|whole| whole.as_object().is_some_and(|whole| !whole.is_empty()))
    {
        return Ok(());
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let containers = list(pod, "/spec/containers").iter();
    for container in containers.chain(list(pod, "/spec/initContainers")) {
        let side = |side: &str| Resources::read(container.pointer(&format!("/resources/{side}")));
        let said = compute(&side("requests"), &side("limits"));
        for name in REQUIRED {
            if restricted.get(name).is_some() && said.get(name).is_none() {
                let container = container.get("name").and_then(Value::as_str).unwrap_or_default();
                missing.entry(name).or_default().insert(container);
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let parts: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| {
            let containers: Vec<&str> = containers.into_iter().collect();
            format!("{name} for: {}", containers.join(","))
        })
        .collect();
    Err(parts.join("; "))
}

/// How much of what a quota names there is in its namespace.
pub(crate) fn recount(view: &View, namespace: &str, quota: &Value) -> Resources {
    let hard = Resources::read(quota.pointer("/spec/hard"));
    let mut kinds = vec![Kind::Pods, Kind::Services, Kind::Claims];
    for name in hard.0.keys() {
        let (group, plural) = match name.strip_prefix("count/") {
            Some(counted) => {
                let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
                (group, plural)
            }
            None => ("", name.as_str()),
        };
        let kind = Kind::of_resource(group, plural);
        if kind.counts(name) && !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut counted = Resources::default();
    for kind in kinds {
        let wanted = hard.only(|name, _| kind.counts(name));
        if wanted.0.is_empty() {
            continue;
        }
        for name in wanted.0.keys() {
            counted.set(name.as_str(), Quantity::zero());
        }
        let (group, plural) = kind.place();
        for object in view.list(group, plural, Some(namespace)) {
            if scopes::matches(quota, &kind, &object) {
                counted.add(&of(&kind, &object).only(|name, _| wanted.get(name).is_some()));
            }
        }
    }
    counted
}
