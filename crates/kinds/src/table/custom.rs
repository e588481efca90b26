//! Columns that a CustomResourceDefinition declares.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::duration;
use super::jsonpath::JsonPath;

/// The declared columns of one version, after the name.
#[derive(Clone, Debug)]
pub struct CustomColumns {
    columns: Vec<Column>,
}

/// A declared column: its definition in the Table, its type, and the path of its values.
#[derive(Clone, Debug)]
struct Column {
    definition: Value,
    kind: String,
    path: Option<JsonPath>,
}

impl CustomColumns {
    /// Reads `additionalPrinterColumns`; without any there is an age.
    pub fn new(declared: Option<&Value>) -> Self {
        let declared = declared.and_then(Value::as_array).filter(|columns| !columns.is_empty());
        let age = [json!({
            "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        })];
        let columns = declared.map_or(age.as_slice(), Vec::as_slice).iter().map(|column| {
            let text = |field: &str| column.get(field).and_then(Value::as_str).unwrap_or_default();
            let description = match text("description") {
                "" => format!(
                    "Custom resource definition column (in JSONPath format): {}",
                    text("jsonPath")
                ),
                given => given.to_owned(),
            };
            let definition = json!({
                "name": text("name"), "type": text("type"), "format": text("format"), "description": description,
                "priority": column.get("priority").and_then(Value::as_i64).unwrap_or(0),
            });
            Column {
                definition,
                kind: text("type").to_owned(),
                path: JsonPath::parse(text("jsonPath")).ok(),
            }
        });
        Self {
            columns: columns.collect(),
        }
    }

    pub(crate) fn definitions(&self) -> Vec<Value> {
        let description = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
        let name =
            json!({"name": "Name", "type": "string", "format": "name", "description": description, "priority": 0});
        std::iter::once(name)
            .chain(self.columns.iter().map(|column| column.definition.clone()))
            .collect()
    }

    pub(crate) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let name = object
            .pointer("/metadata/name")
            .cloned()
            .unwrap_or_else(|| Value::from(""));
        std::iter::once(name)
            .chain(self.columns.iter().map(|column| column.make_cell(object, now)))
            .collect()
    }
}

impl Column {
    /// Returns the first value at the path, if it is of the declared type; null otherwise.
    fn make_cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.as_ref().map(|path| path.find(object)).unwrap_or_default();
        let Some(first) = found.first().copied() else {
            return Value::Null;
        };
        match (self.kind.as_str(), first) {
            (_, Value::Null) => Value::Null,
            // Of several matches, the first one is shown.
            ("string", first) => Value::from(format_plain(first)),
            ("integer", Value::Number(number)) => match number.as_i64() {
                Some(whole) => Value::from(whole),
                None => number.as_f64().map_or(Value::Null, |float| Value::from(float.trunc())),
            },
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => first.clone(),
            ("date", Value::String(time)) => match time.parse::<Timestamp>() {
                Ok(_) => Value::from(duration::format_since(time, now)),
                Err(_) => Value::from("<invalid>"),
            },
            _ => Value::Null,
        }
    }
}

fn format_plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
