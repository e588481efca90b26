//! Selectors of nodes, by labels and fields: at least one term must match.

use serde_json::Value;

use super::metadata::{label_value, qualified_name};
use super::{get_text, is_empty_field, list_items, names, validate_name};
use crate::schema::{FieldError, FieldPath};

/// Checks a node selector; it must have terms.
pub(crate) fn validate_terms(selector: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if is_empty_field(selector, "nodeSelectorTerms") {
        let why = "must have at least one node selector term";
        errors.push(FieldError::required(path.child("nodeSelectorTerms"), why));
    }
    for (found, at) in list_items(selector, "nodeSelectorTerms", path) {
        validate_term(found, true, &at, errors);
    }
}

/// Checks a term. Values that no label can have are only refused where a node has to have the label, which is `strict`.
pub(crate) fn validate_term(term: &Value, strict: bool, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for (found, at) in list_items(term, "matchExpressions", at) {
        validate_expression(found, strict, &at, errors);
    }
    for (found, at) in list_items(term, "matchFields", at) {
        validate_field(found, &at, errors);
    }
}

fn count_values(requirement: &Value) -> usize {
    requirement.get("values").and_then(Value::as_array).map_or(0, Vec::len)
}

fn no_operator(operator: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let why = "not a valid selector operator";
    errors.push(FieldError::invalid(at.child("operator"), operator, why));
}

fn validate_expression(expression: &Value, strict: bool, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let values = at.child("values");
    match (get_text(expression, "operator"), count_values(expression)) {
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
    validate_name(qualified_name, get_text(expression, "key"), &at.child("key"), errors);
    for (value, at) in list_items(expression, "values", at).filter(|_| strict) {
        validate_name(label_value, value.as_str().unwrap_or_default(), &at, errors);
    }
}

/// Checks a requirement on a node's fields. Only the node's name is supported.
fn validate_field(requirement: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    match (get_text(requirement, "operator"), count_values(requirement)) {
        ("In" | "NotIn", 1) => {}
        ("In" | "NotIn", _) => {
            let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(FieldError::required(at.child("values"), why));
        }
        (other, _) => no_operator(other, at, errors),
    }
    let key = get_text(requirement, "key");
    if key != "metadata.name" {
        let why = "not a valid field selector key";
        errors.push(FieldError::invalid(at.child("key"), key, why));
        return;
    }
    for (value, at) in list_items(requirement, "values", at) {
        validate_name(
            names::find_subdomain_errors,
            value.as_str().unwrap_or_default(),
            &at,
            errors,
        );
    }
}
