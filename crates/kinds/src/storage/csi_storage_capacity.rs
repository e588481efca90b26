//! The kind CSIStorageCapacity.

use serde_json::Value;

use super::drivers::show_selector;
use crate::core_group::pod::warnings::find_deprecation;
use crate::kind::Kind;
use crate::schema::quantity::Quantity;
use crate::schema::validation::metadata::label_selector;
use crate::schema::validation::{get_text, names, validate_immutable, validate_name};
use crate::schema::{FieldError, FieldPath};

/// CSIStorageCapacities.
pub(super) static CSI_STORAGE_CAPACITY: Kind = Kind {
    needs_resource_version: true,
    validate,
    validate_update,
    warnings: |object, _| list_warnings(object),
    ..Kind::new("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities")
};

static NOTHING: Value = Value::Null;

fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    if let Some(topology) = value.get("nodeTopology") {
        label_selector(topology, &FieldPath::new("nodeTopology"), errors);
    }
    let class = get_text(value, "storageClassName");
    validate_name(
        names::find_subdomain_errors,
        class,
        &FieldPath::new("storageClassName"),
        errors,
    );
    let amount = get_text(value, "capacity");
    if Quantity::parse(amount).is_ok_and(|amount| amount.is_negative()) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("capacity", amount, why));
    }
}

fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let root = FieldPath::default();
    if value.get("nodeTopology") != old.get("nodeTopology") {
        let topology = value.get("nodeTopology").unwrap_or(&NOTHING);
        errors.push(FieldError::invalid(
            "nodeTopology",
            show_selector(topology),
            "field is immutable",
        ));
    }
    validate_immutable(value, old, "storageClassName", &root, errors);
}

/// Returns warnings about deprecated node labels in the topology.
fn list_warnings(capacity: &Value) -> Vec<String> {
    let Some(topology) = capacity.get("nodeTopology") else {
        return Vec::new();
    };
    let expressions = topology.get("matchExpressions").and_then(Value::as_array);
    let expressions = expressions
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(index, expression)| {
            let label = get_text(expression, "key");
            let message = find_deprecation(label)?;
            Some(format!(
                "nodeTopology.matchExpressions[{index}].key: {label} is {message}"
            ))
        });
    let labels = topology.get("matchLabels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten().filter_map(|(label, _)| {
        let message = find_deprecation(label)?;
        Some(format!("nodeTopology.matchLabels.{label}: {message}"))
    });
    expressions.chain(labels).collect()
}
