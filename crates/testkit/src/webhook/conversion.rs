//! Conversions of the test webhook: v1 has `spec.hostPort` and `spec.protocol`, v2 `spec.host`, `spec.port` and
//! `spec.retries`.
//!
//! Rules change that: `careless` keeps fields that the wanted version lacks; `each` is merged into each object and
//! `review` into the answer; `leave_out` objects are missing at the end, and `repeat` objects appear twice.

use serde_json::{Map, Value, json};

/// Returns the answer to a ConversionReview.
pub(super) fn convert_review(review: &Value, rules: &Value) -> Value {
    let request = review.get("request").unwrap_or(&Value::Null);
    let wanted = request
        .get("desiredAPIVersion")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let sent = request.get("objects").and_then(Value::as_array).into_iter().flatten();
    let mut objects: Vec<Value> = sent
        .map(|object| {
            let mut object = object.clone();
            merge(&mut object, &json!({"apiVersion": wanted}));
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                convert(spec, wanted.ends_with("/v1"), rules.get("careless").is_some());
            }
            if let Some(each) = rules.get("each") {
                merge(&mut object, each);
            }
            object
        })
        .collect();
    let number = |key: &str| {
        let number = rules.get(key).and_then(Value::as_u64).unwrap_or_default();
        usize::try_from(number).unwrap_or_default()
    };
    let repeated: Vec<Value> = objects.iter().take(number("repeat")).cloned().collect();
    objects.truncate(objects.len().saturating_sub(number("leave_out")));
    objects.extend(repeated);
    let mut answer = json!({
        "apiVersion": review.get("apiVersion"), "kind": review.get("kind"),
        "response": {"uid": request.get("uid"), "result": {"status": "Success"}, "convertedObjects": objects},
    });
    if let Some(changes) = rules.get("review") {
        merge(&mut answer, changes);
    }
    answer
}

fn convert(spec: &mut Map<String, Value>, to_first: bool, careless: bool) {
    let take_field = |spec: &mut Map<String, Value>, key: &str| {
        let taken = spec.remove(key);
        taken
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_default()
    };
    if to_first && (spec.contains_key("host") || spec.contains_key("port")) {
        let (host, port) = (take_field(spec, "host"), take_field(spec, "port"));
        spec.insert("hostPort".to_owned(), json!(format!("{host}:{port}")));
    } else if !to_first && spec.contains_key("hostPort") {
        let both = take_field(spec, "hostPort");
        let (host, port) = both.split_once(':').unwrap_or((&both, ""));
        spec.insert("host".to_owned(), json!(host));
        spec.insert("port".to_owned(), json!(port));
    }
    if !careless {
        spec.remove(if to_first { "retries" } else { "protocol" });
    }
}

/// Applies a merge patch (RFC 7386).
fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        value.clone_from(patch);
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    let Some(map) = value.as_object_mut() else { return };
    for (key, change) in changes {
        if change.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

/// Returns a webhook's request in one line.
pub(super) fn describe_request(path: &str, review: &Value) -> String {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let request = review.get("request").unwrap_or(&Value::Null);
    let objects = request.get("objects").and_then(Value::as_array).into_iter().flatten();
    let objects: Vec<String> = objects
        .map(|object| {
            let spec = write_spaced(object.get("spec").unwrap_or(&Value::Null));
            format!("{} {spec}", text(object, "apiVersion"))
        })
        .collect();
    let mut keys: Vec<&str> = request
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .collect();
    keys.sort_unstable();
    let (kind, version, wanted) = (
        text(review, "kind"),
        text(review, "apiVersion"),
        text(request, "desiredAPIVersion"),
    );
    format!(
        "{path}: {kind} {version} of {} to {wanted}; {}",
        objects.join(" "),
        keys.join(" ")
    )
}

/// Returns JSON in Python's format.
fn write_spaced(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let fields = map
                .iter()
                .map(|(key, value)| format!("{}: {}", json!(key), write_spaced(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(write_spaced).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}
