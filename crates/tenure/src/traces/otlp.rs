//! Spans in the JSON of the OpenTelemetry protocol (OTLP/HTTP 1.x), which a collector takes at `/v1/traces`. The module only writes the form.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The kind of a span that is neither a server's nor a client's.
const INTERNAL: u8 = 1;
/// The status of a span whose work failed.
const ERROR: u8 = 2;
/// The reasons of an attempt that succeeded or continues.
const NO_ERRORS: [&str; 4] = ["", "Succeeded", "ReconciliationSucceeded", "Progressing"];

/// A span: one piece of work in a trace, with its begin, end and attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The trace of the span.
    pub(super) trace: u128,
    pub(super) id: u64,
    pub(super) parent: Option<u64>,
    pub(super) name: &'static str,
    pub(super) begun: SystemTime,
    pub(super) ended: SystemTime,
    pub(super) attributes: Vec<(&'static str, String)>,
}

/// Writes spans as one request, with the number of spans dropped so far for the reader.
pub(super) fn write_request(spans: &[Span], version: &str, dropped: u64) -> Value {
    let spans: Vec<Value> = spans.iter().map(write_span).collect();
    json!({
        "resourceSpans": [{
            "resource": { "attributes": [
                write_text("service.name", "tenure"),
                write_text("service.version", version),
                { "key": "tenure.dropped_spans", "value": { "intValue": dropped.to_string() } },
            ] },
            "scopeSpans": [{ "scope": { "name": "tenure", "version": version }, "spans": spans }],
        }],
    })
}

fn write_text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn write_span(span: &Span) -> Value {
    let attributes: Vec<Value> = span
        .attributes
        .iter()
        .map(|(name, value)| write_text(&format!("tenure.{name}"), value))
        .collect();
    let mut written = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": write_time(span.begun),
        "endTimeUnixNano": write_time(span.ended),
        "attributes": attributes,
    });
    let reason = span.attributes.iter().find(|(name, _)| *name == "reason");
    let reason = reason.map_or("", |(_, reason)| reason.as_str());
    if let Some(fields) = written.as_object_mut() {
        if let Some(parent) = span.parent {
            fields.insert("parentSpanId".to_owned(), json!(format!("{parent:016x}")));
        }
        if !NO_ERRORS.contains(&reason) {
            fields.insert("status".to_owned(), json!({ "code": ERROR, "message": reason }));
        }
    }
    written
}

/// Writes a time as text, as this JSON writes 64-bit numbers.
fn write_time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_request_has_the_form_that_collectors_take() {
        let time_at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let span = Span {
            trace: 0xabc,
            id: 0x12,
            parent: Some(0x34),
            name: "fetch",
            begun: time_at(1),
            ended: time_at(2),
            attributes: vec![
                ("kind", "GitRepository".to_owned()),
                ("reason", "GitOperationFailed".to_owned()),
            ],
        };
        let root = Span {
            parent: None,
            attributes: vec![("reason", "Succeeded".to_owned())],
            ..span.clone()
        };
        let written = write_request(&[span, root], "1.2.3", 7);
        let resource = &written["resourceSpans"][0];
        assert_eq!(resource["resource"]["attributes"][2]["value"]["intValue"], "7");
        let spans = &resource["scopeSpans"][0]["spans"];
        let expected = json!({
            "traceId": "00000000000000000000000000000abc", "spanId": "0000000000000012", "parentSpanId": "0000000000000034",
            "name": "fetch", "kind": 1, "startTimeUnixNano": "1000000000", "endTimeUnixNano": "2000000000",
            "attributes": [
                { "key": "tenure.kind", "value": { "stringValue": "GitRepository" } },
                { "key": "tenure.reason", "value": { "stringValue": "GitOperationFailed" } },
            ],
            "status": { "code": 2, "message": "GitOperationFailed" },
        });
        assert_eq!(spans[0], expected);
        assert!(spans[1].get("parentSpanId").is_none() && spans[1].get("status").is_none());
    }
}
