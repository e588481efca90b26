//! Validation of slices and of their updates.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use crate::schema::validation::metadata::label_value;
use crate::schema::validation::ports::validate_protocol;
use crate::schema::validation::{addresses, get_text, list_items, names, one_of, validate_immutable, validate_name};
use crate::schema::{FieldError, FieldErrorKind, FieldPath};

const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;
const MOST_ZONES: usize = 8;

/// Checks an EndpointSlice.
pub(super) fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    let root = FieldPath::default();
    one_of(value, "addressType", &["FQDN", "IPv4", "IPv6"], true, &root, errors);
    let count = value.get("endpoints").and_then(Value::as_array).map_or(0, Vec::len);
    if count > MOST_ENDPOINTS {
        errors.push(too_many(&root.child("endpoints"), count, MOST_ENDPOINTS));
        return;
    }
    for (endpoint, at) in list_items(value, "endpoints", &root) {
        slice_endpoint(get_text(value, "addressType"), endpoint, &at, errors);
    }
    let count = value.get("ports").and_then(Value::as_array).map_or(0, Vec::len);
    if count > MOST_PORTS {
        errors.push(too_many(&root.child("ports"), count, MOST_PORTS));
        return;
    }
    let mut known = BTreeSet::new();
    for (port, at) in list_items(value, "ports", &root) {
        let name = get_text(port, "name");
        if !name.is_empty() {
            validate_name(names::find_label_errors, name, &at.child("name"), errors);
        }
        if !known.insert(name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        }
        validate_protocol(port, &at, errors);
    }
}

fn too_many(at: &FieldPath, count: usize, most: usize) -> FieldError {
    let detail = format!("must have at most {most} items");
    FieldError::new(FieldErrorKind::TooMany, at, count, detail)
}

fn slice_endpoint(kind: &str, endpoint: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let list = at.child("addresses");
    match endpoint.get("addresses").and_then(Value::as_array).map_or(0, Vec::len) {
        0 => errors.push(FieldError::required(&list, "must contain at least 1 address")),
        count if count > MOST_ADDRESSES => errors.push(too_many(&list, count, MOST_ADDRESSES)),
        _ => {}
    }
    for (address, at) in list_items(endpoint, "addresses", at) {
        let shown = address.as_str().unwrap_or_default();
        if kind == "FQDN" {
            full_name(shown, &at, errors);
            continue;
        }
        if !matches!(kind, "IPv4" | "IPv6") {
            continue;
        }
        let Some(address) = addresses::parse_address(shown, &at, errors) else {
            continue;
        };
        if matches!(address, IpAddr::V4(_)) != (kind == "IPv4") {
            errors.push(FieldError::invalid(&list, shown, format!("must be an {kind} address")));
        }
        addresses::validate_reachable(address, shown, &at, errors);
    }
    if endpoint.get("hostname").is_some() {
        validate_name(
            names::find_label_errors,
            get_text(endpoint, "hostname"),
            &at.child("hostname"),
            errors,
        );
    }
    if endpoint.get("nodeName").is_some() {
        validate_name(
            names::find_subdomain_errors,
            get_text(endpoint, "nodeName"),
            &at.child("nodeName"),
            errors,
        );
    }
    let Some(hints) = endpoint.get("hints") else { return };
    let at = at.child("hints");
    let count = hints.get("forZones").and_then(Value::as_array).map_or(0, Vec::len);
    if count > MOST_ZONES {
        errors.push(too_many(&at.child("forZones"), count, MOST_ZONES));
        return;
    }
    let mut known = BTreeSet::new();
    for (zone, at) in list_items(hints, "forZones", &at) {
        let name = get_text(zone, "name");
        if !known.insert(name) {
            errors.push(FieldError::duplicate(at.child("name"), name));
        }
        validate_name(label_value, name, &at.child("name"), errors);
    }
}

fn full_name(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        errors.push(FieldError::required(at, ""));
        return;
    }
    let before = errors.len();
    validate_name(names::find_subdomain_errors, name, at, errors);
    if errors.len() == before && !name.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(at, name, why));
    }
}

/// Checks that the address type of a slice stays unchanged.
pub(super) fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate_immutable(value, old, "addressType", &FieldPath::default(), errors);
}
