//! The requests and limits of containers, and of the Pod as a whole.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{not_found, validate_name};
use crate::schema::quantity::Quantity;
use crate::schema::validation::metadata::qualified_name;
use crate::schema::validation::{get_text, list_items, names};
use crate::schema::{FieldError, FieldPath};

/// Resources that quotas know by a name without a domain.
const STANDARD: [&str; 20] = [
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
    "storage",
];

/// The standard resources that quotas count as numbers of objects.
const COUNTED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && qualified_name(&format!("requests.{name}")).is_empty()
}

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || is_huge(name) || name.starts_with("requests.hugepages-")
}

/// Returns the errors in a resource's name, with or without a prefix.
fn resource_name(name: &str) -> Vec<String> {
    let complaints = qualified_name(name);
    if complaints.is_empty() && !name.contains('/') && !is_standard(name) {
        return vec!["must be a standard resource type or fully qualified".to_owned()];
    }
    complaints
}

fn container_resource(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    validate_name(resource_name, name, at, errors);
    let detail = if !name.contains('/') {
        let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge(name);
        (!known).then_some("must be a standard resource for containers")
    } else {
        let sound = is_native(name) || is_extended(name);
        (!sound).then_some("doesn't follow extended resource name standard")
    };
    if let Some(detail) = detail {
        errors.push(FieldError::invalid(at, name, detail));
    }
}

fn pod_resource(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let complaints = resource_name(name);
    if complaints.is_empty() && !matches!(name, "cpu" | "memory") && !is_huge(name) {
        errors.push(FieldError::not_supported(at, name, &["cpu", "hugepages-", "memory"]));
    }
    for complaint in complaints {
        errors.push(FieldError::invalid(at, name, complaint));
    }
}

/// Returns the amounts of one side.
fn parse_amounts<'a>(resources: &'a Value, side: &str) -> BTreeMap<&'a str, Quantity> {
    let list = resources.get(side).and_then(Value::as_object);
    list.into_iter()
        .flatten()
        .filter_map(|(name, amount)| Some((name.as_str(), Quantity::parse(amount.as_str()?).ok()?)))
        .collect()
}

fn validate_amount(name: &str, amount: Quantity, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if amount.is_negative() {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(at, amount.canonical(), detail));
    }
    if (COUNTED.contains(&name) || is_extended(name)) && !amount.is_whole() {
        errors.push(FieldError::invalid(at, amount.canonical(), "must be an integer"));
    }
    if let Some(page) = name.strip_prefix("hugepages-") {
        let fits = Quantity::parse(page).is_ok_and(|page| {
            let whole = !page.is_negative() && !page.is_zero() && page.is_whole();
            whole && amount.round_up().ratio_to(&page).fract() == 0.0
        });
        if !fits {
            let detail = format!("{} is not positive integer multiple of {name}", amount.canonical());
            errors.push(FieldError::invalid(at, amount.canonical(), detail));
        }
    }
}

/// Checks a container's resources; `claims` are the names of the pod's claims.
pub(super) fn validate_container_resources(
    resources: &Value,
    claims: &BTreeSet<&str>,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    validate_requirements(resources, container_resource, claims, at, errors);
}

/// Checks the overhead of a Pod beyond its containers.
pub(crate) fn validate_overhead(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(overhead) = spec.get("overhead") {
        let resources = serde_json::json!({"limits": overhead});
        validate_container_resources(&resources, &BTreeSet::new(), &path.child("overhead"), errors);
    }
}

fn validate_requirements(
    resources: &Value,
    name_rule: fn(&str, &FieldPath, &mut Vec<FieldError>),
    claims: &BTreeSet<&str>,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let limits = parse_amounts(resources, "limits");
    let requests = parse_amounts(resources, "requests");
    for (name, limit) in &limits {
        let at = at.child("limits").key(name);
        name_rule(name, &at, errors);
        validate_amount(name, *limit, &at, errors);
    }
    for (name, request) in &requests {
        let at_name = at.child("requests").key(name);
        name_rule(name, &at_name, errors);
        validate_amount(name, *request, &at_name, errors);
        let shared = is_native(name) && !is_huge(name);
        match limits.get(name) {
            Some(limit) if !shared && request != limit => {
                let detail = format!("must be equal to {name} limit of {}", limit.canonical());
                errors.push(FieldError::invalid(at.child("requests"), request.canonical(), detail));
            }
            Some(limit) if request > limit => {
                let detail = format!("must be less than or equal to {name} limit of {}", limit.canonical());
                errors.push(FieldError::invalid(at.child("requests"), request.canonical(), detail));
            }
            None if !shared => errors.push(FieldError::required(
                at.child("limits"),
                "Limit must be set for non overcommitable resources",
            )),
            _ => {}
        }
    }
    let any = |rule: fn(&str) -> bool| limits.keys().chain(requests.keys()).any(|name| rule(name));
    if any(is_huge) && !any(|name| matches!(name, "cpu" | "memory")) {
        errors.push(FieldError::forbidden(at, "HugePages require cpu or memory"));
    }
    used_claims(resources, claims, at, errors);
}

