//! FieldsV1: the form of a [`FieldSet`] in `managedFields`.
//!
//! Each step is a key of a JSON object: `f:name`, `k:{key fields}`, `v:scalar`, `i:index`. The key `.` means that the enclosing step is a
//! member too. Like Kubernetes, the reader drops a step of an unknown kind, so that later versions can add kinds.

use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::path::{KeyField, PathElement};
use crate::set::{FieldSet, Node};

/// A FieldsV1 value that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    /// A step has no object below it.
    #[error("FieldsV1: {0:?} must be an object")]
    NotAnObject(String),
    /// A step without a kind.
    #[error("FieldsV1: {0:?} doesn't begin with one of f:, k:, v: or i:")]
    NoPrefix(String),
    /// A step whose key fields, value or index can't be read.
    #[error("FieldsV1: {element:?} can't be read: {problem}")]
    BadElement {
        /// The step as written.
        element: String,
        /// The reason why the step can't be read.
        problem: String,
    },
}

impl FieldSet {
    /// Reads a FieldsV1 value.
    ///
    /// # Errors
    /// If it isn't an object, or a step of it can't be read.
    pub fn from_fields_v1(fields: &Value) -> Result<Self, FieldsError> {
        match fields {
            Value::Object(fields) => read_level(fields).map(|(set, _)| set),
            _ => Err(FieldsError::NotAnObject("fieldsV1".to_owned())),
        }
    }

    /// Writes the set as a FieldsV1 value.
    #[must_use]
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(write_level(self, false))
    }

    /// Writes the set as FieldsV1 text in the byte order that Kubernetes uses: fields, keys, values,
    /// indexes, each sorted by its own order rather than as text.
    #[must_use]
    pub fn to_fields_v1_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }
}

/// Reads one level. The flag is true if the level contains `.`, or is empty, which is equivalent.
fn read_level(fields: &Map<String, Value>) -> Result<(FieldSet, bool), FieldsError> {
    let mut nodes: Vec<Node> = Vec::with_capacity(fields.len());
    let mut is_member = false;
    for (name, below) in fields {
        if name == "." {
            is_member = true;
            continue;
        }
        let Some(element) = read_element(name)? else {
            continue;
        };
        let (children, member) = match below {
            Value::Object(below) => read_level(below)?,
            // Kubernetes' reader takes null for an empty object.
            Value::Null => (FieldSet::new(), true),
            _ => return Err(FieldsError::NotAnObject(name.clone())),
        };
        nodes.push(Node {
            element,
            member,
            children,
        });
    }
    if nodes.is_empty() {
        is_member = true;
    }
    // JSON objects are sorted as text, elements by value: k:{"port":9} comes before k:{"port":10}.
    if !nodes.is_sorted_by(|left, right| left.element < right.element) {
        nodes.sort_by(|left, right| left.element.cmp(&right.element));
        // One element can have two spellings, such as v:1 and v:1.0.
        nodes.dedup_by(|later, earlier| {
            let same = later.element == earlier.element;
            if same {
                earlier.member |= later.member;
                earlier.children = earlier.children.union(&later.children);
            }
            same
        });
    }
    Ok((FieldSet { nodes }, is_member))
}

fn read_element(text: &str) -> Result<Option<PathElement>, FieldsError> {
    let Some((kind, content)) = text.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
        return Err(FieldsError::NoPrefix(text.to_owned()));
    };
    let bad = |problem: String| FieldsError::BadElement {
        element: text.to_owned(),
        problem,
    };
    Ok(Some(match kind {
        "f" => PathElement::field(content),
        "k" => {
            let fields: Map<String, Value> = serde_json::from_str(content).map_err(|error| bad(error.to_string()))?;
            PathElement::from_key_fields(
                fields
                    .into_iter()
                    .map(|(name, value)| KeyField {
                        name: Arc::from(name),
                        value,
                    })
                    .collect(),
            )
        }
        "v" => PathElement::value(serde_json::from_str(content).map_err(|error| bad(error.to_string()))?),
        "i" => PathElement::Index(content.parse().map_err(|_| bad("not an index".to_owned()))?),
        _ => return Ok(None),
    }))
}

