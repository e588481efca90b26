//! Services: the cluster address that the server chooses, and keeps.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::FieldError;
use crate::registry::View;

/// The range of cluster addresses; nothing routes to them here, but clients expect them to be there and unique.
const RANGE_START: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
/// Addresses in the range, the first of which is the API server's own.
const RANGE_SIZE: u32 = 1 << 16;

fn needs_address(object: &Value) -> bool {
    object.pointer("/spec/type").and_then(Value::as_str) != Some("ExternalName")
}

fn address(object: &Value) -> &str {
    object
        .pointer("/spec/clusterIP")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn prepare_create(object: &mut Value, view: &View) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), json!({"loadBalancer": {}}));
    }
    allocate(object, view);
}

pub(super) fn prepare_update(live: &Value, new: &mut Value, view: &View) {
    // Who applies a Service without an address wants to keep the one that it has.
    if needs_address(live) && needs_address(new) && address(new).is_empty() {
        let kept = [
            live.pointer("/spec/clusterIP").cloned(),
            live.pointer("/spec/clusterIPs").cloned(),
        ];
        if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
            for (key, value) in ["clusterIP", "clusterIPs"].into_iter().zip(kept) {
                if let Some(value) = value {
                    spec.insert(key.to_owned(), value);
                }
            }
        }
    }
    allocate(new, view);
}

fn allocate(object: &mut Value, view: &View) {
    let Some(spec) = object.get("spec").and_then(Value::as_object) else {
        return;
    };
    let family = |spec: &mut serde_json::Map<String, Value>| {
        spec.entry("ipFamilies").or_insert_with(|| json!(["IPv4"]));
        spec.entry("ipFamilyPolicy").or_insert_with(|| json!("SingleStack"));
        spec.entry("internalTrafficPolicy").or_insert_with(|| json!("Cluster"));
    };
    if !needs_address(object) {
        return;
    }
    let wanted = spec
        .get("clusterIP")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let chosen = if wanted.is_empty() {
        free_address(view)
    } else {
        Some(wanted)
    };
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(chosen) = chosen {
        spec.insert("clusterIP".to_owned(), Value::from(chosen.as_str()));
        spec.insert("clusterIPs".to_owned(), json!([chosen]));
    }
    family(spec);
}

/// The address in a stored Service. Every create asks all Services, so nothing else of them is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    spec: StoredSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredSpec {
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
}

fn taken(view: &View) -> impl Iterator<Item = String> {
    let stored: Vec<Stored> = view.parts("", "services");
    stored.into_iter().map(|service| service.spec.cluster_ip)
}

fn free_address(view: &View) -> Option<String> {
    let taken: BTreeSet<Ipv4Addr> = taken(view).filter_map(|address| address.parse().ok()).collect();
    let start = u32::from(RANGE_START);
    (1..RANGE_SIZE - 1)
        .map(|offset| Ipv4Addr::from(start + offset))
        .find(|candidate| !taken.contains(candidate))
        .map(|free| free.to_string())
}

/// Faults of the address.
pub(super) fn validate(object: &Value, live: Option<&Value>, view: &View) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let new = address(object);
    if let Some(live) = live {
        let old = address(live);
        if !old.is_empty() && needs_address(live) && needs_address(object) && old != new {
            errors.push(FieldError::invalid(
                "spec.clusterIPs[0]",
                json!([new]),
                "may not change once set",
            ));
        }
        return errors;
    }
    if needs_address(object) && new.is_empty() {
        errors.push(FieldError::invalid(
            "spec.clusterIPs",
            json!([]),
            "no free address is left in the service range",
        ));
    }
    if !new.is_empty() && new != "None" {
        let taken = taken(view).any(|other| other == new);
        if taken {
            errors.push(FieldError::invalid(
                "spec.clusterIPs",
                json!([new]),
                "failed to allocate IP: provided IP is already allocated",
            ));
        }
    }
    errors
}
