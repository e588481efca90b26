//! APIServices. They have table cells, but the server does not serve them.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;
use crate::table::cells;

/// APIServices.
pub(super) static API_SERVICE: Kind = Kind {
    cells: show,
    ..Kind::named("apiregistration.k8s.io", "APIService", "apiservices")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let service = match object.pointer("/spec/service") {
        Some(service) if !service.is_null() => format!(
            "{}/{}",
            cells::text(service, "/namespace"),
            cells::text(service, "/name")
        ),
        _ => "Local".to_owned(),
    };
    let available = cells::list(object, "/status/conditions")
        .iter()
        .find(|condition| cells::text(condition, "/type") == "Available");
    let available = match available {
        Some(condition) if cells::text(condition, "/status") == "True" => "True".to_owned(),
        Some(condition) => format!(
            "{} ({})",
            cells::text(condition, "/status"),
            cells::text(condition, "/reason")
        ),
        None => "Unknown".to_owned(),
    };
    vec![
        cells::text(object, "/metadata/name").into(),
        service.into(),
        available.into(),
        cells::age(object, now),
    ]
}
