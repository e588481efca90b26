//! Services: the cluster address and the ports of nodes that the server chooses, and keeps.

mod node_ports;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::FieldError;
use crate::registry::View;

/// The range of cluster addresses; nothing routes to them here, but clients expect them to be there and unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceRange {
    network: u32,
    prefix: u32,
}

/// What is wrong with the text of a range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no IPv4 range of 4 to 1,048,576 addresses, such as 10.96.0.0/16")]
pub struct InvalidRange(String);

impl Default for ServiceRange {
    fn default() -> Self {
        Self {
            network: u32::from(Ipv4Addr::new(10, 96, 0, 0)),
            prefix: 16,
        }
    }
}

impl std::str::FromStr for ServiceRange {
    type Err = InvalidRange;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (address, prefix) = text.split_once('/')?;
            let address: Ipv4Addr = address.parse().ok()?;
            let prefix: u32 = prefix.parse().ok().filter(|prefix| (12..=30).contains(prefix))?;
            let size = 1_u32 << (32 - prefix);
            Some(Self {
                network: u32::from(address) & !(size - 1),
                prefix,
            })
        };
        read().ok_or_else(|| InvalidRange(text.to_owned()))
    }
}

impl ServiceRange {
    /// The addresses that may be given out: all but the first and the last one.
    fn addresses(self) -> impl Iterator<Item = Ipv4Addr> {
        let size = 1_u32 << (32 - self.prefix);
        (1..size - 1).map(move |offset| Ipv4Addr::from(self.network + offset))
    }

    fn contains(self, address: Ipv4Addr) -> bool {
        let size = 1_u32 << (32 - self.prefix);
        let offset = u32::from(address).wrapping_sub(self.network);
        0 < offset && offset < size - 1
    }
}

fn needs_address(object: &Value) -> bool {
    object.pointer("/spec/type").and_then(Value::as_str) != Some("ExternalName")
}

fn address(object: &Value) -> &str {
    object
        .pointer("/spec/clusterIP")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn prepare_create(object: &mut Value, view: &View) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), json!({"loadBalancer": {}}));
    }
    allocate(object, view);
    node_ports::allocate(object, None, view);
}

pub(super) fn prepare_update(live: &Value, new: &mut Value, view: &View) {
    drop_what_the_type_had(live, new);
    // Who applies a Service without an address wants to keep the one that it has.
    if needs_address(live) && needs_address(new) && address(new).is_empty() {
        let kept = [
            live.pointer("/spec/clusterIP").cloned(),
            live.pointer("/spec/clusterIPs").cloned(),
        ];
        if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
            for (key, value) in ["clusterIP", "clusterIPs"].into_iter().zip(kept) {
                if let Some(value) = value {
                    spec.insert(key.to_owned(), value);
                }
            }
        }
    }
    allocate(new, view);
    node_ports::keep(live, new);
    node_ports::allocate(new, Some(live), view);
}

/// Whether others than those within a cluster may reach it.
fn is_reached_from_outside(object: &Value) -> bool {
    let addresses = object.pointer("/spec/externalIPs").and_then(Value::as_array);
    is_of_type(object, &["NodePort", "LoadBalancer"]) || addresses.is_some_and(|addresses| !addresses.is_empty())
}

fn is_of_type(object: &Value, types: &[&str]) -> bool {
    let kind = object.pointer("/spec/type").and_then(Value::as_str).unwrap_or_default();
    types.contains(&kind)
}

/// Who changes the type alone doesn't want what belonged to the old one. What was changed with it stays, and is judged.
fn drop_what_the_type_had(live: &Value, new: &mut Value) {
    let addresses = [
        "clusterIP",
        "clusterIPs",
        "ipFamilies",
        "ipFamilyPolicy",
        "internalTrafficPolicy",
    ];
    let balanced = |object: &Value| is_of_type(object, &["LoadBalancer"]);
    let rules: [(bool, &[&str]); 3] = [
        (needs_address(live) && !needs_address(new), &addresses),
        (
            is_reached_from_outside(live) && !is_reached_from_outside(new),
            &["externalTrafficPolicy"],
        ),
        (
            balanced(live) && !balanced(new),
            &["allocateLoadBalancerNodePorts", "loadBalancerClass"],
        ),
    ];
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for (_, fields) in rules.iter().filter(|(applies, _)| *applies) {
        for field in *fields {
            if spec.get(*field) == live.pointer(&format!("/spec/{field}")) {
                spec.remove(*field);
            }
        }
    }
    node_ports::drop_unneeded(live, new);
}

