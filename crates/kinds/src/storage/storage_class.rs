//! The kind StorageClass.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;
use crate::schema::validation::metadata::qualified_name;
use crate::schema::validation::{empty, immutable, items, named, one_of, text};
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
    ..Kind::named("storage.k8s.io", "StorageClass", "storageclasses")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let default = ["storageclass.kubernetes.io", "storageclass.beta.kubernetes.io"]
        .iter()
        .any(|prefix| cells::text(object, &format!("/metadata/annotations/{prefix}~1is-default-class")) == "true");
    let mut shown = cells::text(object, "/metadata/name").to_owned();
    if default {
        shown.push_str(" (default)");
    }
    vec![
        shown.into(),
        cells::text(object, "/provisioner").into(),
        cells::or(cells::text(object, "/reclaimPolicy"), "Delete").into(),
        cells::or(cells::text(object, "/volumeBindingMode"), "Immediate").into(),
        (object.get("allowVolumeExpansion") == Some(&Value::Bool(true))).into(),
        cells::age(object, now),
    ]
}

/// Checks a storage class.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    let provisioner = text(value, "provisioner").to_lowercase();
    let root = FieldPath::default();
    if provisioner.is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    } else {
        named(qualified_name, &provisioner, &root.child("provisioner"), errors);
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
    for (term, at) in items(value, "allowedTopologies", &root) {
        topology(term, &at, errors);
        let wanted: BTreeMap<&str, BTreeSet<&str>> = items(term, "matchLabelExpressions", &at)
            .map(|(expression, _)| {
                let values = expression.get("values").and_then(Value::as_array);
                let values = values.into_iter().flatten().filter_map(Value::as_str);
                (text(expression, "key"), values.collect())
            })
            .collect();
        // An empty term counts as a duplicate.
        if wanted.is_empty() || known.contains(&wanted) {
            errors.push(FieldError::duplicate(at.child("matchLabelExpressions"), ""));
        }
        known.insert(wanted);
    }
}

fn topology(term: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut keys = BTreeSet::new();
    for (expression, at) in items(term, "matchLabelExpressions", at) {
        if empty(expression, "values") {
            errors.push(FieldError::required(at.child("values"), ""));
        }
        let mut known = BTreeSet::new();
        for (value, at) in items(expression, "values", &at) {
            let value = value.as_str().unwrap_or_default();
            if !known.insert(value) {
                errors.push(FieldError::duplicate(at, value));
            }
        }
        let key = text(expression, "key");
        named(qualified_name, key, &at.child("key"), errors);
        if !keys.insert(key) {
            errors.push(FieldError::duplicate(at.child("key"), key));
        }
    }
}

/// Checks that a storage class stays unchanged.
fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        immutable(value, old, field, &FieldPath::default(), errors);
    }
}
