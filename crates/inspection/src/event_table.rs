//! The table of events for people: the time since the last one, the count, the object and the message.

use jiff::Timestamp;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::text::visible_line;

use crate::ages::write_time_since;
use crate::object_table::shorten_revisions;
use crate::text_table::{Cell, Tone};

/// The columns.
const HEADERS: [&str; 5] = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];

/// Returns the headers of the table.
#[must_use]
pub fn list_headers(with_namespace: bool) -> Vec<String> {
    let namespace = with_namespace.then_some("NAMESPACE");
    namespace.into_iter().chain(HEADERS).map(str::to_owned).collect()
}

/// Returns the time of the last such event, as text. Its order is the order of time for RFC 3339 times of one zone.
#[must_use]
pub fn find_last_seen(event: &Value) -> &str {
    let event = ObjectView::new(event);
    [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/eventTime",
        "/metadata/creationTimestamp",
    ]
    .iter()
    .map(|path| event.read_text(path))
    .find(|time| !time.is_empty())
    .unwrap_or_default()
}

/// Returns the row of an event.
#[must_use]
pub fn write_row(event: &Value, with_namespace: bool, now: Timestamp) -> Vec<Cell> {
    let view = ObjectView::new(event);
    let object = format!(
        "{}/{}",
        view.read_text("/involvedObject/kind").to_lowercase(),
        view.read_text("/involvedObject/name")
    );
    let type_ = view.read_text("/type");
    let message = view.read_text("/message").trim().replace('\n', " ");
    let cell = |text: &str| Cell::from(visible_line(text).into_owned());
    let mut row = Vec::new();
    if with_namespace {
        row.push(cell(view.read_text("/metadata/namespace")));
    }
    row.extend([
        write_times(event, now).into(),
        Cell {
            tone: if type_ == "Warning" { Tone::Bad } else { Tone::Plain },
            ..cell(type_)
        },
        cell(view.read_text("/reason")),
        cell(&object),
        cell(&shorten_revisions(&message)),
    ]);
    row
}

/// Writes the age of the last event, and the count of repeated ones: `5m (x3 over 2h)`.
fn write_times(event: &Value, now: Timestamp) -> String {
    let last = write_time_since(find_last_seen(event), now);
    let view = ObjectView::new(event);
    let count = view.find_number("/series/count").or_else(|| view.find_number("/count"));
    match count.filter(|count| *count > 1) {
        None => last,
        Some(count) => match write_time_since(view.read_text("/firstTimestamp"), now).as_str() {
            "" => format!("{last} (x{count})"),
            first => format!("{last} (x{count} over {first})"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn repeated_events_have_a_count() {
        let now = "2026-01-01T02:00:00Z".parse().expect("a time");
        let event = json!({"type": "Warning", "reason": "BuildFailed", "message": "first\nsecond", "count": 3,
            "metadata": {"namespace": "shop"}, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T01:40:00Z",
            "involvedObject": {"kind": "Kustomization", "name": "web"}});
        let row = write_row(&event, true, now);
        let texts: Vec<&str> = row.iter().map(|cell| cell.text.as_str()).collect();
        let expected = [
            "shop",
            "20m (x3 over 120m)",
            "Warning",
            "BuildFailed",
            "kustomization/web",
            "first second",
        ];
        assert_eq!(texts, expected);
        assert_eq!(row[2].tone, Tone::Bad);
        assert_eq!(list_headers(true).len(), row.len());
    }

    #[test]
    fn an_event_has_its_newest_time() {
        let event = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "eventTime": "2026-01-01T00:00:00.5Z",
            "series": {"count": 2, "lastObservedTime": "2026-01-01T01:00:00Z"}});
        assert_eq!(find_last_seen(&event), "2026-01-01T01:00:00Z");
        assert_eq!(
            write_row(&Value::Null, false, Timestamp::UNIX_EPOCH).len(),
            HEADERS.len()
        );
    }
}
