//! The ConversionReview: the request to a webhook, and the checks of its answer. This module is pure.

use go_words::value::type_name;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenure_kinds::kind::version_of;
use tenure_kinds::object::ObjectExt as _;
use tenure_kinds::schema::strict::Twice;
use tenure_kinds::schema::validation::{validate_annotations, validate_labels};
use tenure_kinds::schema::{FieldPath, aggregate_errors};

use crate::formats::{BodyFormat, describe_untyped, parse};

/// The versions of reviews that this server supports.
pub(super) const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Longest answer that is parsed as YAML if it is not JSON.
const LONGEST_YAML: usize = 64 * 1024;

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "ConversionReview";

/// Returns the review to send.
pub(super) fn make_review(version: &str, uid: &str, wanted: &str, objects: &[Value]) -> Value {
    json!({
        "kind": KIND, "apiVersion": format!("{GROUP}/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": objects},
    })
}

/// The field `response` of a ConversionReview.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Response {
    uid: String,
    result: Option<Outcome>,
    converted_objects: Option<Vec<Value>>,
}

/// The field `result` of a response: a Status.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Outcome {
    status: Option<String>,
    message: Option<String>,
}

/// Returns the objects in an answer. Errors have kube-apiserver's words.
pub(super) fn read(version: &str, uid: &str, bytes: &[u8]) -> Result<Vec<Value>, String> {
    // kube-apiserver also parses YAML, which shows in the error for an answer in plain text.
    let (answer, _) = match parse(bytes, BodyFormat::Json, Twice::Filled) {
        Err(_) if bytes.len() <= LONGEST_YAML => parse(bytes, BodyFormat::Yaml, Twice::Filled),
        read => read,
    }
    .map_err(|error| error.message)?;
    if !answer.is_object() {
        return Err(describe_untyped(&answer));
    }
    let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default();
    let (found_version, found_kind) = (text("apiVersion"), text("kind"));
    for (field, found) in [("Kind", found_kind), ("apiVersion", found_version)] {
        if found.is_empty() {
            // kube-apiserver repeats the whole answer here.
            return Err(format!("Object '{field}' is missing in the answer"));
        }
    }
    if found_version != format!("{GROUP}/{version}") || found_kind != KIND {
        let known = VERSIONS
            .into_iter()
            .find(|known| found_version == format!("{GROUP}/{known}") && found_kind == KIND);
        return Err(match known {
            Some(other) => format!("converting ({other}.{KIND}) to ({version}.{KIND}): unknown conversion"),
            None => format!(
                "no kind {found_kind:?} is registered for version {found_version:?} in scheme \"pkg/runtime/scheme.go:111\""
            ),
        });
    }
    let response = match answer.get("response") {
        None | Some(Value::Null) => return Err("no response provided".to_owned()),
        Some(response) => Response::deserialize(response).map_err(|error| error.to_string())?,
    };
    if version != "v1beta1" && response.uid != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", response.uid));
    }
    let outcome = response.result.unwrap_or_default();
    let status = outcome.status.unwrap_or_default();
    if status != "Success" {
        return Err(match outcome.message.filter(|message| !message.is_empty()) {
            Some(message) => message,
            None => format!("response.result.status was '{status}', not 'Success'"),
        });
    }
    Ok(response.converted_objects.unwrap_or_default())
}

/// A fault in an object that a conversion webhook returned.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The value is not an object.
    Unreadable(String),
    /// The object has another version or kind than requested.
    Type(String),
    /// The object has another identity.
    Identity(String),
    /// The metadata is invalid.
    Metadata(String),
}

impl Fault {
    /// Returns the message; `index` is the object's index among several.
    pub(super) fn describe(&self, webhook: &str, index: Option<usize>) -> String {
        match (self, index) {
            (Self::Unreadable(why), None) => why.clone(),
            (Self::Type(why), None) => format!("{webhook} returned invalid object at index 0: {why}"),
            (Self::Identity(why), None) => format!("{webhook} returned invalid object: {why}"),
            (Self::Metadata(why), None) => format!("{webhook} returned invalid metadata: {why}"),
            (Self::Unreadable(why) | Self::Type(why) | Self::Identity(why), Some(index)) => {
                format!("{webhook} returned invalid converted object at index {index}: {why}")
            }
            (Self::Metadata(why), Some(index)) => {
                format!("{webhook} returned invalid metadata in object at index {index}: {why}")
            }
        }
    }
}

/// Returns the accepted form of a converted object: the identity is the original's, and of the metadata only labels
/// and annotations are the webhook's.
pub(super) fn accept_conversion(original: &Value, converted: Value, wanted: &str) -> Result<Value, Fault> {
    let Value::Object(mut object) = converted else {
        return Err(Fault::Unreadable(match converted {
            Value::Null => "unexpected end of JSON input".to_owned(),
            other => describe_untyped(&other),
        }));
    };
    let text = |object: &Map<String, Value>, key: &str| {
        let found = object.get(key).and_then(Value::as_str).unwrap_or_default();
        found.to_owned()
    };
    if text(&object, "kind").is_empty() {
        return Err(Fault::Unreadable("Object 'Kind' is missing in the answer".to_owned()));
    }
    let found = text(&object, "apiVersion");
    if found != wanted {
        return Err(Fault::Type(format!(
            "invalid groupVersion (expected {wanted}, received {found})"
        )));
    }
    let kind = original.get("kind").and_then(Value::as_str).unwrap_or_default();
    let found = text(&object, "kind");
    if found != kind {
        return Err(Fault::Type(format!("invalid kind (expected {kind}, received {found})")));
    }
    let answered = object.remove("metadata");
    let of_answer = |key: &str| {
        let found = answered.as_ref().and_then(|metadata| metadata.get(key));
        found.and_then(Value::as_str).unwrap_or_default()
    };
    for (what, key) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
        let (sent, found) = (original.meta_str(key), of_answer(key));
        if sent != found {
            return Err(Fault::Identity(format!("must have the same {what}: {sent} != {found}")));
        }
    }
    let metadata = restore_metadata(original.metadata(), answered.as_ref()).map_err(Fault::Metadata)?;
    object.insert("metadata".to_owned(), Value::Object(metadata));
    Ok(Value::Object(object))
}

