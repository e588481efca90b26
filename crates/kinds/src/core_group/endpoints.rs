//! The kind Endpoints.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::kind::Kind;
use crate::schema::validation::ports::validate_protocol;
use crate::schema::validation::{addresses, get_text, is_empty_field, list_items, names, validate_name};
use crate::schema::{FieldError, FieldPath, defaults};
use crate::table::cells;

/// Endpoints.
pub(super) static ENDPOINTS: Kind = Kind {
    etcd_folder: Some("services/endpoints"),
    deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    is_created_by_update: true,
    defaults: |_, object| fill_in(object),
    validate,
    cells: show,
    ..Kind::new("", "Endpoints", "endpoints")
};

fn fill_in(object: &mut Map<String, Value>) {
    let subsets = object.get_mut("subsets").and_then(Value::as_array_mut);
    let ports = subsets
        .into_iter()
        .flatten()
        .filter_map(|subset| subset.get_mut("ports")?.as_array_mut());
    for port in ports.flatten().filter_map(Value::as_object_mut) {
        defaults::set(port, "protocol", "TCP");
    }
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut parts = Vec::new();
    for subset in cells::list_items(object, "/subsets") {
        let ports = cells::list_items(subset, "/ports");
        let addresses = cells::list_items(subset, "/addresses")
            .iter()
            .map(|address| cells::get_text(address, "/ip"));
        if ports.is_empty() {
            parts.extend(addresses.clone().map(str::to_owned));
        }
        for port in ports {
            parts.extend(
                addresses
                    .clone()
                    .map(|ip| format!("{ip}:{}", cells::get_number(port, "/port"))),
            );
        }
    }
    vec![
        cells::name_cell(object),
        cells::join_first(&parts, 3).into(),
        cells::format_age(object, now),
    ]
}

/// Checks Endpoints.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    for (subset, at) in list_items(value, "subsets", &FieldPath::default()) {
        if is_empty_field(subset, "addresses") && is_empty_field(subset, "notReadyAddresses") {
            let why = "must specify `addresses` or `notReadyAddresses`";
            errors.push(FieldError::required(&at, why));
        }
        for field in ["addresses", "notReadyAddresses"] {
            for (address, at) in list_items(subset, field, &at) {
                endpoint_address(address, &at, errors);
            }
        }
        let ports: Vec<_> = list_items(subset, "ports", &at).collect();
        for (port, at) in &ports {
            let name = get_text(port, "name");
            if !name.is_empty() {
                validate_name(names::find_label_errors, name, &at.child("name"), errors);
            } else if ports.len() > 1 {
                errors.push(FieldError::required(at.child("name"), ""));
            }
            let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
            if let Some(complaint) = names::port_number(number) {
                errors.push(FieldError::invalid(at.child("port"), number, complaint));
            }
            validate_protocol(port, at, errors);
        }
    }
}

fn endpoint_address(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let shown = get_text(value, "ip");
    let ip = at.child("ip");
    let address = addresses::parse_address(shown, &ip, errors);
    if !get_text(value, "hostname").is_empty() {
        validate_name(
            names::find_label_errors,
            get_text(value, "hostname"),
            &at.child("hostname"),
            errors,
        );
    }
    if value.get("nodeName").is_some() {
        validate_name(
            names::find_subdomain_errors,
            get_text(value, "nodeName"),
            &at.child("nodeName"),
            errors,
        );
    }
    match address {
        Some(address) => addresses::validate_reachable(address, shown, &ip, errors),
        None => errors.push(FieldError::invalid(&ip, shown, "must be a valid IP address")),
    }
}
