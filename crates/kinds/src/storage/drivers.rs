//! The names of drivers, and selectors as the real server shows them.

use serde_json::Value;

use crate::schema::validation::{names, show_go_struct};
use crate::schema::{FieldError, FieldErrorKind, FieldPath, Shown};

/// The maximum length of driver names, and of the identifiers that drivers give nodes.
const DRIVER_NAME: usize = 63;

/// Returns a selector with its fields in the real server's order.
pub(super) fn show_selector(selector: &Value) -> Shown {
    let fields = ["matchLabels", "matchExpressions"];
    let parts = fields.iter().filter_map(|field| Some((*field, selector.get(field)?)));
    let parts: Vec<(&str, &Value)> = parts.collect();
    if selector.is_null() {
        Shown::Json(Value::Null)
    } else {
        show_go_struct(&parts)
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
    for why in names::find_subdomain_errors(&name.to_lowercase()) {
        errors.push(FieldError::invalid(at, name, why));
    }
}
