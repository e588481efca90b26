//! Events: one store for the kinds of two groups, which differ in the names of fields.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::{Kind, set_api_version};
use crate::schema::validation::metadata::qualified_name;
use crate::schema::validation::{get_text, validate_name};
use crate::schema::{FieldError, FieldPath};
use crate::table::{cells, duration};

/// Events of the core group, which has the fields that old clients read.
pub(super) static EVENT: Kind = Kind {
    convert: Some(convert),
    selectable_fields: &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ],
    is_created_by_update: true,
    validate_create: validate,
    cells: show,
    ..Kind::new("", "Event", "events")
};

/// The names of an Event's fields in v1 and in events.k8s.io/v1.
const FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Returns the Event as the other group has it.
pub(crate) fn convert(object: Value, wanted: &str) -> Value {
    let Value::Object(map) = object else { return object };
    let to_core = wanted == "v1";
    let renamed = map.into_iter().map(|(key, value)| {
        let found = FIELDS
            .iter()
            .find(|(core, new)| if to_core { *new == key } else { *core == key });
        let key = match found {
            Some((core, new)) => Cow::Borrowed(if to_core { *core } else { *new }),
            None => Cow::Owned(key),
        };
        (key.into_owned(), value)
    });
    let mut event = Value::Object(renamed.collect());
    set_api_version(&mut event, wanted);
    event
}

/// Shows the table cells of an Event in either form.
pub(crate) fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let since = |pointer: &str| {
        let time = cells::get_text(object, pointer);
        (!time.is_empty()).then(|| duration::format_since(time, now))
    };
    // The two groups share storage and differ in names.
    let first_of = |pointers: &[&str]| {
        pointers
            .iter()
            .find_map(|pointer| since(pointer))
            .unwrap_or_else(|| "<unknown>".to_owned())
    };
    let first = first_of(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let mut last = since("/lastTimestamp")
        .or_else(|| since("/deprecatedLastTimestamp"))
        .unwrap_or_else(|| first.clone());
    let mut count = cells::get_number(object, "/count")
        .max(cells::get_number(object, "/deprecatedCount"))
        .max(1);
    if object.get("series").is_some_and(|series| !series.is_null()) {
        last = first_of(&["/series/lastObservedTime"]);
        count = cells::get_number(object, "/series/count");
    }
    let involved = if object.get("involvedObject").is_some() {
        "/involvedObject"
    } else {
        "/regarding"
    };
    let kind = cells::get_text(object, &format!("{involved}/kind")).to_lowercase();
    let name = cells::get_text(object, &format!("{involved}/name"));
    let target = if name.is_empty() {
        kind
    } else {
        format!("{kind}/{name}")
    };
    let source = if object.get("source").is_some() {
        "/source"
    } else {
        "/deprecatedSource"
    };
    let component = cells::non_empty_or(
        cells::get_text(object, &format!("{source}/component")),
        cells::non_empty_or(
            cells::get_text(object, "/reportingComponent"),
            cells::get_text(object, "/reportingController"),
        ),
    );
    let host = cells::non_empty_or(
        cells::get_text(object, &format!("{source}/host")),
        cells::get_text(object, "/reportingInstance"),
    );
    let source = if host.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {host}")
    };
    vec![
        last.into(),
        cells::get_text(object, "/type").into(),
        cells::get_text(object, "/reason").into(),
        target.into(),
        cells::get_text(object, &format!("{involved}/fieldPath")).into(),
        source.into(),
        cells::non_empty_or(cells::get_text(object, "/message"), cells::get_text(object, "/note"))
            .trim()
            .into(),
        first.into(),
        count.into(),
        cells::get_text(object, "/metadata/name").into(),
    ]
}

/// Checks an Event of the core group.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    validate_namespace(value, "involvedObject", errors);
    // An Event with `eventTime` must follow the newer rules.
    if get_text(value, "eventTime").is_empty() {
        return;
    }
    validate_reporter(value, "reportingComponent", errors);
    validate_required(value, &["reportingInstance", "action", "reason"], errors);
}

/// Checks the namespace of an Event. It must be the namespace of the object that the Event is about. An Event about a
/// cluster-scoped object may be in `default` or `kube-system`.
pub(crate) fn validate_namespace(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let own = value
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let about = value
        .get(field)
        .map(|object| get_text(object, "namespace"))
        .unwrap_or_default();
    let elsewhere = about.is_empty() && matches!(own, "default" | "kube-system");
    if !own.is_empty() && about != own && !elsewhere {
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", about, why));
    }
}

/// Checks that the reporter of an event is a qualified name.
pub(crate) fn validate_reporter(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    validate_required(value, &[field], errors);
    validate_name(qualified_name, get_text(value, field), &FieldPath::new(field), errors);
}

pub(crate) fn validate_required(value: &Value, fields: &[&str], errors: &mut Vec<FieldError>) {
    for field in fields {
        if get_text(value, field).is_empty() {
            errors.push(FieldError::required(*field, ""));
        }
    }
}
