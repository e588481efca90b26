//! Conditions of the kinds that follow the API conventions.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::schema::validation::metadata::qualified_name;
use crate::schema::validation::{get_text, is_empty_field, list_items};
use crate::schema::{FieldError, FieldPath};

/// Checks conditions as every kind has them that follows the conventions.
pub(crate) fn validate_conditions(status: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (condition, path) in list_items(status, "conditions", path) {
        let kind = get_text(condition, "type");
        for fault in qualified_name(kind) {
            errors.push(FieldError::invalid(path.child("type"), kind, fault));
        }
        if !kind.is_empty() && !seen.insert(kind) {
            errors.push(FieldError::duplicate(path.child("type"), kind));
        }
        let state = get_text(condition, "status");
        if !["False", "True", "Unknown"].contains(&state) {
            errors.push(FieldError::not_supported(
                path.child("status"),
                state,
                &["False", "True", "Unknown"],
            ));
        }
        if let Some(generation) = condition.get("observedGeneration").and_then(Value::as_i64)
            && generation < 0
        {
            let why = "must be greater than or equal to zero";
            errors.push(FieldError::invalid(path.child("observedGeneration"), generation, why));
        }
        if is_empty_field(condition, "lastTransitionTime") {
            errors.push(FieldError::required(path.child("lastTransitionTime"), ""));
        }
        let reason = get_text(condition, "reason");
        let own = path.child("reason");
        if reason.is_empty() {
            errors.push(FieldError::required(own, ""));
        } else if !is_reason(reason) {
            errors.push(FieldError::invalid(own, reason, REASON_FORM));
        }
    }
}

const REASON_FORM: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
                           alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. \
                           'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex \
                           used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

fn is_reason(text: &str) -> bool {
    let plain = |letter: char| letter == '_' || letter.is_ascii_alphanumeric();
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.ends_with(plain)
        && text.chars().all(|letter| plain(letter) || matches!(letter, ',' | ':'))
}