/// Returns the original metadata with the labels and annotations of the answer.
fn restore_metadata(sent: Option<&Map<String, Value>>, answered: Option<&Value>) -> Result<Map<String, Value>, String> {
    let answered = match answered {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(answered)) => answered,
        Some(other) => {
            return Err(format!(
                "invalid metadata of type {} in converted object",
                type_name(other)
            ));
        }
    };
    let mut metadata = sent.cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let map = match answered.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
                continue;
            }
            Some(Value::Object(map)) => map,
            Some(other) => {
                let found = type_name(other);
                return Err(format!("invalid metadata.{field} of type {found} in converted object"));
            }
        };
        if let Some((key, value)) = map.iter().find(|(_, value)| !value.is_string()) {
            let found = type_name(value);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {found} in converted object"
            ));
        }
        let mut faults = Vec::new();
        let path = FieldPath::new("metadata");
        if metadata.get(field).and_then(Value::as_object) != Some(map) {
            // Labels and annotations that the original had stay, even invalid ones.
            match field {
                "labels" => validate_labels(map, &path.child("labels"), &mut faults),
                _ => validate_annotations(map, &path.child("annotation"), &mut faults),
            }
        }
        if !faults.is_empty() {
            return Err(aggregate_errors(&faults));
        }
        metadata.insert(field.to_owned(), Value::Object(map.clone()));
    }
    Ok(metadata)
}

/// Returns `group/version, Kind=Kind` of an object.
pub(super) fn kind_of(object: &Value) -> String {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    format!("{}, Kind={kind}", version_of(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original() -> Value {
        json!({
            "kind": "Link", "apiVersion": "g/v1",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "finalizers": ["f"], "labels": {"a b": "old"}},
        })
    }

    #[test]
    fn of_metadata_only_labels_and_annotations_are_taken() {
        let converted = json!({
            "kind": "Link", "apiVersion": "g/v2", "spec": {},
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "annotations": {"k": "v"}, "labels": {"a b": "old"}, "generation": 9},
        });
        let accepted = accept_conversion(&original(), converted, "g/v2").unwrap();
        let metadata = accepted.get("metadata").unwrap();
        // An invalid label stays if the original had it.
        let want = json!({"name": "a", "namespace": "n", "uid": "u", "finalizers": ["f"], "labels": {"a b": "old"}, "annotations": {"k": "v"}});
        assert_eq!(*metadata, want);
    }

    #[test]
    fn a_fault_among_several_objects_names_its_place() {
        let message = |converted: Value| {
            let fault = accept_conversion(&original(), converted, "g/v2").unwrap_err();
            fault.describe("webhook", Some(3))
        };
        let begin = "webhook returned invalid converted object at index 3: ";
        let of = |metadata: Value| json!({"kind": "Link", "apiVersion": "g/v2", "metadata": metadata});
        for (converted, why) in [
            (json!(null), "unexpected end of JSON input"),
            (json!({}), "Object 'Kind' is missing in the answer"),
            (
                json!({"kind": "Link"}),
                "invalid groupVersion (expected g/v2, received )",
            ),
            (
                json!({"kind": "Other", "apiVersion": "g/v2"}),
                "invalid kind (expected Link, received Other)",
            ),
            (of(json!({"name": 1})), "must have the same name: a != "),
            (of(json!({"name": "a"})), "must have the same namespace: n != "),
            (
                of(json!({"name": "a", "namespace": "n"})),
                "must have the same UID: u != ",
            ),
        ] {
            assert_eq!(message(converted), format!("{begin}{why}"));
        }
        let odd = of(json!({"name": "a", "namespace": "n", "uid": "u", "labels": {"a": [1]}}));
        assert_eq!(
            message(odd),
            "webhook returned invalid metadata in object at index 3: metadata.labels[a] must be a string, but is []interface {} in converted object"
        );
    }

    #[test]
    fn invalid_answers_are_reported() {
        let review =
            |response: Value| json!({"kind": KIND, "apiVersion": "apiextensions.k8s.io/v1", "response": response});
        for (answer, why) in [
            (json!([]), "couldn't get version/kind"),
            (json!({}), "Object 'Kind' is missing in the answer"),
            (json!({"kind": KIND}), "Object 'apiVersion' is missing in the answer"),
            (
                json!({"kind": "X", "apiVersion": "y"}),
                "no kind \"X\" is registered for version \"y\"",
            ),
            (review(json!(null)), "no response provided"),
            (review(json!(1)), "invalid type"),
            (review(json!({"uid": 1})), "invalid type"),
            (review(json!({"uid": "u", "result": 1})), "invalid type"),
            (review(json!({"uid": "u", "convertedObjects": {}})), "invalid type"),
            (
                review(json!({"uid": "u"})),
                "response.result.status was '', not 'Success'",
            ),
        ] {
            let message = read("v1", "u", answer.to_string().as_bytes()).unwrap_err();
            assert!(message.starts_with(why), "{answer}: {message}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read("v1", "u", deep.as_bytes()).is_err());
        let nothing = review(json!({"uid": "u", "result": {"status": "Success"}})).to_string();
        assert_eq!(read("v1", "u", nothing.as_bytes()), Ok(Vec::new()));
    }
}
