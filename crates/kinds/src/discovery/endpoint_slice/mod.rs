//! The kind EndpointSlice.

mod validation;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::kind::{Generation, Kind};
use crate::schema::defaults;
use crate::table::cells;

/// EndpointSlices.
pub(super) static ENDPOINT_SLICE: Kind = Kind {
    generation: Generation::Counted,
    // The labels name the Service of the slice, so a change of labels counts.
    counted_metadata: Some("labels"),
    write_nulls: |_, object, stored| {
        defaults::null_unless_set(object, "endpoints", stored);
        defaults::null_unless_set(object, "ports", stored);
    },
    prepare_create: |_, object| drop_topology(object),
    defaults: |_, object| fill_in(object),
    validate: validation::validate,
    validate_update: validation::validate_update,
    warnings: |object, live| {
        let is_of_names = object.get("addressType").and_then(Value::as_str) == Some("FQDN");
        let is_deprecated = live.is_none() && is_of_names;
        is_deprecated
            .then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned())
            .into_iter()
            .collect()
    },
    cells: show,
    ..Kind::new("discovery.k8s.io", "EndpointSlice", "endpointslices")
};

/// Removes the field that version 1 keeps only for older objects.
fn drop_topology(object: &mut Value) {
    let endpoints = object.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten().filter_map(Value::as_object_mut) {
        endpoint.remove("deprecatedTopology");
    }
}

fn fill_in(object: &mut Map<String, Value>) {
    let ports = object.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        defaults::set(port, "name", "");
        defaults::set(port, "protocol", "TCP");
    }
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let shown = |parts: Vec<String>| {
        if parts.is_empty() {
            "<unset>".to_owned()
        } else {
            cells::join_first(&parts, 3)
        }
    };
    let ports = cells::list_items(object, "/ports")
        .iter()
        .map(|port| match port.get("port").and_then(Value::as_i64) {
            Some(number) => number.to_string(),
            None => port.get("name").and_then(Value::as_str).unwrap_or("*").to_owned(),
        });
    let addresses = cells::list_items(object, "/endpoints")
        .iter()
        .flat_map(|one| cells::list_items(one, "/addresses"))
        .filter_map(Value::as_str);
    vec![
        cells::name_cell(object),
        cells::get_text(object, "/addressType").into(),
        shown(ports.collect()).into(),
        shown(addresses.map(str::to_owned).collect()).into(),
        cells::format_age(object, now),
    ]
}