fn write_element(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => {
            let mut text = String::with_capacity(name.len() + 2);
            text.push_str("f:");
            text.push_str(name);
            text
        }
        PathElement::Key(fields) => {
            let mut text = String::from("k:{");
            for (index, field) in fields.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                push_json(&mut text, &Value::from(&*field.name));
                text.push(':');
                push_json(&mut text, &field.value);
            }
            text.push('}');
            text
        }
        PathElement::Value(value) => {
            let mut text = String::from("v:");
            push_json(&mut text, value);
            text
        }
        PathElement::Index(index) => format!("i:{index}"),
    }
}

/// Writes JSON as Go's encoder does: `<`, `>`, `&` and the line separators escaped, whole floats
/// without a fraction. FieldsV1 keys are compared as text by some clients.
fn push_json(out: &mut String, value: &Value) {
    match value {
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => out.push_str(&format!("{float:.0}")),
            _ => out.push_str(&number.to_string()),
        },
        value => {
            for character in value.to_string().chars() {
                match character {
                    '<' => out.push_str("\\u003c"),
                    '>' => out.push_str("\\u003e"),
                    '&' => out.push_str("\\u0026"),
                    '\u{2028}' => out.push_str("\\u2028"),
                    '\u{2029}' => out.push_str("\\u2029"),
                    character => out.push(character),
                }
            }
        }
    }
}

fn write_level(set: &FieldSet, with_dot: bool) -> Map<String, Value> {
    let mut fields = Map::new();
    if with_dot {
        fields.insert(".".to_owned(), Value::Object(Map::new()));
    }
    for node in &set.nodes {
        let below = if node.children.is_empty() {
            Map::new()
        } else {
            write_level(&node.children, node.member)
        };
        fields.insert(write_element(&node.element), Value::Object(below));
    }
    fields
}

/// A level of a set for the serialiser, with or without the key `.`.
struct Level<'a> {
    set: &'a FieldSet,
    with_dot: bool,
}

impl Serialize for Level<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.with_dot {
            map.serialize_entry(".", &Map::new())?;
        }
        for node in &self.set.nodes {
            let below = Level {
                set: &node.children,
                with_dot: node.member && !node.children.is_empty(),
            };
            map.serialize_entry(&write_element(&node.element), &below)?;
        }
        map.end()
    }
}

impl Serialize for FieldSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Level {
            set: self,
            with_dot: false,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FieldSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_fields_v1(&Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, written: &str) {
        let set: FieldSet = serde_json::from_str(text).unwrap();
        assert_eq!(set.to_fields_v1_text(), written);
        assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()).as_ref(), Ok(&set));
    }

    #[test]
    fn reads_and_writes() {
        check("{}", "{}");
        check(r#"{"f:b":{},"f:a":{"f:c":{}}}"#, r#"{"f:a":{"f:c":{}},"f:b":{}}"#);
        check(r#"{"f:a":{".":{},"f:b":{}}}"#, r#"{"f:a":{".":{},"f:b":{}}}"#);
        check(r#"{"f:a":{".":{}}}"#, r#"{"f:a":{}}"#);
        check(
            r#"{"v:1":{},"i:2":{},"k:{\"b\":1,\"a\":\"x\"}":{},"f:z":{}}"#,
            r#"{"f:z":{},"k:{\"a\":\"x\",\"b\":1}":{},"v:1":{},"i:2":{}}"#,
        );
        check(
            r#"{"k:{\"p\":10}":{},"k:{\"p\":9}":{}}"#,
            r#"{"k:{\"p\":9}":{},"k:{\"p\":10}":{}}"#,
        );
        // An unknown kind of step is dropped.
        check(r#"{"f:a":{"x:b":{}}}"#, r#"{"f:a":{}}"#);
        check(r#"{"v:\"a<b\"":{}}"#, "{\"v:\\\"a\\\\u003cb\\\"\":{}}");
    }

    #[test]
    fn refuses() {
        for text in [
            r#"{"a":{}}"#,
            r#"{"f:a":1}"#,
            r#"{"k:[]":{}}"#,
            r#"{"i:x":{}}"#,
            "[]",
            "1",
            r#"{"v:":{}}"#,
            r#"{"ff:a":{}}"#,
        ] {
            assert!(serde_json::from_str::<FieldSet>(text).is_err(), "{text}");
        }
    }
}
