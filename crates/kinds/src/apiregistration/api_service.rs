//! APIServices. They have table cells, but the server does not serve them.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;
use crate::table::cells;

/// APIServices.
pub(super) static API_SERVICE: Kind = Kind {
    cells: show,
    ..Kind::new("apiregistration.k8s.io", "APIService", "apiservices")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let service = match object.pointer("/spec/service") {
        Some(service) if !service.is_null() => format!(
            "{}/{}",
            cells::get_text(service, "/namespace"),
            cells::get_text(service, "/name")
        ),
        _ => "Local".to_owned(),
    };
    let available = cells::list_items(object, "/status/conditions")
        .iter()
        .find(|condition| cells::get_text(condition, "/type") == "Available");
    let available = match available {
        Some(condition) if cells::get_text(condition, "/status") == "True" => "True".to_owned(),
        Some(condition) => format!(
            "{} ({})",
            cells::get_text(condition, "/status"),
            cells::get_text(condition, "/reason")
        ),
        None => "Unknown".to_owned(),
    };
    vec![
        cells::get_text(object, "/metadata/name").into(),
        service.into(),
        available.into(),
        cells::format_age(object, now),
    ]
}
