//! Services: the cluster address and the ports of nodes that the server chooses, and keeps.

mod node_ports;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ring::rand::{SecureRandom as _, SystemRandom};
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_kinds::schema;

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
    #[cfg(test)]
    fn addresses(self) -> impl Iterator<Item = Ipv4Addr> {
        let size = 1_u32 << (32 - self.prefix);
        (1..size - 1).map(move |offset| Ipv4Addr::from(self.network + offset))
    }

    /// The address of the API server itself.
    pub(crate) fn first(self) -> String {
        Ipv4Addr::from(self.network.saturating_add(1)).to_string()
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
    normalize(object, None);
    allocate(object, None, view);
}

pub(super) fn prepare_update(live: &Value, new: &mut Value, view: &View) {
    if !is_of_type(new, &["LoadBalancer"])
        && let Some(status) = new.get_mut("status").and_then(Value::as_object_mut)
    {
        status.insert("loadBalancer".to_owned(), json!({}));
    }
    // Who applies a Service without an address wants to keep the one that it has.
    if needs_address(live) && needs_address(new) {
        keep(live, new, "clusterIP");
        keep(live, new, "clusterIPs");
    }
    node_ports::keep(live, new);
    normalize(new, Some(live));
    drop_what_the_type_had(live, new);
    if needs_address(live) && needs_address(new) {
        keep(live, new, "ipFamilyPolicy");
    }
    allocate(new, Some(live), view);
}

fn field<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get("spec")?.get(key)
}

/// Takes over what is not said.
fn keep(live: &Value, new: &mut Value, key: &str) {
    let said = field(new, key).is_some_and(|value| {
        value.as_str().is_some_and(|text| !text.is_empty()) || value.as_array().is_some_and(|list| !list.is_empty())
    });
    if let (false, Some(kept)) = (said, field(live, key)) {
        set(new, key, kept.clone());
    }
}

fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(key.to_owned(), value);
    }
}

/// The one address and the list of them say the same, where only one was said.
fn normalize(new: &mut Value, live: Option<&Value>) {
    let one = address(new).to_owned();
    let all = |object: &Value| {
        let list = field(object, "clusterIPs").and_then(Value::as_array).cloned();
        list.unwrap_or_default()
    };
    let Some(live) = live else {
        if !one.is_empty() && all(new).is_empty() {
            set(new, "clusterIPs", json!([one]));
        }
        return;
    };
    if address(live) != one && all(live) == all(new) {
        if !one.is_empty() {
            set(new, "clusterIPs", json!([one]));
        } else if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("clusterIPs");
        }
    }
}

/// Whether others than those within a cluster may reach it.
fn is_reached_from_outside(object: &Value) -> bool {
    let addresses = object.pointer("/spec/externalIPs").and_then(Value::as_array);
    is_of_type(object, &["NodePort", "LoadBalancer"])
        || (is_of_type(object, &["ClusterIP"]) && addresses.is_some_and(|addresses| !addresses.is_empty()))
}

fn is_of_type(object: &Value, types: &[&str]) -> bool {
    let kind = object.pointer("/spec/type").and_then(Value::as_str).unwrap_or_default();
    types.contains(&kind)
}

