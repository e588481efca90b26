//! The names and amounts of resources in quotas and limits.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::schema::quantity::Quantity;
use crate::schema::validation::metadata::qualified_name;
use crate::schema::{FieldError, FieldPath};

/// The resource names without a prefix that a quota can count.
pub(super) const COUNTED: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];

pub(super) fn is_huge(name: &str) -> bool {
    name.strip_prefix("requests.").unwrap_or(name).starts_with("hugepages-")
}

pub(super) fn is_counted(name: &str) -> bool {
    COUNTED.contains(&name) || is_huge(name)
}

/// Returns whether a name with a prefix is a resource of nodes, not of Kubernetes itself.
pub(super) fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

pub(super) fn parse_amounts(value: &Value, field: &str) -> BTreeMap<String, Quantity> {
    let list = value.get(field).and_then(Value::as_object);
    list.into_iter()
        .flatten()
        .filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?)))
        .collect()
}

pub(super) fn resource_name(name: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let faults = qualified_name(name);
    if faults.is_empty() && !name.contains('/') && !is_counted(name) && name != "storage" {
        errors.push(FieldError::invalid(
            path,
            name,
            "must be a standard resource type or fully qualified",
        ));
    }
    for fault in faults {
        errors.push(FieldError::invalid(path, name, fault));
    }
}
