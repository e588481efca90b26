//! The load balancer status of a Service or an Ingress.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::schema::validation::{addresses, get_text, list_items, names};
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

/// Returns the addresses of the old status. They may stay, even if they are invalid.
pub(crate) fn known_addresses(before: &Value) -> BTreeSet<&str> {
    let entries = before.get("loadBalancer").unwrap_or(&NOTHING);
    list_items(entries, "ingress", &FieldPath::default())
        .map(|(entry, _)| get_text(entry, "ip"))
        .collect()
}

/// Checks the address and the name of one ingress point.
pub(crate) fn reached_at(entry: &Value, known: &BTreeSet<&str>, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let ip = get_text(entry, "ip");
    if !ip.is_empty() && !known.contains(ip) {
        addresses::parse_address(ip, &at.child("ip"), errors);
    }
    let host = get_text(entry, "hostname");
    if !host.is_empty() {
        for complaint in names::find_subdomain_errors(host) {
            errors.push(FieldError::invalid(at.child("hostname"), host, complaint));
        }
        if addresses::parse_lenient_address(host).is_some() {
            let detail = "must be a DNS name, not an IP address";
            errors.push(FieldError::invalid(at.child("hostname"), host, detail));
        }
    }
}
