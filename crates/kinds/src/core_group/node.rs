//! Nodes, which register themselves with their status in one request.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;
use crate::schema::defaults;
use crate::table::cells;

/// Nodes.
pub(super) static NODE: Kind = Kind {
    etcd_folder: Some("minions"),
    selectable_fields: &["spec.unschedulable"],
    takes_status: true,
    defaults: |_, object| {
        if let Some(Value::Object(status)) = object.get_mut("status")
            && let Some(capacity) = status.get("capacity").cloned()
        {
            defaults::set(status, "allocatable", capacity);
        }
    },
    cells: show,
    ..Kind::new("", "Node", "nodes")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = cells::list_items(object, "/status/conditions")
        .iter()
        .find(|condition| cells::get_text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| cells::get_text(condition, "/status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = Vec::new();
    for (label, value) in object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if let Some(role) = label.strip_prefix("node-role.kubernetes.io/") {
            roles.push(role);
        } else if label == "kubernetes.io/role" {
            roles.extend(value.as_str());
        }
    }
    roles.sort_unstable();
    roles.dedup();
    let address = |kind: &str| {
        let found = cells::list_items(object, "/status/addresses")
            .iter()
            .find(|address| cells::get_text(address, "/type") == kind);
        Value::from(found.map_or(cells::NONE, |address| cells::get_text(address, "/address")))
    };
    let info = |field: &str| {
        Value::from(cells::non_empty_or(
            cells::get_text(object, &format!("/status/nodeInfo/{field}")),
            "<unknown>",
        ))
    };
    vec![
        cells::get_text(object, "/metadata/name").into(),
        status.into(),
        cells::non_empty_or(&roles.join(","), cells::NONE).into(),
        cells::format_age(object, now),
        cells::get_text(object, "/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}
