//! Selectors of nodes, by labels and fields: terms of which one has to hold.

use serde_json::Value;

use super::metadata::qualified_name;
use super::{empty, items, named, text};
use crate::schema::{FieldError, FieldPath};

/// Checks a node selector; it must have terms.
pub(super) fn terms(selector: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if empty(selector, "nodeSelectorTerms") {
        let why = "must have at least one node selector term";
        errors.push(FieldError::required(path.child("nodeSelectorTerms"), why));
    }
    for (term, at) in items(selector, "nodeSelectorTerms", path) {
        for (expression, at) in items(term, "matchExpressions", &at) {
            self::expression(expression, &at, errors);
        }
    }
}

fn expression(expression: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let count = expression.get("values").and_then(Value::as_array).map_or(0, Vec::len);
    let values = at.child("values");
    match (text(expression, "operator"), count) {
        ("In" | "NotIn", 0) => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(values, why));
        }
        ("Exists" | "DoesNotExist", 1..) => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(values, why));
        }
        ("Gt" | "Lt", 0 | 2..) => {
            let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(values, why));
        }
        ("In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt", _) => {}
        (other, _) => {
            let why = "not a valid selector operator";
            errors.push(FieldError::invalid(at.child("operator"), other, why));
        }
    }
    named(qualified_name, text(expression, "key"), &at.child("key"), errors);
}
