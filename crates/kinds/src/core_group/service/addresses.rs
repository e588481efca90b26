//! The cluster addresses of Services: selection, retention, release, and errors in requested addresses.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{node_ports, validation};
use crate::kind::{Allocated, Request};
use crate::object::set_status;
use crate::schema::FieldError;

fn needs_address(object: &Value) -> bool {
    object.pointer("/spec/type").and_then(Value::as_str) != Some("ExternalName")
}

fn cluster_ip(object: &Value) -> &str {
    object
        .pointer("/spec/clusterIP")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn prepare_create(request: &Request<'_>, object: &mut Value) {
    // A create through the status endpoint gets no address.
    if request.subresource.is_some() {
        return;
    }
    set_status(object, json!({"loadBalancer": {}}));
    normalize_addresses(object, None);
    allocate_addresses(request, object, None);
}

pub(super) fn prepare_update(request: &Request<'_>, live: &Value, new: &mut Value) {
    if request.subresource.is_some() {
        return;
    }
    if !is_of_type(new, &["LoadBalancer"])
        && let Some(status) = new.get_mut("status").and_then(Value::as_object_mut)
    {
        status.insert("loadBalancer".to_owned(), json!({}));
    }
    // An apply without an address keeps the address of the live Service.
    if needs_address(live) && needs_address(new) {
        keep_field(live, new, "clusterIP");
        keep_field(live, new, "clusterIPs");
    }
    node_ports::keep_node_ports(live, new);
    normalize_addresses(new, Some(live));
    drop_what_the_type_had(live, new);
    if needs_address(live) && needs_address(new) {
        keep_field(live, new, "ipFamilyPolicy");
    }
    allocate_addresses(request, new, Some(live));
}

fn spec_field<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get("spec")?.get(key)
}

/// Copies a field of the live Service if the new one does not set it.
fn keep_field(live: &Value, new: &mut Value, key: &str) {
    let is_set = spec_field(new, key).is_some_and(|value| {
        value.as_str().is_some_and(|text| !text.is_empty()) || value.as_array().is_some_and(|list| !list.is_empty())
    });
    if let (false, Some(kept)) = (is_set, spec_field(live, key)) {
        set(new, key, kept.clone());
    }
}

fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(key.to_owned(), value);
    }
}

/// Makes `clusterIP` and `clusterIPs` agree, if the request changed only one of them.
fn normalize_addresses(new: &mut Value, live: Option<&Value>) {
    let one = cluster_ip(new).to_owned();
    let all = |object: &Value| {
        let list = spec_field(object, "clusterIPs").and_then(Value::as_array).cloned();
        list.unwrap_or_default()
    };
    let Some(live) = live else {
        if !one.is_empty() && all(new).is_empty() {
            set(new, "clusterIPs", json!([one]));
        }
        return;
    };
    if cluster_ip(live) != one && all(live) == all(new) {
        if !one.is_empty() {
            set(new, "clusterIPs", json!([one]));
        } else if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("clusterIPs");
        }
    }
}

/// Returns whether clients outside the cluster may reach the Service.
fn is_reached_from_outside(object: &Value) -> bool {
    let addresses = object.pointer("/spec/externalIPs").and_then(Value::as_array);
    is_of_type(object, &["NodePort", "LoadBalancer"])
        || (is_of_type(object, &["ClusterIP"]) && addresses.is_some_and(|addresses| !addresses.is_empty()))
}

pub(super) fn is_of_type(object: &Value, types: &[&str]) -> bool {
    let kind = object.pointer("/spec/type").and_then(Value::as_str).unwrap_or_default();
    types.contains(&kind)
}

/// Removes the fields of the old type if the request changes only the type. Fields that the request changes too stay and are validated.
fn drop_what_the_type_had(live: &Value, new: &mut Value) {
    let of_addresses = ["ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"];
    let balanced = |object: &Value| is_of_type(object, &["LoadBalancer"]);
    let loses_address = needs_address(live) && !needs_address(new);
    let addresses = ["clusterIP", "clusterIPs"];
    let same_addresses = addresses
        .iter()
        .all(|key| spec_field(live, key) == spec_field(new, key));
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

/// Chooses values for fields that are not set. A Service with invalid values gets nothing.
fn allocate_addresses(request: &Request<'_>, object: &mut Value, live: Option<&Value>) {
    if !needs_address(object) {
        node_ports::allocate_node_ports(request, object, live);
        return;
    }
    let selects = spec_field(object, "selector")
        .and_then(Value::as_object)
        .is_some_and(|map| !map.is_empty());
    let headless = cluster_ip(object) == "None";
    // A headless Service without a selector has manual endpoints, which may be of every family.
    let unselected = headless && !selects;
    if spec_field(object, "ipFamilyPolicy").is_none() {
        let policy = if unselected { "RequireDualStack" } else { "SingleStack" };
        set(object, "ipFamilyPolicy", json!(policy));
    }
    // A change to a single family releases the other family, unless the request changes the lists too.
    if spec_field(object, "ipFamilyPolicy") == Some(&json!("SingleStack"))
        && let Some(live) = live
    {
        for key in ["clusterIPs", "ipFamilies"] {
            if spec_field(object, key) == spec_field(live, key)
                && let Some(Value::Array(list)) = object.get_mut("spec").and_then(|spec| spec.get_mut(key))
            {
                list.truncate(1);
            }
        }
    }
    if !find_family_errors(object, live).is_empty() {
        return;
    }
    if spec_field(object, "ipFamilies")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty)
    {
        set(object, "ipFamilies", json!(["IPv4"]));
    }
    if unselected
        && spec_field(object, "ipFamilyPolicy") != Some(&json!("SingleStack"))
        && let Some(list) = spec_field(object, "ipFamilies").and_then(Value::as_array)
        && let [only] = list.as_slice()
    {
        let other = if only == "IPv4" { "IPv6" } else { "IPv4" };
        set(object, "ipFamilies", json!([only, other]));
    }
    if cluster_ip(object).is_empty()
        && let Some(chosen) = free_address(request)
    {
        set(object, "clusterIP", json!(chosen));
        set(object, "clusterIPs", json!([chosen]));
    }
    node_ports::allocate_node_ports(request, object, live);
}

