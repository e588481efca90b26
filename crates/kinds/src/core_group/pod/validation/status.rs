//! Validation of a Pod's status, which a kubelet writes: conditions, addresses, the states of containers, and allocated devices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::NOTHING;
use crate::schema::validation::{addresses, get_text, is_empty_field, list_items, metadata, names, validate_immutable};
use crate::schema::{FieldError, FieldPath, Shown};

/// The conditions that Kubernetes itself writes.
const OWN: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
const STATUSES: [&str; 3] = [
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
];

/// Checks the status that is about to replace another.
pub(crate) fn validate_status(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("status");
    let now = value.get("status").unwrap_or(&NOTHING);
    let before = old.get("status").unwrap_or(&NOTHING);
    let spec = value.get("spec").unwrap_or(&NOTHING);
    for (condition, at) in list_items(now, "conditions", &at) {
        validate_generation(condition, &at, errors);
        let kind = get_text(condition, "type");
        if !OWN.contains(&kind) {
            let complaints = metadata::qualified_name(kind);
            errors.extend(
                complaints
                    .into_iter()
                    .map(|why| FieldError::invalid(at.child("Type"), kind, why)),
            );
        }
    }
    validate_nominated_node(now, before, old, &at, errors);
    validate_generation(now, &at, errors);
    validate_immutable(now, before, "qosClass", &at, errors);
    for list in STATUSES {
        validate_transitions(now, before, list, spec, &at.child(list), errors);
    }
    validate_claims(now, spec, &at, errors);
    validate_extended_claim(
        now.get("extendedResourceClaimStatus"),
        spec,
        &at.child("extendedResourceClaimStatus"),
        errors,
    );
    pod_addresses(now, before, "podIPs", &at, errors);
    if let Some(first) = now.pointer("/hostIPs/0") {
        if get_text(first, "ip") != get_text(now, "hostIP") {
            let at = at.child("hostIPs").index(0).child("ip");
            errors.push(FieldError::invalid(
                at,
                get_text(first, "ip"),
                "must be equal to `hostIP`",
            ));
        }
        pod_addresses(now, before, "hostIPs", &at, errors);
    }
    let windows = spec.pointer("/os/name").and_then(Value::as_str) == Some("windows");
    for (container, at) in STATUSES.iter().flat_map(|list| list_items(now, list, &at)) {
        validate_user(container, windows, &at.child("user").child("linux"), errors);
    }
    for (list, containers) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
    ] {
        for (container, at) in list_items(now, list, &at) {
            let name = get_text(container, "name");
            let found = list_items(spec, containers, &at)
                .map(|(one, _)| one)
                .find(|one| get_text(one, "name") == name);
            validate_allocated_resources(container, found, &at, errors);
        }
    }
    for (container, at) in list_items(now, "ephemeralContainerStatuses", &at) {
        if !is_empty_field(container, "allocatedResourcesStatus") {
            let at = at.child("allocatedResourcesStatus");
            errors.push(FieldError::forbidden(at, "must not be specified in container status"));
        }
    }
}

fn validate_generation(of: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let number = of.get("observedGeneration").and_then(Value::as_i64).unwrap_or_default();
    if number < 0 {
        let why = "must be a non-negative integer";
        errors.push(FieldError::invalid(at.child("observedGeneration"), number, why));
    }
}

/// Checks the node on which a Pod will preempt others.
fn validate_nominated_node(now: &Value, before: &Value, old: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let name = get_text(now, "nominatedNodeName");
    if name.is_empty() || name == get_text(before, "nominatedNodeName") {
        return;
    }
    let at = at.child("nominatedNodeName");
    for why in names::find_subdomain_errors(name) {
        errors.push(FieldError::invalid(&at, name, why));
    }
    if old
        .pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .is_some_and(|node| !node.is_empty())
    {
        let why = "may not be set on pods that are already bound to a node";
        errors.push(FieldError::forbidden(at, why));
    }
}