/// Who changes the type alone doesn't want what belonged to the old one. What was changed with it stays, and is judged.
fn drop_what_the_type_had(live: &Value, new: &mut Value) {
    let of_addresses = ["ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"];
    let balanced = |object: &Value| is_of_type(object, &["LoadBalancer"]);
    let loses_address = needs_address(live) && !needs_address(new);
    let addresses = ["clusterIP", "clusterIPs"];
    let same_addresses = addresses.iter().all(|key| field(live, key) == field(new, key));
    let rules: [(bool, &[&str]); 4] = [
        (loses_address && same_addresses, &addresses),
        (loses_address, &of_addresses),
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

/// Chooses what is not said. Nothing is given out to a Service that says what cannot be.
fn allocate(object: &mut Value, live: Option<&Value>, view: &View) {
    if !needs_address(object) {
        node_ports::allocate(object, live, view);
        return;
    }
    let selects = field(object, "selector")
        .and_then(Value::as_object)
        .is_some_and(|map| !map.is_empty());
    let headless = address(object) == "None";
    // Whoever fills in the endpoints by hand may do so for every family.
    let unselected = headless && !selects;
    if field(object, "ipFamilyPolicy").is_none() {
        let policy = if unselected { "RequireDualStack" } else { "SingleStack" };
        set(object, "ipFamilyPolicy", json!(policy));
    }
    // Who asks for one family only gives the other one back, if nothing else says otherwise.
    if field(object, "ipFamilyPolicy") == Some(&json!("SingleStack"))
        && let Some(live) = live
    {
        for key in ["clusterIPs", "ipFamilies"] {
            if field(object, key) == field(live, key)
                && let Some(Value::Array(list)) = object.get_mut("spec").and_then(|spec| spec.get_mut(key))
            {
                list.truncate(1);
            }
        }
    }
    if !families(object, live).is_empty() {
        return;
    }
    if field(object, "ipFamilies")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty)
    {
        set(object, "ipFamilies", json!(["IPv4"]));
    }
    if unselected
        && field(object, "ipFamilyPolicy") != Some(&json!("SingleStack"))
        && let Some(list) = field(object, "ipFamilies").and_then(Value::as_array)
        && let [only] = list.as_slice()
    {
        let other = if only == "IPv4" { "IPv6" } else { "IPv4" };
        set(object, "ipFamilies", json!([only, other]));
    }
    if address(object).is_empty()
        && let Some(chosen) = free_address(view)
    {
        set(object, "clusterIP", json!(chosen));
        set(object, "clusterIPs", json!([chosen]));
    }
    node_ports::allocate(object, live, view);
}

/// Faults of what is said of families of addresses, of which there is one here. The first group of them is told alone.
fn families(object: &Value, live: Option<&Value>) -> Vec<FieldError> {
    if !needs_address(object) {
        return Vec::new();
    }
    let mut errors = schema::cluster_addresses(object, live);
    if !errors.is_empty() {
        return errors;
    }
    let texts = |key: &str| -> Vec<&str> {
        let list = field(object, key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let policy = field(object, "ipFamilyPolicy")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let wrong_policy = |detail: &str| FieldError::invalid("spec.ipFamilyPolicy", policy, detail);
    let (addresses, families) = (texts("clusterIPs"), texts("ipFamilies"));
    if policy == "SingleStack" {
        for (list, what) in [(&addresses, "cluster IPs"), (&families, "IP families")] {
            if list.len() == 2 {
                errors.push(wrong_policy(&format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                )));
            }
        }
    }
    let before = |key: &str| {
        let list = live.and_then(|live| field(live, key)).and_then(Value::as_array);
        list.map_or(0, Vec::len)
    };
    for (key, list, what) in [
        ("clusterIPs", &addresses, "cluster IP"),
        ("ipFamilies", &families, "IP family"),
    ] {
        if policy != "SingleStack" && !list.is_empty() && list.len() < before(key) {
            errors.push(wrong_policy(&format!(
                "must be 'SingleStack' to release the secondary {what}"
            )));
        }
    }
    let headless = address(object) == "None";
    for (index, address) in addresses.iter().enumerate().skip(families.len()) {
        if !headless && address.contains(':') {
            let at = format!("spec.clusterIPs[{index}]");
            let detail = "IPv6 is not configured on this cluster";
            errors.push(FieldError::invalid(at, json!(addresses), detail));
        }
    }
    let selects = field(object, "selector")
        .and_then(Value::as_object)
        .is_some_and(|map| !map.is_empty());
    if !errors.is_empty() || (headless && !selects) {
        return errors;
    }
    if policy == "RequireDualStack" {
        errors.push(wrong_policy("this cluster is not configured for dual-stack services"));
    }
    for (index, family) in families.iter().enumerate().filter(|(_, family)| **family != "IPv4") {
        let at = format!("spec.ipFamilies[{index}]");
        errors.push(FieldError::invalid(at, *family, "not configured on this cluster"));
    }
    errors
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
    let range = view.services();
    if !view.gives_out() {
        // As in Kubernetes, an address that stands for any.
        return Some(Ipv4Addr::from(range.network).to_string());
    }
    let taken: BTreeSet<Ipv4Addr> = taken(view).filter_map(|address| address.parse().ok()).collect();
    // Anywhere in the range, so that what was given back is not given out again at once. The lowest are left to people who
    // choose for themselves, as long as there are others.
    let size = i64::from(1_u32 << (32 - range.prefix));
    let lowest = (size / 16).clamp(16, 256).min(size / 2);
    let start = lowest + random_below(size - lowest);
    let mut candidates = (start..size - 1).chain(1..start).filter_map(|offset| {
        let offset = u32::try_from(offset).ok()?;
        Some(Ipv4Addr::from(range.network.checked_add(offset)?))
    });
    let free = candidates.find(|candidate| !taken.contains(candidate));
    free.map(|free| free.to_string())
}

/// A number from 0 on that is less than `end`.
fn random_below(end: i64) -> i64 {
    let mut random = [0_u8; 4];
    // A failing random source gives the first that is free.
    let _ = SystemRandom::new().fill(&mut random);
    i64::from(u32::from_be_bytes(random)).checked_rem(end).unwrap_or(0)
}

/// What is wrong with the address of a Service without a name.
pub(super) fn nobodys_address(object: &Value) -> Vec<FieldError> {
    let faults = families(object, None);
    if !faults.is_empty() || !needs_address(object) || address(object) == "None" {
        return faults;
    }
    let detail = format!(
        "failed to allocate IP: IPAddress.networking.k8s.io {:?} is invalid: spec.parentRef.name: Required value",
        address(object)
    );
    vec![FieldError::invalid("spec.clusterIPs", json!([""]), detail)]
}

/// Faults of what is given out once. They are told before any other, as nothing else is looked at until then.
pub(super) fn validate(object: &Value, live: Option<&Value>, view: &View) -> Vec<FieldError> {
    let errors = families(object, live);
    if !errors.is_empty() {
        return errors;
    }
    let given_out = live.is_none_or(|live| !needs_address(live));
    if given_out && needs_address(object) {
        let errors = given_address(address(object), view);
        if !errors.is_empty() {
            return errors;
        }
    }
    node_ports::validate(object, live, view)
}

fn given_address(new: &str, view: &View) -> Vec<FieldError> {
    let at = "spec.clusterIPs";
    if new.is_empty() {
        let detail = "no free address is left in the service range";
        return vec![FieldError::invalid(at, json!([]), detail)];
    }
    let Ok(wanted) = new.parse() else {
        return Vec::new();
    };
    if !view.gives_out() && wanted == Ipv4Addr::from(view.services().network) {
        return Vec::new();
    }
    let range = view.services();
    let why = if !range.contains(wanted) {
        // In words of their own where nothing is given out.
        if view.gives_out() {
            "the provided network does not match the current range".to_owned()
        } else {
            let from = Ipv4Addr::from(range.network);
            let length = range.prefix;
            format!("the provided IP ({wanted}) is not in the valid range. The range of valid IPs is {from}/{length}")
        }
    } else if taken(view).any(|other| other == new) {
        "provided IP is already allocated".to_owned()
    } else {
        return Vec::new();
    };
    let detail = format!("failed to allocate IP {new}: {why}");
    vec![FieldError::invalid(at, json!([new]), detail)]
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
