//! The node ports of Services: chosen from one range, each allocated once. No node listens in the embedded control plane, but an applied
//! Service must look as in a cluster with nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::addresses::{is_of_type, random_below};
use crate::kind::{Allocated, Request};
use crate::schema::FieldError;

const RANGE: RangeInclusive<i64> = 30_000..=32_767;
/// The first port that is chosen automatically. Lower ports are reserved for users who choose one themselves, as long as others are free.
const CHOSEN_FROM: i64 = 30_086;

fn is_needed(object: &Value) -> bool {
    let asked = object
        .pointer("/spec/allocateLoadBalancerNodePorts")
        .and_then(Value::as_bool);
    is_of_type(object, &["NodePort"]) || (is_of_type(object, &["LoadBalancer"]) && asked != Some(false))
}

fn is_checked(object: &Value) -> bool {
    let policy = object.pointer("/spec/externalTrafficPolicy").and_then(Value::as_str);
    is_of_type(object, &["LoadBalancer"]) && policy == Some("Local")
}

fn list_ports(object: &Value) -> &[Value] {
    let ports = object.pointer("/spec/ports").and_then(Value::as_array);
    ports.map(Vec::as_slice).unwrap_or_default()
}

fn get_number(port: &Value, key: &str) -> i64 {
    port.get(key).and_then(Value::as_i64).unwrap_or_default()
}

fn port_name(port: &Value) -> &str {
    port.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn check_port(object: &Value) -> i64 {
    let port = object.pointer("/spec/healthCheckNodePort").and_then(Value::as_i64);
    port.unwrap_or_default()
}

/// Returns the node ports that a Service holds.
fn list_node_ports(object: &Value) -> BTreeSet<i64> {
    let ports = list_ports(object).iter().map(|port| get_number(port, "nodePort"));
    let all = ports.chain([check_port(object)]);
    all.filter(|port| *port != 0).collect()
}

/// Checks whether a Service other than the changed one holds this port. `own` are the ports of the changed Service.
fn is_taken(request: &Request<'_>, own: &BTreeSet<i64>, port: i64) -> bool {
    let holders = request.objects.count_holders(Allocated::NodePort(port));
    holders > usize::from(own.contains(&port))
}

fn change_ports(object: &mut Value, mut change: impl FnMut(&mut Map<String, Value>)) {
    let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        change(port);
    }
}

/// Removes node ports that the new type does not use, unless the request changed them with the type.
pub(super) fn drop_unneeded(live: &Value, new: &mut Value) {
    let has = |object: &Value| is_of_type(object, &["NodePort", "LoadBalancer"]);
    if has(live) && !has(new) && list_node_ports(live) == list_node_ports(new) {
        change_ports(new, |port| {
            port.remove("nodePort");
        });
    }
    if is_checked(live)
        && !is_checked(new)
        && check_port(live) == check_port(new)
        && let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.remove("healthCheckNodePort");
    }
}

/// Keeps the node ports if the new Service does not set them: each port gets the node port of the old port with its name.
pub(super) fn keep_node_ports(live: &Value, new: &mut Value) {
    let has = |object: &Value| is_of_type(object, &["NodePort", "LoadBalancer"]);
    if has(live) && has(new) {
        let known: BTreeMap<&str, i64> = list_ports(live)
            .iter()
            .map(|port| (port_name(port), get_number(port, "nodePort")))
            .collect();
        let mut used: BTreeSet<i64> = list_node_ports(live)
            .intersection(&list_node_ports(new))
            .copied()
            .collect();
        change_ports(new, |port| {
            let named = port.get("name").and_then(Value::as_str).unwrap_or_default();
            let node_port = port.get("nodePort").and_then(Value::as_i64).unwrap_or_default();
            let before = known.get(named).copied().unwrap_or_default();
            if node_port == 0 && before != 0 && used.insert(before) {
                port.insert("nodePort".to_owned(), json!(before));
            }
        });
    }
    if is_checked(live)
        && is_checked(new)
        && check_port(new) == 0
        && check_port(live) != 0
        && let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("healthCheckNodePort".to_owned(), json!(check_port(live)));
    }
}

