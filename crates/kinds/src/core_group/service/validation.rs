//! Validation of Services, in the words of the real server: their ports, addresses, and traffic policies.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use crate::schema::validation::metadata::{qualified_name, validate_labels};
use crate::schema::validation::ports::port_or_name;
use crate::schema::validation::{addresses, get_text, is_empty_field, list_items, names, one_of, show_go_struct};
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];

/// Returns the texts of a list.
fn list_texts<'a>(spec: &'a Value, field: &str) -> Vec<&'a str> {
    let list = spec.get(field).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn is_headless(spec: &Value) -> bool {
    list_texts(spec, "clusterIPs") == ["None"]
}

fn get_number(value: &Value, field: &str) -> i64 {
    value.get(field).and_then(Value::as_i64).unwrap_or(0)
}

/// Checks a Service. `old` is the object before the update.
pub(super) fn validate_service(value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    topology_annotations(value, errors);
    validate_by_type(spec, &path, errors);
    let mut known = BTreeSet::new();
    let many = list_items(spec, "ports", &path).count() > 1;
    for (port, at) in list_items(spec, "ports", &path) {
        service_port(port, many, &mut known, &at, errors);
    }
    if let Some(Value::Object(map)) = spec.get("selector") {
        validate_labels(map, &path.child("selector"), errors);
    }
    validate_affinity(spec, &path, errors);
    errors.extend(cluster_addresses(value, old));
    let before: BTreeSet<&str> = old.map_or_else(BTreeSet::new, |old| {
        let before = list_texts(old.get("spec").unwrap_or(&NOTHING), "externalIPs");
        before.into_iter().collect()
    });
    for (address, at) in list_items(spec, "externalIPs", &path) {
        let address = address.as_str().unwrap_or_default();
        let sound = if before.contains(address) {
            addresses::parse_lenient_address(address)
        } else {
            addresses::parse_address(address, &at, errors)
        };
        if let Some(sound) = sound {
            addresses::validate_reachable(sound.to_canonical(), address, &at, errors);
        }
    }
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    one_of(spec, "type", &types, true, &path, errors);
    unique_ports(spec, &path, errors);
    source_ranges(value, old, errors);
    let balanced = get_text(spec, "type") == "LoadBalancer";
    if spec.get("allocateLoadBalancerNodePorts").is_some() && !balanced {
        only_balanced(path.child("allocateLoadBalancerNodePorts"), errors);
    }
    balancer_class(spec, errors);
    external_traffic(spec, &path, errors);
    let policies = ["Cluster", "Local"];
    let reached = matches!(get_text(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer");
    one_of(spec, "internalTrafficPolicy", &policies, reached, &path, errors);
    let distributions = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(found) = spec.get("trafficDistribution").and_then(Value::as_str)
        && !distributions.contains(&found)
    {
        let at = path.child("trafficDistribution");
        errors.push(FieldError::not_supported(at, found, &distributions));
    }
}

fn topology_annotations(value: &Value, errors: &mut Vec<FieldError>) {
    const MODE: &str = "service.kubernetes.io/topology-mode";
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let annotations = value.pointer("/metadata/annotations").unwrap_or(&NOTHING);
    let found = |key: &str| annotations.get(key).and_then(Value::as_str);
    if let (Some(mode), Some(hints)) = (found(MODE), found(HINTS))
        && mode != hints
    {
        let at = FieldPath::new("metadata").child("annotations").key(MODE);
        let detail = format!("must match annotations[{HINTS}] when both are specified");
        errors.push(FieldError::invalid(at, mode, detail));
    }
}

fn validate_by_type(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = get_text(spec, "type");
    let headless = is_headless(spec);
    if is_empty_field(spec, "ports") && !headless && kind != "ExternalName" {
        errors.push(FieldError::required(path.child("ports"), ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(path.child("clusterIPs").index(0), "None", detail));
        }
        "ExternalName" => {
            let detail = "may not be set for ExternalName services";
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if !is_empty_field(spec, field) {
                    errors.push(FieldError::forbidden(path.child(field), detail));
                }
            }
            let name = get_text(spec, "externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            let at = path.child("externalName");
            if name.is_empty() {
                errors.push(FieldError::required(at, ""));
            } else {
                for complaint in names::find_subdomain_errors(name) {
                    errors.push(FieldError::invalid(&at, name, complaint));
                }
            }
        }
        _ => {}
    }
}

fn service_port(
    port: &Value,
    require_name: bool,
    known: &mut BTreeSet<String>,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let name = get_text(port, "name");
    if name.is_empty() {
        if require_name {
            errors.push(FieldError::required(at.child("name"), ""));
        }
    } else {
        for complaint in names::find_label_errors(name) {
            errors.push(FieldError::invalid(at.child("name"), name, complaint));
        }
        if !known.insert(name.to_owned()) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        }
    }
    let found = get_number(port, "port");
    if let Some(complaint) = names::port_number(found) {
        errors.push(FieldError::invalid(at.child("port"), found, complaint));
    }
    one_of(
        port,
        "protocol",
        &crate::schema::validation::ports::PROTOCOLS,
        true,
        at,
        errors,
    );
    port_or_name(port, "targetPort", at, errors);
    if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
        for complaint in qualified_name(protocol) {
            errors.push(FieldError::invalid(at.child("appProtocol"), protocol, complaint));
        }
    }
}