/// Checks that a terminated container starts again only if its restart policy allows that.
fn validate_transitions(
    now: &Value,
    before: &Value,
    list: &str,
    spec: &Value,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let containers = match list {
        "containerStatuses" => Some("containers"),
        "initContainerStatuses" => Some("initContainers"),
        _ => None,
    };
    if containers.is_some() && restarts_all(spec) {
        return;
    }
    let root = FieldPath::default();
    let by_name = |value, list| -> BTreeMap<&str, &Value> {
        let all = list_items(value, list, &root).map(|(one, _)| (get_text(one, "name"), one));
        // Of two with one name, the first one counts.
        all.fold(BTreeMap::new(), |mut named, (name, one)| {
            named.entry(name).or_insert(one);
            named
        })
    };
    let present = by_name(now, list);
    let specified = containers.map(|containers| by_name(spec, containers));
    for (index, (was, _)) in list_items(before, list, &root).enumerate() {
        let Some(ended) = was.pointer("/state/terminated") else {
            continue;
        };
        let name = get_text(was, "name");
        let is = present.get(name);
        if is.is_none_or(|is| is.pointer("/state/terminated").is_some()) {
            continue;
        }
        let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
        let container = specified.as_ref().and_then(|specified| specified.get(name));
        if !container.is_some_and(|container| restarts_after_exit(container, spec, code)) {
            let why = "may not be transitioned to non-terminated state";
            errors.push(FieldError::forbidden(at.index(index).child("state"), why));
        }
    }
}

fn list_restart_rules(container: &Value) -> impl Iterator<Item = &Value> {
    let rules = container.get("restartPolicyRules").and_then(Value::as_array);
    rules.into_iter().flatten()
}

/// Returns whether the end of one container may restart all of them.
fn restarts_all(spec: &Value) -> bool {
    let root = FieldPath::default();
    ["initContainers", "containers"].iter().any(|list| {
        list_items(spec, list, &root).any(|(container, _)| {
            list_restart_rules(container).any(|rule| get_text(rule, "action") == "RestartAllContainers")
        })
    })
}

/// Returns whether a container that ended with this code is started again.
fn restarts_after_exit(container: &Value, spec: &Value, code: i64) -> bool {
    let policy = get_text(container, "restartPolicy");
    let applies = |rule: &&Value| {
        let values = rule.pointer("/exitCodes/values").and_then(Value::as_array);
        let listed = values.into_iter().flatten().any(|value| value.as_i64() == Some(code));
        match rule.pointer("/exitCodes/operator").and_then(Value::as_str) {
            Some("In") => listed,
            Some("NotIn") => !listed,
            _ => false,
        }
    };
    if !policy.is_empty()
        && list_restart_rules(container)
            .find(applies)
            .is_some_and(|rule| get_text(rule, "action") == "Restart")
    {
        return true;
    }
    match if policy.is_empty() {
        get_text(spec, "restartPolicy")
    } else {
        policy
    } {
        "OnFailure" => code != 0,
        "Never" => false,
        _ => true,
    }
}

fn validate_claims(now: &Value, spec: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    let known: BTreeSet<&str> = list_items(spec, "resourceClaims", at)
        .map(|(known, _)| get_text(known, "name"))
        .collect();
    for (claim, at) in list_items(now, "resourceClaimStatuses", at) {
        let name = get_text(claim, "name");
        if !known.contains(name) {
            let why = "must match the name of an entry in `spec.resourceClaims`";
            errors.push(FieldError::invalid(at.child("name"), name, why));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        }
        if let Some(made) = claim.get("resourceClaimName").and_then(Value::as_str) {
            for why in names::find_subdomain_errors(made) {
                errors.push(FieldError::invalid(at.child("resourceClaimName"), made, why));
            }
        }
    }
}

/// Checks the claim that was made for the Pod's extended resources.
fn validate_extended_claim(claim: Option<&Value>, spec: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(claim) = claim.filter(|claim| !claim.is_null()) else {
        return;
    };
    if is_empty_field(claim, "requestMappings") {
        let why = "at least one request mapping is required";
        errors.push(FieldError::required(at.child("requestMappings"), why));
    }
    let mut seen = BTreeSet::new();
    for (mapping, place) in list_items(claim, "requestMappings", at) {
        let [container, resource, request] =
            ["containerName", "resourceName", "requestName"].map(|field| get_text(mapping, field));
        let known = ["containers", "initContainers"]
            .iter()
            .flat_map(|list| list_items(spec, list, at))
            .map(|(one, _)| one)
            .find(|one| get_text(one, "name") == container);
        match known {
            None => {
                let why = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.push(FieldError::invalid(place.child("containerName"), container, why));
            }
            Some(known) => {
                let requests = known.pointer("/resources/requests");
                if requests.and_then(|requests| requests.get(resource)).is_none() {
                    let why = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
                    errors.push(FieldError::invalid(place.child("resourceName"), resource, why));
                }
            }
        }
        for why in names::find_label_errors(request) {
            errors.push(FieldError::invalid(at.child("requestName"), request, why));
        }
        if !seen.insert((container, resource, request)) {
            for (field, value) in [
                ("containerName", container),
                ("resourceName", resource),
                ("requestName", request),
            ] {
                errors.push(FieldError::duplicate(place.child(field), value));
            }
        }
    }
    let name = get_text(claim, "resourceClaimName");
    if name.is_empty() {
        errors.push(FieldError::required(at.child("resourceClaimName"), ""));
    } else {
        for why in names::find_subdomain_errors(name) {
            errors.push(FieldError::invalid(at.child("resourceClaimName"), name, why));
        }
    }
}

