//! Alerts for Prometheus' Alertmanager: the metadata of an event become labels.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::alert_event::AlertEvent;

/// Writes the body of a request to Alertmanager: a list with one alert about the event.
pub(super) fn write_alerts(news: &AlertEvent, metadata: &BTreeMap<String, String>) -> Value {
    let mut annotations = BTreeMap::from([("message", news.message.as_str())]);
    let mut labels = metadata.clone();
    let summary = labels.remove("summary");
    if let Some(summary) = &summary {
        annotations.insert("summary", summary);
    }
    let object = &news.object;
    let own = [
        (
            "alertname",
            format!("Flux{}{}", object.kind, write_title_case(&news.reason)),
        ),
        ("severity", news.severity.as_str().to_owned()),
        ("reason", news.reason.clone()),
        ("kind", object.kind.clone()),
        ("name", object.name.clone()),
        ("namespace", object.namespace.clone()),
        ("reportingcontroller", news.reporter.clone()),
    ];
    labels.extend(own.map(|(name, value)| (name.to_owned(), value)));
    json!([{
        "status": "firing",
        "labels": labels,
        "annotations": annotations,
        "startsAt": news.write_time(),
        // Alertmanager ends the alert after its own time.
        "endsAt": "0001-01-01T00:00:00Z",
    }])
}

/// Writes each word with a capital first letter and the others in lower case, as Go's cases.Title does.
fn write_title_case(text: &str) -> String {
    let mut is_inside = false;
    let mut written = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_inside {
            written.extend(letter.to_lowercase());
        } else {
            written.extend(letter.to_uppercase());
        }
        is_inside = letter.is_alphanumeric() || letter == '_' || letter == '\'';
    }
    written
}