/// Chooses the ports that are wanted and not named.
pub(super) fn allocate_node_ports(request: &Request<'_>, object: &mut Value, live: Option<&Value>) {
    let open = is_needed(object) && list_ports(object).iter().any(|port| get_number(port, "nodePort") == 0);
    let check = is_checked(object) && check_port(object) == 0;
    if !open && !check {
        return;
    }
    if request.dry_run {
        set_placeholder_ports(object, live, open, check);
        return;
    }
    let (own, named) = (live.map(list_node_ports).unwrap_or_default(), list_node_ports(object));
    // The start is random, so that a released port is not reused immediately.
    let start = CHOSEN_FROM + random_below(request, *RANGE.end() - CHOSEN_FROM);
    let candidates = (start..=*RANGE.end())
        .chain(CHOSEN_FROM..start)
        .chain(*RANGE.start()..CHOSEN_FROM);
    let mut free: Vec<i64> = candidates
        .filter(|port| !named.contains(port) && !is_taken(request, &own, *port))
        .take(list_ports(object).len() + 1)
        .collect();
    free.reverse();
    if open {
        let mut by_port = shared_ports(object);
        change_ports(object, |port| {
            if port.get("nodePort").and_then(Value::as_i64).unwrap_or_default() != 0 {
                return;
            }
            let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
            let shared = by_port.get(&number).copied().filter(|_| live.is_none());
            let chosen = shared.or_else(|| free.pop());
            if let Some(chosen) = chosen {
                by_port.insert(number, chosen);
                port.insert("nodePort".to_owned(), json!(chosen));
            }
        });
    }
    if check
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(chosen) = free.pop()
    {
        spec.insert("healthCheckNodePort".to_owned(), json!(chosen));
    }
}

/// Returns the node ports that are already set, by port. In a new Service, TCP and UDP at the same port share the port of the node.
fn shared_ports(object: &Value) -> BTreeMap<i64, i64> {
    let mut by_port = BTreeMap::new();
    for port in list_ports(object) {
        let node_port = get_number(port, "nodePort");
        if node_port != 0 {
            by_port.entry(get_number(port, "port")).or_insert(node_port);
        }
    }
    by_port
}

/// Sets placeholder ports, as in a dry run of Kubernetes. They are above all other ports.
fn set_placeholder_ports(object: &mut Value, live: Option<&Value>, open: bool, check: bool) {
    let kept = live.map(list_node_ports).unwrap_or_default();
    let named = list_node_ports(object)
        .into_iter()
        .filter(|port| !kept.contains(port))
        .max();
    let mut last = named.unwrap_or(RANGE.end() + 1);
    let mut next = || {
        last += 1;
        json!(last)
    };
    if open {
        let mut by_port = shared_ports(object);
        change_ports(object, |port| {
            if port.get("nodePort").and_then(Value::as_i64).unwrap_or_default() == 0 {
                let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
                let shared = by_port.get(&number).copied().filter(|_| live.is_none());
                let chosen = shared.map_or_else(&mut next, |shared| json!(shared));
                by_port.insert(number, chosen.as_i64().unwrap_or_default());
                port.insert("nodePort".to_owned(), chosen);
            }
        });
    }
    if check && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("healthCheckNodePort".to_owned(), next());
    }
}

/// Returns the first error in the requested node ports.
pub(super) fn validate(request: &Request<'_>, object: &Value, live: Option<&Value>) -> Vec<FieldError> {
    if !is_of_type(object, &["NodePort", "LoadBalancer"]) {
        return Vec::new();
    }
    let kept = live.map(list_node_ports).unwrap_or_default();
    let mut seen: BTreeMap<i64, i64> = BTreeMap::new();
    for (index, port) in list_ports(object).iter().enumerate() {
        let (node_port, number) = (get_number(port, "nodePort"), get_number(port, "port"));
        if node_port == 0 {
            continue;
        }
        let shared = seen.insert(node_port, number);
        if kept.contains(&node_port) {
            // The Service already holds this port.
            continue;
        }
        let detail = if !request.dry_run && !RANGE.contains(&node_port) {
            "provided port is not in the valid range. The range of valid ports is 30000-32767"
        } else if is_taken(request, &kept, node_port) || shared.is_some_and(|shared| shared != number) {
            "provided port is already allocated"
        } else {
            continue;
        };
        let field = format!("spec.ports[{index}].nodePort");
        return vec![FieldError::invalid(field, json!(node_port), detail)];
    }
    Vec::new()
}
