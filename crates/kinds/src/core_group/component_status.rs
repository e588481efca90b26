//! ComponentStatuses. They have table cells, but the server does not serve them.

use serde_json::Value;

use crate::kind::Kind;
use crate::table::cells;

/// ComponentStatuses.
pub(super) static COMPONENT_STATUS: Kind = Kind {
    cells: |object, _| show(object),
    ..Kind::named("", "ComponentStatus", "componentstatuses")
};

fn show(object: &Value) -> Vec<Value> {
    let healthy = cells::list(object, "/conditions")
        .iter()
        .find(|condition| cells::text(condition, "/type") == "Healthy");
    let part = |field: &str| Value::from(healthy.map_or("", |condition| cells::text(condition, field)));
    let status = match healthy.map(|condition| cells::text(condition, "/status")) {
        Some("True") => "Healthy",
        Some("False") => "Unhealthy",
        _ => "Unknown",
    };
    vec![
        cells::text(object, "/metadata/name").into(),
        status.into(),
        part("/message"),
        part("/error"),
    ]
}