/// Checks that each family has at most one address. Addresses of the old status are not checked.
fn pod_addresses(now: &Value, before: &Value, field: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let known: Vec<&str> = list_items(before, field, at)
        .map(|(one, _)| get_text(one, "ip"))
        .collect();
    let all: Vec<&str> = list_items(now, field, at).map(|(one, _)| get_text(one, "ip")).collect();
    for (ip, at) in all.iter().zip(list_items(now, field, at).map(|(_, at)| at)) {
        if !known.contains(ip) {
            addresses::parse_address(ip, &at, errors);
        }
    }
    let parsed: Vec<IpAddr> = all
        .iter()
        .filter_map(|ip| addresses::parse_lenient_address(ip))
        .collect();
    if all.len() < 2 || parsed.len() < all.len() {
        return;
    }
    let both = parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6);
    if !both || all.len() > 2 {
        let shown: Vec<String> = all
            .iter()
            .map(|ip| format!("{{\"IP\":{}}}", Value::from(*ip)))
            .collect();
        let shown = Shown::Verbatim(format!("[{}]", shown.join(",")));
        let why = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(at.child(field), shown, why));
    }
}

/// Checks the user of a container's first process.
fn validate_user(container: &Value, windows: bool, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(user) = container.pointer("/user/linux") else {
        return;
    };
    if windows {
        errors.push(FieldError::forbidden(at, "cannot be set for a windows pod"));
        return;
    }
    let mut check = |number: Option<&Value>, at: FieldPath| {
        let number = number.and_then(Value::as_i64).unwrap_or_default();
        if !(0..=i64::from(i32::MAX)).contains(&number) {
            let why = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(at, number, why));
        }
    };
    check(user.get("uid"), at.child("uid"));
    check(user.get("gid"), at.child("gid"));
    for (group, at) in list_items(user, "supplementalGroups", at) {
        check(Some(group), at);
    }
}

/// Checks the devices of a container and their health.
fn validate_allocated_resources(
    status: &Value,
    container: Option<&Value>,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let claims = container.and_then(|container| container.pointer("/resources/claims"));
    let claims = claims.and_then(Value::as_array).into_iter().flatten();
    let claimed: BTreeSet<String> = claims
        .map(|claim| match get_text(claim, "request") {
            "" => format!("claim:{}", get_text(claim, "name")),
            request => format!("claim:{}/{request}", get_text(claim, "name")),
        })
        .collect();
    for (resource, at) in list_items(status, "allocatedResourcesStatus", at) {
        let name = get_text(resource, "name");
        if let Some(container) = container {
            let (found, why) = if name.starts_with("claim:") {
                let found = claimed.contains(name);
                let why = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";
                (found, why)
            } else {
                let requests = container.pointer("/resources/requests");
                let found = requests.and_then(|requests| requests.get(name)).is_some();
                (found, "must match one of the container's resource requests")
            };
            if !found {
                errors.push(FieldError::invalid(at.child("name"), name, why));
            }
        }
        let mut seen = BTreeSet::new();
        for (device, at) in list_items(resource, "resources", &at) {
            let health = get_text(device, "health");
            let known = ["Healthy", "Unhealthy", "Unknown"];
            if !known.contains(&health) {
                errors.push(FieldError::not_supported(at.child("health"), health, &known));
            }
            if let Some(message) = device.get("message").and_then(Value::as_str) {
                if message.is_empty() {
                    errors.push(FieldError::required(
                        at.child("message"),
                        "must be non-empty if specified",
                    ));
                } else if message.len() > 1024 {
                    errors.push(super::too_long(at.child("message"), 1024));
                }
            }
            let id = get_text(device, "resourceID");
            if !seen.insert(id) {
                errors.push(FieldError::duplicate(at.child("resourceID"), id));
            }
        }
    }
}
