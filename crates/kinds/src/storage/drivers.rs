//! The names of drivers, and selectors as the real server shows them.

use serde_json::Value;

use crate::schema::validation::{internal, names};
use crate::schema::{FieldError, FieldErrorKind, FieldPath, Shown};

/// The maximum length of driver names, and of the identifiers that drivers give nodes.
const DRIVER_NAME: usize = 63;

/// Returns a selector with its fields in the real server's order.
pub(super) fn selector(selector: &Value) -> Shown {
    let fields = ["matchLabels", "matchExpressions"];
    let parts = fields.iter().filter_map(|field| Some((*field, selector.get(field)?)));
    let parts: Vec<(&str, &Value)> = parts.collect();
    if selector.is_null() {
        Shown::Json(Value::Null)
    } else {
        internal(&parts)
    }
}

pub(super) fn too_long(at: &FieldPath, most: usize) -> FieldError {
    FieldError::new(
        FieldErrorKind::TooLong,
        at,
        "",
        format!("may not be more than {most} bytes"),
    )
}

pub(super) fn driver_name(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(at, ""));
        return;
    }
    if name.len() > DRIVER_NAME {
        errors.push(too_long(at, DRIVER_NAME));
    }
    for why in names::subdomain(&name.to_lowercase()) {
        errors.push(FieldError::invalid(at, name, why));
    }
}