/// Returns the errors in the address families; this server has one family. If the first group of checks finds errors, the others do not
/// run.
fn find_family_errors(object: &Value, live: Option<&Value>) -> Vec<FieldError> {
    if !needs_address(object) {
        return Vec::new();
    }
    let mut errors = validation::cluster_addresses(object, live);
    if !errors.is_empty() {
        return errors;
    }
    let texts = |key: &str| -> Vec<&str> {
        let list = spec_field(object, key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let policy = spec_field(object, "ipFamilyPolicy")
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
        let list = live.and_then(|live| spec_field(live, key)).and_then(Value::as_array);
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
    let headless = cluster_ip(object) == "None";
    for (index, address) in addresses.iter().enumerate().skip(families.len()) {
        if !headless && address.contains(':') {
            let at = format!("spec.clusterIPs[{index}]");
            let detail = "IPv6 is not configured on this cluster";
            errors.push(FieldError::invalid(at, json!(addresses), detail));
        }
    }
    let selects = spec_field(object, "selector")
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

/// Returns whether a Service has this address.
fn is_taken(request: &Request<'_>, address: Ipv4Addr) -> bool {
    request.objects.count_holders(Allocated::ClusterIp(address)) > 0
}

fn free_address(request: &Request<'_>) -> Option<String> {
    let range = request.services;
    if request.dry_run {
        // As in Kubernetes, the network address means any address.
        return Some(range.network().to_string());
    }
    // The start is random, so that a released address is not reused immediately. The lowest addresses are reserved for users who choose one
    // themselves, as long as others are free.
    let size = i64::from(range.size());
    let lowest = (size / 16).clamp(16, 256).min(size / 2);
    let start = lowest + random_below(request, size - lowest);
    let mut candidates = (start..size - 1)
        .chain(1..start)
        .filter_map(|offset| range.address(u32::try_from(offset).ok()?));
    let free = candidates.find(|candidate| !is_taken(request, *candidate));
    free.map(|free| free.to_string())
}

/// Returns a number from 0 to below `end`.
pub(super) fn random_below(request: &Request<'_>, end: i64) -> i64 {
    let mut random = [0_u8; 4];
    (request.random)(&mut random);
    i64::from(u32::from_be_bytes(random)).checked_rem(end).unwrap_or(0)
}

/// Returns the errors in the address of a Service without a name.
pub(super) fn find_unnamed_address_errors(object: &Value) -> Vec<FieldError> {
    let faults = find_family_errors(object, None);
    if !faults.is_empty() || !needs_address(object) || cluster_ip(object) == "None" {
        return faults;
    }
    let detail = format!(
        "failed to allocate IP: IPAddress.networking.k8s.io {:?} is invalid: spec.parentRef.name: Required value",
        cluster_ip(object)
    );
    vec![FieldError::invalid("spec.clusterIPs", json!([""]), detail)]
}

/// Returns the errors in allocated values. They come before all others, because no other check runs until these values are valid.
pub(super) fn check(request: &Request<'_>, object: &Value, live: Option<&Value>) -> Vec<FieldError> {
    let errors = find_family_errors(object, live);
    if !errors.is_empty() {
        return errors;
    }
    let given_out = live.is_none_or(|live| !needs_address(live));
    if given_out && needs_address(object) {
        let errors = given_address(request, cluster_ip(object));
        if !errors.is_empty() {
            return errors;
        }
    }
    node_ports::validate(request, object, live)
}

fn given_address(request: &Request<'_>, new: &str) -> Vec<FieldError> {
    let at = "spec.clusterIPs";
    if new.is_empty() {
        let detail = "no free address is left in the service range";
        return vec![FieldError::invalid(at, json!([]), detail)];
    }
    let Ok(wanted) = new.parse() else {
        return Vec::new();
    };
    if request.dry_run && wanted == request.services.network() {
        return Vec::new();
    }
    let range = request.services;
    let why = if !range.contains(wanted) {
        // A dry run, which allocates nothing, has different words.
        if !request.dry_run {
            "the provided network does not match the current range".to_owned()
        } else {
            let from = range.network();
            let length = range.prefix();
            format!("the provided IP ({wanted}) is not in the valid range. The range of valid IPs is {from}/{length}")
        }
    } else if is_taken(request, wanted) {
        "provided IP is already allocated".to_owned()
    } else {
        return Vec::new();
    };
    let detail = format!("failed to allocate IP {new}: {why}");
    vec![FieldError::invalid(at, json!([new]), detail)]
}
