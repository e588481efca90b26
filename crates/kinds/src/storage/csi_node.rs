//! The kind CSINode.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::drivers::driver_name;
use crate::kind::Kind;
use crate::schema::validation::metadata::qualified_name;
use crate::schema::validation::{get_text, list_items, non_negative, show_go_struct, validate_name};
use crate::schema::{FieldError, FieldPath, defaults};
use crate::table::cells;

/// CSINodes.
pub(super) static CSI_NODE: Kind = Kind {
    is_answered_when_deleted: true,
    needs_resource_version: true,
    write_nulls: |_, object, stored| write_nulls(object, stored),
    validate,
    validate_update,
    cells: |object, now| {
        let drivers = cells::list_items(object, "/spec/drivers").len();
        vec![cells::name_cell(object), drivers.into(), cells::format_age(object, now)]
    },
    ..Kind::new("storage.k8s.io", "CSINode", "csinodes")
};

fn write_nulls(object: &mut Value, stored: bool) {
    let drivers = object.pointer_mut("/spec/drivers").and_then(Value::as_array_mut);
    for driver in drivers.into_iter().flatten() {
        defaults::null_unless_set(driver, "topologyKeys", stored);
    }
    if let Some(map) = object.as_object_mut() {
        let spec = map.entry("spec").or_insert_with(|| json!({}));
        defaults::null_unless_set(spec, "drivers", stored);
    }
}

static NOTHING: Value = Value::Null;

const NODE_ID: usize = 256;

fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    validate_node(value.get("spec").unwrap_or(&NOTHING), errors);
}

fn validate_node(spec: &Value, errors: &mut Vec<FieldError>) {
    let mut known = BTreeSet::new();
    for (driver, at) in list_items(spec, "drivers", &FieldPath::new("spec")) {
        let (name, id) = (get_text(driver, "name"), get_text(driver, "nodeID"));
        driver_name(name, &at.child("name"), errors);
        if id.is_empty() {
            errors.push(FieldError::required(at.child("nodeID"), ""));
        }
        if id.len() > NODE_ID {
            let why = format!("must be {NODE_ID} characters or less");
            errors.push(FieldError::invalid(at.child("nodeID"), id, why));
        }
        if let Some(allocatable) = driver.get("allocatable") {
            non_negative(allocatable, "count", &at.child("allocatable"), errors);
        }
        if !known.insert(name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        }
        let mut keys = BTreeSet::new();
        for (key, _) in list_items(driver, "topologyKeys", &at) {
            let key = key.as_str().unwrap_or_default();
            if key.is_empty() {
                errors.push(FieldError::required(&at, ""));
            }
            if !keys.insert(key) {
                errors.push(FieldError::duplicate(&at, key));
            }
            validate_name(qualified_name, key, &at, errors);
        }
    }
}

/// Checks that a driver's facts about a node stay, except for the number of volumes.
fn node_update(spec: &Value, before: &Value, errors: &mut Vec<FieldError>) {
    let root = FieldPath::new("spec");
    let counted = |driver: &Value| {
        let mut driver = driver.clone();
        if let Some(map) = driver.as_object_mut() {
            map.remove("allocatable");
        }
        driver
    };
    for (was, _) in list_items(before, "drivers", &root) {
        for (is, _) in list_items(spec, "drivers", &root) {
            if get_text(is, "name") != get_text(was, "name") || counted(is) == counted(was) {
                continue;
            }
            let keys = is.get("topologyKeys").unwrap_or(&NOTHING);
            let shown = show_go_struct(&[
                ("Name", &json!(get_text(is, "name"))),
                ("NodeID", &json!(get_text(is, "nodeID"))),
                ("TopologyKeys", keys),
                ("Allocatable", &NOTHING),
            ]);
            errors.push(FieldError::invalid(root.child("drivers"), shown, "field is immutable"));
        }
    }
}

fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (spec, before) = (
        value.get("spec").unwrap_or(&NOTHING),
        old.get("spec").unwrap_or(&NOTHING),
    );
    node_update(spec, before, errors);
}
