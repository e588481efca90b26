//! Endpoints.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::kind::Kind;
use crate::schema::defaults;
use crate::schema::validation::endpoints;
use crate::table::cells;

/// Endpoints.
pub(super) static ENDPOINTS: Kind = Kind {
    etcd_folder: Some("services/endpoints"),
    deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    is_created_by_update: true,
    defaults: |_, object| fill_in(object),
    validate: endpoints::endpoints,
    cells: show,
    ..Kind::named("", "Endpoints", "endpoints")
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
    for subset in cells::list(object, "/subsets") {
        let ports = cells::list(subset, "/ports");
        let addresses = cells::list(subset, "/addresses")
            .iter()
            .map(|address| cells::text(address, "/ip"));
        if ports.is_empty() {
            parts.extend(addresses.clone().map(str::to_owned));
        }
        for port in ports {
            parts.extend(
                addresses
                    .clone()
                    .map(|ip| format!("{ip}:{}", cells::number(port, "/port"))),
            );
        }
    }
    vec![
        cells::name(object),
        cells::shortened(&parts, 3).into(),
        cells::age(object, now),
    ]
}