fn allocate(object: &mut Value, view: &View) {
    let Some(spec) = object.get("spec").and_then(Value::as_object) else {
        return;
    };
    let family = |spec: &mut serde_json::Map<String, Value>| {
        spec.entry("ipFamilies").or_insert_with(|| json!(["IPv4"]));
        spec.entry("ipFamilyPolicy").or_insert_with(|| json!("SingleStack"));
        spec.entry("internalTrafficPolicy").or_insert_with(|| json!("Cluster"));
    };
    if !needs_address(object) {
        return;
    }
    let wanted = spec
        .get("clusterIP")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let chosen = if wanted.is_empty() {
        free_address(view)
    } else {
        Some(wanted)
    };
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(chosen) = chosen {
        spec.insert("clusterIP".to_owned(), Value::from(chosen.as_str()));
        spec.insert("clusterIPs".to_owned(), json!([chosen]));
    }
    family(spec);
}

/// What a stored Service holds of what is given out once. Every create asks all Services, so nothing else of them is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    metadata: StoredMetadata,
    spec: StoredSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredMetadata {
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredSpec {
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    #[serde(rename = "healthCheckNodePort")]
    health_check_node_port: i64,
    ports: Vec<StoredPort>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredPort {
    #[serde(rename = "nodePort")]
    node_port: i64,
}

fn taken(view: &View) -> impl Iterator<Item = String> {
    let stored: Vec<Stored> = view.parts("", "services");
    stored.into_iter().map(|service| service.spec.cluster_ip)
}

fn free_address(view: &View) -> Option<String> {
    let taken: BTreeSet<Ipv4Addr> = taken(view).filter_map(|address| address.parse().ok()).collect();
    view.services()
        .addresses()
        .find(|candidate| !taken.contains(candidate))
        .map(|free| free.to_string())
}

/// Faults of the address.
pub(super) fn validate(object: &Value, live: Option<&Value>, view: &View) -> Vec<FieldError> {
    let mut errors = node_ports::validate(object, live, view);
    let new = address(object);
    if let Some(live) = live {
        let old = address(live);
        if !old.is_empty() && needs_address(live) && needs_address(object) && old != new {
            errors.push(FieldError::invalid(
                "spec.clusterIPs[0]",
                json!([new]),
                "may not change once set",
            ));
        }
        return errors;
    }
    if needs_address(object) && new.is_empty() {
        errors.push(FieldError::invalid(
            "spec.clusterIPs",
            json!([]),
            "no free address is left in the service range",
        ));
    }
    if let Ok(wanted) = new.parse() {
        let why = if !view.services().contains(wanted) {
            "the provided network does not match the current range"
        } else if taken(view).any(|other| other == new) {
            "provided IP is already allocated"
        } else {
            return errors;
        };
        errors.push(FieldError::invalid(
            "spec.clusterIPs",
            json!([new]),
            format!("failed to allocate IP {new}: {why}"),
        ));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let range: ServiceRange = "10.0.0.7/24".parse().unwrap();
        assert_eq!(range.addresses().next(), Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(range.addresses().last(), Some(Ipv4Addr::new(10, 0, 0, 254)));
        for (address, inside) in [
            ([10, 0, 0, 0], false),
            ([10, 0, 0, 1], true),
            ([10, 0, 0, 254], true),
            ([10, 0, 0, 255], false),
            ([9, 255, 255, 255], false),
        ] {
            assert_eq!(range.contains(address.into()), inside, "{address:?}");
        }
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/8",
            "10.0.0.0/31",
            "fd00::/112",
            "10.0.0.0/24,fd00::/112",
        ] {
            assert!(text.parse::<ServiceRange>().is_err(), "{text}");
        }
    }
}
