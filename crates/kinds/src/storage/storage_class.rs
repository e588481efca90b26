//! The kind StorageClass.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;
use crate::schema::validation::metadata::qualified_name;
use crate::schema::validation::{get_text, is_empty_field, list_items, one_of, validate_immutable, validate_name};
use crate::schema::{FieldError, FieldPath, defaults};
use crate::table::cells;

/// StorageClasses.
pub(super) static STORAGE_CLASS: Kind = Kind {
    is_answered_when_deleted: true,
    defaults: |_, object| {
        defaults::set(object, "reclaimPolicy", "Delete");
        defaults::set(object, "volumeBindingMode", "Immediate");
    },
    validate,
    validate_update,
    cells: show,
    ..Kind::new("storage.k8s.io", "StorageClass", "storageclasses")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let default = ["storageclass.kubernetes.io", "storageclass.beta.kubernetes.io"]
        .iter()
        .any(|prefix| cells::get_text(object, &format!("/metadata/annotations/{prefix}~1is-default-class")) == "true");
    let mut shown = cells::get_text(object, "/metadata/name").to_owned();
    if default {
        shown.push_str(" (default)");
    }
    vec![
        shown.into(),
        cells::get_text(object, "/provisioner").into(),
        cells::non_empty_or(cells::get_text(object, "/reclaimPolicy"), "Delete").into(),
        cells::non_empty_or(cells::get_text(object, "/volumeBindingMode"), "Immediate").into(),
        (object.get("allowVolumeExpansion") == Some(&Value::Bool(true))).into(),
        cells::format_age(object, now),
    ]
}

/// Checks a storage class.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    let provisioner = get_text(value, "provisioner").to_lowercase();
    let root = FieldPath::default();
    if provisioner.is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    } else {
        validate_name(qualified_name, &provisioner, &root.child("provisioner"), errors);
    }
    let parameters = value.get("parameters").and_then(Value::as_object);
    if parameters.is_some_and(|parameters| parameters.contains_key("")) {
        errors.push(FieldError::invalid("parameters", "", "field can not be empty."));
    }
    one_of(value, "reclaimPolicy", &["Delete", "Retain"], false, &root, errors);
    one_of(
        value,
        "volumeBindingMode",
        &["Immediate", "WaitForFirstConsumer"],
        true,
        &root,
        errors,
    );
    let mut known = BTreeSet::new();
    for (term, at) in list_items(value, "allowedTopologies", &root) {
        validate_topology(term, &at, errors);
        let wanted: BTreeMap<&str, BTreeSet<&str>> = list_items(term, "matchLabelExpressions", &at)
            .map(|(expression, _)| {
                let values = expression.get("values").and_then(Value::as_array);
                let values = values.into_iter().flatten().filter_map(Value::as_str);
                (get_text(expression, "key"), values.collect())
            })
            .collect();
        // An empty term counts as a duplicate.
        if wanted.is_empty() || known.contains(&wanted) {
            errors.push(FieldError::duplicate(at.child("matchLabelExpressions"), ""));
        }
        known.insert(wanted);
    }
}

fn validate_topology(term: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut keys = BTreeSet::new();
    for (expression, at) in list_items(term, "matchLabelExpressions", at) {
        if is_empty_field(expression, "values") {
            errors.push(FieldError::required(at.child("values"), ""));
        }
        let mut known = BTreeSet::new();
        for (value, at) in list_items(expression, "values", &at) {
            let value = value.as_str().unwrap_or_default();
            if !known.insert(value) {
                errors.push(FieldError::duplicate(at, value));
            }
        }
        let key = get_text(expression, "key");
        validate_name(qualified_name, key, &at.child("key"), errors);
        if !keys.insert(key) {
            errors.push(FieldError::duplicate(at.child("key"), key));
        }
    }
}

/// Checks that a storage class stays unchanged.
fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        validate_immutable(value, old, field, &FieldPath::default(), errors);
    }
}