/// Checks for duplicate ports, duplicate node ports, and node ports where the type allows none.
fn unique_ports(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if get_text(spec, "type") == "ClusterIP" {
        for (port, at) in list_items(spec, "ports", path) {
            if get_number(port, "nodePort") != 0 {
                let detail = "may not be used when `type` is 'ClusterIP'";
                errors.push(FieldError::forbidden(at.child("nodePort"), detail));
            }
        }
    }
    let mut known = BTreeSet::new();
    for (port, at) in list_items(spec, "ports", path) {
        let of_node = get_number(port, "nodePort");
        if of_node != 0 && !known.insert((get_text(port, "protocol"), of_node)) {
            errors.push(FieldError::duplicate(at.child("nodePort"), of_node));
        }
    }
    let mut known = BTreeSet::new();
    for (port, at) in list_items(spec, "ports", path) {
        let key = (get_text(port, "protocol"), get_number(port, "port"));
        if !known.insert(key) {
            let shown = show_go_struct(&[
                ("Name", &Value::from("")),
                ("Protocol", &Value::from(key.0)),
                ("AppProtocol", &NOTHING),
                ("Port", &Value::from(key.1)),
                ("TargetPort", &Value::from(0)),
                ("NodePort", &Value::from(0)),
            ]);
            errors.push(FieldError::duplicate(at, shown));
        }
    }
}

fn validate_affinity(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let affinity = get_text(spec, "sessionAffinity");
    one_of(spec, "sessionAffinity", &["ClientIP", "None"], true, path, errors);
    let config = spec.get("sessionAffinityConfig");
    let at = path.child("sessionAffinityConfig");
    if affinity == "None" && config.is_some() {
        let detail = "must not be set when session affinity is None";
        errors.push(FieldError::forbidden(&at, detail));
    }
    if affinity != "ClientIP" {
        return;
    }
    let detail = "when session affinity type is ClientIP";
    let client = config.and_then(|config| config.get("clientIP"));
    let seconds = client.and_then(|client| client.get("timeoutSeconds"));
    let inner = at.child("clientIP");
    match (config, client, seconds.and_then(Value::as_i64)) {
        (None, ..) => errors.push(FieldError::required(at, detail)),
        (_, None, _) => errors.push(FieldError::required(inner, detail)),
        (.., None) => errors.push(FieldError::required(inner.child("timeoutSeconds"), detail)),
        (.., Some(seconds)) if !(1..=86_400).contains(&seconds) => {
            let detail = "must be greater than 0 and less than 86400";
            errors.push(FieldError::invalid(inner.child("timeoutSeconds"), seconds, detail));
        }
        _ => {}
    }
}

