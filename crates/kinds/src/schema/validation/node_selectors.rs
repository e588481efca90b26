//! Selectors of nodes, by labels and fields: at least one term must match.

use serde_json::Value;

use super::metadata::{label_value, qualified_name};
use super::{empty, items, named, names, text};
use crate::schema::{FieldError, FieldPath};

/// Checks a node selector; it must have terms.
pub(crate) fn terms(selector: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if empty(selector, "nodeSelectorTerms") {
        let why = "must have at least one node selector term";
        errors.push(FieldError::required(path.child("nodeSelectorTerms"), why));
    }
    for (found, at) in items(selector, "nodeSelectorTerms", path) {
        term(found, true, &at, errors);
    }
}

/// Checks a term. Values that no label can have are only refused where a node has to have the label, which is `strict`.
pub(crate) fn term(term: &Value, strict: bool, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for (found, at) in items(term, "matchExpressions", at) {
        expression(found, strict, &at, errors);
    }
    for (found, at) in items(term, "matchFields", at) {
        field(found, &at, errors);
    }
}

fn count(requirement: &Value) -> usize {
    requirement.get("values").and_then(Value::as_array).map_or(0, Vec::len)
}

fn no_operator(operator: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let why = "not a valid selector operator";
    errors.push(FieldError::invalid(at.child("operator"), operator, why));
}

fn expression(expression: &Value, strict: bool, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let values = at.child("values");
    match (text(expression, "operator"), count(expression)) {
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
        (other, _) => no_operator(other, at, errors),
    }
    named(qualified_name, text(expression, "key"), &at.child("key"), errors);
    for (value, at) in items(expression, "values", at).filter(|_| strict) {
        named(label_value, value.as_str().unwrap_or_default(), &at, errors);
    }
}

/// Checks a requirement on a node's fields. Only the node's name is supported.
fn field(requirement: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    match (text(requirement, "operator"), count(requirement)) {
        ("In" | "NotIn", 1) => {}
        ("In" | "NotIn", _) => {
            let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(FieldError::required(at.child("values"), why));
        }
        (other, _) => no_operator(other, at, errors),
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        let why = "not a valid field selector key";
        errors.push(FieldError::invalid(at.child("key"), key, why));
        return;
    }
    for (value, at) in items(requirement, "values", at) {
        named(names::subdomain, value.as_str().unwrap_or_default(), &at, errors);
    }
}
