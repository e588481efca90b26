//! The rules that many kinds share, in the words of the real server: metadata, names, addresses, ports, selectors.
//!
//! Every kind's metadata is checked. Kinds that users write by hand get the important checks in their own files: required parts,
//! enumerations, matching selectors, immutable fields. A field without a check is stored unchanged; in a real cluster a kubelet would
//! report its errors, and here no kubelet runs. No code in this module depends on a single kind.

pub(crate) mod addresses;
pub(crate) mod balancers;
pub(crate) mod conditions;
pub mod metadata;
pub mod names;
pub(crate) mod node_selectors;
pub(crate) mod ports;
mod webhooks;

use serde_json::Value;

use super::field_error::{FieldError, FieldErrorKind, FieldPath, Shown};

pub(crate) use metadata::label_value;
pub use metadata::validate_annotations;
pub use metadata::{CLEANUP_FINALIZER, label_selector, object_meta, object_meta_update, validate_labels};
pub(crate) use webhooks::{validate_service as webhook_service, validate_url as webhook_url};

/// Returns the errors of a rule about a name.
pub(crate) fn validate_name(
    rule: impl Fn(&str) -> Vec<String>,
    name: &str,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    errors.extend(rule(name).into_iter().map(|why| FieldError::invalid(at, name, why)));
}

/// Returns a field's text; empty when absent.
pub(crate) fn get_text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a list field's items with their paths.
pub(crate) fn list_items<'a>(
    value: &'a Value,
    field: &str,
    path: &FieldPath,
) -> impl Iterator<Item = (&'a Value, FieldPath)> {
    let path = path.child(field);
    let list = value
        .get(field)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    list.iter()
        .enumerate()
        .map(move |(index, item)| (item, path.index(index)))
}

pub(crate) fn is_empty_field(value: &Value, field: &str) -> bool {
    match value.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// Checks a field that must be one of a list, in the order in which the real server lists them; absent is `Required` when `required`.
pub(crate) fn one_of(
    value: &Value,
    field: &str,
    allowed: &[&str],
    required: bool,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let found = get_text(value, field);
    if found.is_empty() {
        if required {
            errors.push(FieldError::required(path.child(field), ""));
        }
    } else if !allowed.contains(&found) {
        errors.push(FieldError::not_supported(path.child(field), found, allowed));
    }
}

/// Shows a struct of the real server's internal types, whose fields it prints with Go's names and in Go's order.
pub(crate) fn show_go_struct(fields: &[(&str, &Value)]) -> Shown {
    let parts: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    Shown::Verbatim(format!("{{{}}}", parts.join(",")))
}

/// Returns a list of such structs.
pub(crate) fn internal_list<'a>(structs: impl Iterator<Item = Vec<(&'static str, &'a Value)>>) -> Shown {
    let shown: Vec<String> = structs.map(|fields| show_go_struct(&fields).to_string()).collect();
    Shown::Verbatim(format!("[{}]", shown.join(",")))
}

/// Checks that a number is not negative.
pub(crate) fn non_negative(value: &Value, field: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(number) = value.get(field).and_then(Value::as_i64)
        && number < 0
    {
        errors.push(FieldError::invalid(
            path.child(field),
            number,
            "must be greater than or equal to 0",
        ));
    }
}

/// Checks that a field stays unchanged.
pub(crate) fn validate_immutable(
    value: &Value,
    old: &Value,
    field: &str,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let now = value.get(field).cloned().unwrap_or(Value::Null);
    if now != old.get(field).cloned().unwrap_or(Value::Null) {
        errors.push(FieldError::new(
            FieldErrorKind::Invalid,
            path.child(field),
            now,
            "field is immutable",
        ));
    }
}