/// Returns the errors in the fields for access within the cluster. These fields are checked before an address is allocated, and again
/// afterwards.
pub(super) fn cluster_addresses(value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = value.get("spec").unwrap_or(&NOTHING);
    if get_text(spec, "type") == "ExternalName" {
        return errors;
    }
    let path = FieldPath::new("spec");
    let at = path.child("clusterIPs");
    let (one, all) = (get_text(spec, "clusterIP"), list_texts(spec, "clusterIPs"));
    let shown = || spec.get("clusterIPs").cloned().unwrap_or_default();
    if !one.is_empty() && all.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else if !one.is_empty() && all.first() != Some(&one) {
        let detail = "first value must match `clusterIP`";
        errors.push(FieldError::invalid(&at, shown(), detail));
    } else if one.is_empty() && !all.is_empty() {
        let detail = "must be empty when `clusterIP` is not specified";
        errors.push(FieldError::invalid(&at, shown(), detail));
    }
    let families = list_texts(spec, "ipFamilies");
    let mut known = BTreeSet::new();
    for (index, family) in families.iter().enumerate() {
        let at = path.child("ipFamilies").index(index);
        if !FAMILIES.contains(family) {
            errors.push(FieldError::not_supported(&at, *family, &FAMILIES));
        }
        if !known.insert(family) {
            errors.push(FieldError::duplicate(at, *family));
        }
    }
    if let Some(policy) = spec.get("ipFamilyPolicy").and_then(Value::as_str)
        && !FAMILY_POLICIES.contains(&policy)
    {
        let at = path.child("ipFamilyPolicy");
        errors.push(FieldError::not_supported(at, policy, &FAMILY_POLICIES));
    }
    let before = old.map_or_else(Vec::new, |old| {
        list_texts(old.get("spec").unwrap_or(&NOTHING), "clusterIPs")
    });
    let before: BTreeSet<&str> = before.into_iter().collect();
    let count = errors.len();
    for (index, address) in all.iter().enumerate() {
        if index == 0 && *address == "None" {
            if all.len() > 1 {
                let detail = "'None' must be the first and only value";
                errors.push(FieldError::invalid(&at, shown(), detail));
            }
        } else if !before.contains(address) {
            addresses::parse_address(address, &at.index(index), &mut errors);
        }
    }
    let sound = errors.len() == count;
    if all.len() > 2 {
        errors.push(FieldError::invalid(&at, shown(), "may only hold up to 2 values"));
    }
    if !sound {
        return errors;
    }
    let is_new =
        |address: &&str| addresses::parse_lenient_address(address).map(|address| matches!(address, IpAddr::V6(_)));
    let kinds: BTreeSet<bool> = all.iter().filter_map(is_new).collect();
    if all.len() > 1 && kinds.len() < 2 {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(&at, shown(), detail));
    }
    if !is_headless(spec) {
        for (index, (address, family)) in all.iter().zip(&families).enumerate() {
            let wrong = match (*family, is_new(address).unwrap_or(false)) {
                ("IPv4", true) => "an IPv4",
                ("IPv6", false) => "an IPv6",
                _ => continue,
            };
            let detail = format!("expected {wrong} value as indicated by `ipFamilies[{index}]`");
            errors.push(FieldError::invalid(at.index(index), *address, detail));
        }
    }
    errors
}

fn source_ranges(value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let balanced = get_text(spec, "type") == "LoadBalancer";
    let ranges = list_texts(spec, "loadBalancerSourceRanges");
    let annotation = |value: &Value| -> Option<String> {
        let annotations = value.pointer("/metadata/annotations")?;
        annotations.get(ANNOTATION)?.as_str().map(str::to_owned)
    };
    if !ranges.is_empty() {
        let at = FieldPath::new("spec").child("LoadBalancerSourceRanges");
        if !balanced {
            only_balanced(&at, errors);
        }
        let before = old.and_then(|old| old.get("spec")).unwrap_or(&NOTHING);
        let before: BTreeSet<&str> = list_texts(before, "loadBalancerSourceRanges")
            .into_iter()
            .map(str::trim)
            .collect();
        for (index, range) in ranges.into_iter().map(str::trim).enumerate() {
            if !before.contains(range) {
                addresses::parse_range(range, &at.index(index), errors);
            }
        }
    } else if let Some(ranges) = annotation(value) {
        let at = FieldPath::new("metadata").child("annotations").key(ANNOTATION);
        if !balanced {
            only_balanced(&at, errors);
        }
        let changed = old.and_then(annotation).as_ref() != Some(&ranges);
        if changed && !ranges.trim().is_empty() {
            for range in ranges.trim().split(',') {
                addresses::parse_range(range.trim(), &at, errors);
            }
        }
    }
}

fn only_balanced(at: impl ToString, errors: &mut Vec<FieldError>) {
    let detail = "may only be used when `type` is 'LoadBalancer'";
    errors.push(FieldError::forbidden(at, detail));
}