fn used_claims(resources: &Value, claims: &BTreeSet<&str>, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for (claim, at) in list_items(resources, "claims", at) {
        let (name, request) = (get_text(claim, "name"), get_text(claim, "request"));
        if name.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        if known.contains(name) {
            errors.push(FieldError::duplicate(&at, name));
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                validate_name(names::find_label_errors, request, &at.child("request"), errors);
                key = format!("{name}/{request}");
            }
            if known.contains(&key) {
                errors.push(FieldError::duplicate(&at, key.as_str()));
            } else if request.is_empty() {
                let parts = format!("{name}/");
                let parts = known
                    .range(parts.clone()..)
                    .take_while(|other| other.starts_with(&parts));
                for _ in parts {
                    errors.push(FieldError::duplicate(&at, name));
                }
            }
            known.insert(key);
        }
        if !claims.contains(name) {
            let mut error = not_found(&at, name);
            let all: Vec<&str> = claims.iter().copied().collect();
            error.detail = if all.is_empty() {
                "must be one of the names in pod.spec.resourceClaims which is empty".to_owned()
            } else {
                format!(
                    "must be one of the names in pod.spec.resourceClaims: {}",
                    all.join(", ")
                )
            };
            errors.push(error);
        }
    }
}

/// Checks the resources of a Pod as a whole, also against the sum of its containers.
pub(super) fn validate_pod_resources(
    spec: &Value,
    claims: &BTreeSet<&str>,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let Some(resources) = spec.get("resources") else { return };
    let at = path.child("resources");
    if spec.pointer("/os/name").and_then(Value::as_str) == Some("windows") {
        errors.push(FieldError::forbidden(at, "may not be set for a windows pod"));
        return;
    }
    if resources.get("claims").is_some() {
        let detail = "claims may not be set for Resources at pod-level";
        errors.push(FieldError::forbidden(at.child("claims"), detail));
    }
    validate_requirements(resources, pod_resource, claims, &at, errors);
    for (side, what) in [("requests", "requests"), ("limits", "limits")] {
        let whole = parse_amounts(resources, side);
        for (name, together) in sum_amounts(spec, side) {
            if side == "limits" && !is_huge(name) {
                continue;
            }
            if let Some(given) = whole.get(name)
                && together > *given
            {
                let detail = format!(
                    "must be greater than or equal to aggregate container {what} of {}",
                    together.canonical()
                );
                errors.push(FieldError::invalid(at.child(side).key(name), given.canonical(), detail));
            }
        }
    }
    let most = parse_amounts(resources, "limits");
    for (index, (container, _)) in list_items(spec, "containers", path).enumerate() {
        let limits = container
            .get("resources")
            .map(|resources| parse_amounts(resources, "limits"));
        for (name, limit) in limits.into_iter().flatten() {
            if let Some(most) = most.get(name)
                && limit > *most
            {
                // The real server's path is that of no field.
                let at = at.child("containers").index(index).key(name).child("limits");
                let detail = format!("must be less than or equal to pod limits of {}", most.canonical());
                errors.push(FieldError::invalid(at, limit.canonical(), detail));
            }
        }
    }
}

/// Returns the amounts that the containers need together: the maximum over the running phase and each step of the start.
fn sum_amounts<'a>(spec: &'a Value, side: &str) -> BTreeMap<&'a str, Quantity> {
    type Amounts<'a> = BTreeMap<&'a str, Quantity>;
    fn add_amounts<'a>(all: &mut Amounts<'a>, more: &Amounts<'a>) {
        for (name, amount) in more {
            let sum = all.get(name).map_or(*amount, |sum| sum.plus(*amount));
            all.insert(name, sum);
        }
    }
    let root = FieldPath::default();
    let of = |container: &'a Value| {
        container
            .get("resources")
            .map_or_else(Amounts::new, |list| parse_amounts(list, side))
    };
    let mut all = Amounts::new();
    for (container, _) in list_items(spec, "containers", &root) {
        add_amounts(&mut all, &of(container));
    }
    let mut beside = Amounts::new();
    let mut start = Amounts::new();
    for (container, _) in list_items(spec, "initContainers", &root) {
        let mut now = of(container);
        if get_text(container, "restartPolicy") == "Always" {
            add_amounts(&mut all, &now);
            add_amounts(&mut beside, &now);
            now = beside.clone();
        } else {
            add_amounts(&mut now, &beside);
        }
        for (name, amount) in now {
            if start.get(name).is_none_or(|most| amount > *most) {
                start.insert(name, amount);
            }
        }
    }
    for (name, amount) in start {
        if all.get(name).is_none_or(|sum| amount > *sum) {
            all.insert(name, amount);
        }
    }
    all
}
