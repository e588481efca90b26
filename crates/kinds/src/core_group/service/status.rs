//! Validation of a Service's load balancer status.

use serde_json::Value;

use crate::schema::validation::balancers::{known_addresses, reached_at};
use crate::schema::validation::{get_text, list_items};
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

/// Checks the load balancer status of a Service.
pub(super) fn validate_status(service: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (status, before) = (
        service.get("status").unwrap_or(&NOTHING),
        old.get("status").unwrap_or(&NOTHING),
    );
    let path = FieldPath::new("status").child("loadBalancer");
    let entries = status.get("loadBalancer").unwrap_or(&NOTHING);
    if list_items(entries, "ingress", &path).next().is_none() {
        return;
    }
    let spec = service.get("spec").unwrap_or(&NOTHING);
    if get_text(spec, "type") != "LoadBalancer" {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden(path.child("ingress"), detail));
        return;
    }
    let known = known_addresses(before);
    for (entry, at) in list_items(entries, "ingress", &path) {
        let ip = get_text(entry, "ip");
        reached_at(entry, &known, &at, errors);
        let modes = ["Proxy", "VIP"];
        match entry.get("ipMode").and_then(Value::as_str) {
            None if !ip.is_empty() => {
                let detail = "must be specified when `ip` is set";
                errors.push(FieldError::required(at.child("ipMode"), detail));
            }
            Some(_) if ip.is_empty() => {
                let detail = "may not be specified when `ip` is not set";
                errors.push(FieldError::forbidden(at.child("ipMode"), detail));
            }
            Some(mode) if !modes.contains(&mode) => {
                errors.push(FieldError::not_supported(at.child("ipMode"), mode, &modes));
            }
            _ => {}
        }
    }
}