fn balancer_class(spec: &Value, errors: &mut Vec<FieldError>) {
    let Some(class) = spec.get("loadBalancerClass").and_then(Value::as_str) else {
        return;
    };
    let at = FieldPath::new("spec").child("loadBalancerClass");
    if get_text(spec, "type") != "LoadBalancer" {
        only_balanced(at, errors);
        return;
    }
    for complaint in qualified_name(class) {
        errors.push(FieldError::invalid(&at, class, complaint));
    }
}

/// Returns whether a load balancer checks the nodes for Pods of the Service.
fn is_checked(spec: &Value) -> bool {
    get_text(spec, "type") == "LoadBalancer" && get_text(spec, "externalTrafficPolicy") == "Local"
}

fn external_traffic(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let at = path.child("externalTrafficPolicy");
    let kind = get_text(spec, "type");
    let external = matches!(kind, "LoadBalancer" | "NodePort")
        || (matches!(kind, "ClusterIP" | "") && !is_empty_field(spec, "externalIPs"));
    let policy = get_text(spec, "externalTrafficPolicy");
    if external {
        let policies = ["Cluster", "Local"];
        one_of(spec, "externalTrafficPolicy", &policies, true, path, errors);
    } else if !policy.is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid(at, policy, detail));
    }
    let at = path.child("healthCheckNodePort");
    let port = get_number(spec, "healthCheckNodePort");
    if is_checked(spec) {
        if port == 0 {
            errors.push(FieldError::required(at, ""));
        } else if let Some(complaint) = names::port_number(port) {
            errors.push(FieldError::invalid(at, port, complaint));
        }
    } else if port != 0 {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid(at, port, detail));
    }
}

/// Checks an update: the addresses stay while the type needs addresses, and the load balancer class stays.
pub(super) fn service_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let before = old.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    if [spec, before]
        .iter()
        .all(|spec| get_text(spec, "type") != "ExternalName")
    {
        validate_allocated_values(spec, before, "clusterIPs", "clusterIP", &path, errors);
        validate_allocated_values(spec, before, "ipFamilies", "ipFamily", &path, errors);
    }
    if [spec, before]
        .iter()
        .all(|spec| get_text(spec, "type") == "LoadBalancer")
    {
        let class = |spec: &Value| spec.get("loadBalancerClass").cloned();
        if class(spec) != class(before) {
            let shown = class(spec).unwrap_or_default();
            let at = path.child("loadBalancerClass");
            errors.push(FieldError::invalid(at, shown, "may not change once set"));
        }
    }
    balancer_class(spec, errors);
    let port = |spec: &Value| get_number(spec, "healthCheckNodePort");
    if is_checked(spec) && is_checked(before) && port(spec) != port(before) {
        errors.push(FieldError::forbidden(
            path.child("healthCheckNodePort"),
            "field is immutable",
        ));
    }
    validate_service(value, Some(old), errors);
}

/// Checks that allocated values stay: the first of a list always, a second one until it is released.
fn validate_allocated_values(
    spec: &Value,
    before: &Value,
    field: &str,
    one: &str,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let addresses = field == "clusterIPs";
    let headless = (is_headless(spec), is_headless(before));
    if headless == (true, true) || (!addresses && headless.0 != headless.1) {
        return;
    }
    let (new, old) = (list_texts(spec, field), list_texts(before, field));
    let shown = |field: &str| spec.get(field).cloned().unwrap_or_default();
    let at = path.child(field).index(0);
    let changed = "may not change once set";
    let first_changed = !old.is_empty() && !new.is_empty() && new.first() != old.first();
    if new.len() == old.len() {
        for (index, _) in new.iter().zip(&old).enumerate().filter(|(_, (new, old))| new != old) {
            // Errors in families name the first one.
            let at = path.child(field).index(if addresses { index } else { 0 });
            errors.push(FieldError::invalid(at, shown(field), changed));
        }
        return;
    }
    if new.len() < old.len() && list_texts(spec, "clusterIPs").is_empty() {
        let detail = format!("primary {one} can not be unset");
        errors.push(FieldError::invalid(&at, shown(field), detail));
    }
    if first_changed {
        errors.push(FieldError::invalid(at, shown("clusterIPs"), changed));
    }
    if new.len() == 1 && old.len() > 1 && get_text(spec, "ipFamilyPolicy") != "SingleStack" {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {one}");
        errors.push(FieldError::invalid(
            path.child("ipFamilyPolicy"),
            get_text(spec, "ipFamilyPolicy"),
            detail,
        ));
    }
}
