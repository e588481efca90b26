//! A Go type as a table: its fields, their shapes, and the facts for lists and patches.
//!
//! The table is parsed from the recorder's stripped OpenAPI definitions. References resolve lazily, so a ConfigMap never loads the
//! definition of a Pod.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::builtin::BuiltinSchemas;

/// The merge of a list under server-side apply (`x-kubernetes-list-type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListKind {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// Items are scalars and unique.
    Set,
    /// Items are objects that keys distinguish.
    Map,
}

/// The merge of a field under a strategic merge patch (`x-kubernetes-patch-strategy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Lists are merged by the merge key (or as sets), maps key by key.
    pub merge: bool,
    /// Keys that the patch's `$retainKeys` does not name are dropped.
    pub retain_keys: bool,
    /// An object is not merged but replaced.
    pub replace: bool,
}

/// The form of a value.
#[derive(Debug)]
pub enum Shape {
    /// `true` or `false`.
    Boolean,
    /// A signed integer of 32 or 64 bits.
    Integer {
        /// 32 or 64.
        bits: u8,
    },
    /// A floating-point number.
    Number,
    /// Text.
    String,
    /// Bytes, base64 in JSON.
    Bytes,
    /// RFC 3339, whole seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// `resource.Quantity`.
    Quantity,
    /// `intstr.IntOrString`.
    IntOrString,
    /// Any JSON: raw extensions, schemas' defaults and examples, managed fields.
    Raw,
    /// An object of that definition, or any other JSON (`JSONSchemaPropsOrBool` and its like).
    ObjectOrRaw(Reference),
    /// A list.
    List(Box<Shape>),
    /// An object with free keys.
    Map(Box<Shape>),
    /// A struct.
    Struct(Reference),
}

/// A definition by name, looked up when first needed.
#[derive(Debug)]
pub struct Reference {
    name: Box<str>,
    target: OnceLock<Option<Arc<Definition>>>,
}

impl Reference {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            target: OnceLock::new(),
        }
    }

    /// Returns the definition; `None` only if the recorded data lacks it.
    pub fn get(&self) -> Option<&Arc<Definition>> {
        self.target
            .get_or_init(|| BuiltinSchemas::instance().definition(&self.name))
            .as_ref()
    }
}

/// A field of a struct.
#[derive(Debug)]
pub struct Field {
    /// The form of its value.
    pub shape: Shape,
    /// The Go type as decoding errors name it, `int32` or `[]v1.Container`; no leading `*`.
    pub go_type: Box<str>,
    /// Declared as a pointer: zero and absent differ.
    pub pointer: bool,
    /// Printed only when not empty.
    pub omit_empty: bool,
    /// Printed only when not zero, structs included.
    pub omit_zero: bool,
    /// The declared default, unless it equals the value that Go prints for an absent field.
    pub default: Option<Value>,
    /// Allowed values, when the declaration lists them.
    pub allowed: Vec<Box<str>>,
    /// The merge of a list under apply.
    pub list_kind: ListKind,
    /// The keys of [`ListKind::Map`].
    pub list_keys: Vec<Box<str>>,
    /// The merge under a strategic merge patch.
    pub patch_strategy: PatchStrategy,
    /// The key by which a strategic merge patch identifies list items.
    pub patch_merge_key: Option<Box<str>>,
}

/// A struct type.
#[derive(Debug)]
pub struct Definition {
    /// The Go name, `DeploymentSpec`.
    pub name: Box<str>,
    /// The fields by JSON name.
    pub fields: BTreeMap<Box<str>, Field>,
}

impl Definition {
    /// Reads one stripped OpenAPI definition.
    pub(super) fn parse(full_name: &str, schema: &Map<String, Value>) -> Self {
        let mut fields = BTreeMap::new();
        if let Some(Value::Object(properties)) = schema.get("properties") {
            for (name, property) in properties {
                if let Value::Object(property) = property {
                    fields.insert(name.as_str().into(), Field::parse(property));
                }
            }
        }
        Self {
            name: full_name.rsplit('.').next().unwrap_or_default().into(),
            fields,
        }
    }
}

impl Field {
    fn parse(property: &Map<String, Value>) -> Self {
        let text = |key: &str| property.get(key).and_then(Value::as_str);
        let strings = |key: &str| -> Vec<Box<str>> {
            let items = property.get(key).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(Box::from).collect()
        };
        let mut facts = text("x-go").unwrap_or("*any,omitempty").split(',');
        let go_type = facts.next().unwrap_or_default();
        let flags: Vec<&str> = facts.collect();
        let strategy = text("x-kubernetes-patch-strategy").unwrap_or_default();
        Self {
            shape: Shape::parse(property),
            go_type: go_type.trim_start_matches('*').into(),
            pointer: go_type.starts_with('*'),
            omit_empty: flags.contains(&"omitempty"),
            omit_zero: flags.contains(&"omitzero"),
            default: property
                .get("default")
                .filter(|value| go_type.starts_with('*') || !is_zero(value))
                .cloned(),
            allowed: strings("enum"),
            list_kind: match text("x-kubernetes-list-type") {
                Some("map") => ListKind::Map,
                Some("set") => ListKind::Set,
                _ => ListKind::Atomic,
            },
            list_keys: strings("x-kubernetes-list-map-keys"),
            patch_strategy: PatchStrategy {
                merge: strategy.split(',').any(|part| part == "merge"),
                retain_keys: strategy.split(',').any(|part| part == "retainKeys"),
                replace: strategy.split(',').any(|part| part == "replace"),
            },
            patch_merge_key: text("x-kubernetes-patch-merge-key").map(Box::from),
        }
    }
}

impl Shape {
    fn parse(schema: &Map<String, Value>) -> Self {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return Self::of_definition(reference.rsplit('/').next().unwrap_or_default());
        }
        let inner = |key: &str| match schema.get(key) {
            Some(Value::Object(inner)) => Self::parse(inner),
            _ => Self::Raw,
        };
        let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
        match schema.get("type").and_then(Value::as_str) {
            Some("boolean") => Self::Boolean,
            Some("integer") => Self::Integer {
                bits: if format == "int32" { 32 } else { 64 },
            },
            Some("number") => Self::Number,
            Some("string") if format == "byte" => Self::Bytes,
            Some("string") => Self::String,
            Some("array") => Self::List(Box::new(inner("items"))),
            Some("object") if schema.contains_key("additionalProperties") => {
                Self::Map(Box::new(inner("additionalProperties")))
            }
            _ => Self::Raw,
        }
    }

    fn of_definition(name: &str) -> Self {
        match name.rsplit('.').next().unwrap_or_default() {
            "Time" => Self::Time,
            "MicroTime" => Self::MicroTime,
            "Quantity" => Self::Quantity,
            "IntOrString" => Self::IntOrString,
            "RawExtension" | "FieldsV1" | "JSON" => Self::Raw,
            "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray" => {
                let props = name
                    .rsplit_once('.')
                    .map(|(package, _)| format!("{package}.JSONSchemaProps"));
                Self::ObjectOrRaw(Reference::new(&props.unwrap_or_default()))
            }
            _ => Self::Struct(Reference::new(name)),
        }
    }

    /// Returns the definition of a struct, or of a list's or map's struct items.
    pub fn definition(&self) -> Option<&Arc<Definition>> {
        match self {
            Self::Struct(reference) | Self::ObjectOrRaw(reference) => reference.get(),
            Self::List(inner) | Self::Map(inner) => inner.definition(),
            _ => None,
        }
    }
}

/// Checks for Go's zero value in JSON.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}
