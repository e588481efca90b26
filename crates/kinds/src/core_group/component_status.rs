//! ComponentStatuses. They have table cells, but the server does not serve them.

use serde_json::Value;

use crate::kind::Kind;
use crate::table::cells;

/// ComponentStatuses.
pub(super) static COMPONENT_STATUS: Kind = Kind {
    cells: |object, _| show(object),
    ..Kind::new("", "ComponentStatus", "componentstatuses")
};

fn show(object: &Value) -> Vec<Value> {
    let healthy = cells::list_items(object, "/conditions")
        .iter()
        .find(|condition| cells::get_text(condition, "/type") == "Healthy");
    let part = |field: &str| Value::from(healthy.map_or("", |condition| cells::get_text(condition, field)));
    let status = match healthy.map(|condition| cells::get_text(condition, "/status")) {
        Some("True") => "Healthy",
        Some("False") => "Unhealthy",
        _ => "Unknown",
    };
    vec![
        cells::get_text(object, "/metadata/name").into(),
        status.into(),
        part("/message"),
        part("/error"),
    ]
}
