//! Ports of Services and of references to Services.

use serde_json::Value;

use crate::schema::validation::metadata::qualified_name;
use crate::schema::validation::{get_text, names, one_of, validate_name};
use crate::schema::{FieldError, FieldPath};

/// The protocols of ports.
pub(crate) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Checks a port, which may be named.
pub(crate) fn port_or_name(value: &Value, field: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    match value.get(field) {
        Some(Value::String(name)) => {
            for complaint in names::port_name(name) {
                errors.push(FieldError::invalid(at.child(field), name.as_str(), complaint));
            }
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or(0);
            if let Some(complaint) = names::port_number(number) {
                errors.push(FieldError::invalid(at.child(field), number, complaint));
            }
        }
        None => {}
    }
}

pub(crate) fn validate_protocol(port: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    one_of(port, "protocol", &PROTOCOLS, true, at, errors);
    if port.get("appProtocol").is_some() {
        let at = at.child("appProtocol");
        validate_name(qualified_name, get_text(port, "appProtocol"), &at, errors);
    }
}
