//! A structural schema: the part of OpenAPI v3 that custom resources may use, parsed once for each version.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

/// The JSON types that a schema can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// The fields that an object may have besides its properties.
#[derive(Debug)]
pub(super) enum Additional {
    Any,
    Schema(Box<Node>),
}

/// The rule that distinguishes a list's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListType {
    Atomic,
    Set,
    Map,
}

/// A schema.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) kind: Option<Kind>,
    pub(super) nullable: bool,
    pub(super) int_or_string: bool,
    pub(super) preserve: bool,
    pub(super) embedded: bool,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) additional: Option<Additional>,
    pub(super) items: Option<Box<Node>>,
    pub(super) default: Option<Value>,
    pub(super) list_type: Option<ListType>,
    pub(super) list_keys: Vec<String>,
    /// Whether the schema, or a schema below it, is that of a set or a map. Without such a schema, no search for duplicates is necessary.
    pub(super) has_correlated_lists: bool,
    /// Whether the schema, or a schema below it, is that of an embedded object.
    pub(super) has_embedded: bool,
    pub(super) checks: Checks,
}

/// The constraints on a value besides its type.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) required: Vec<String>,
    pub(super) allowed: Option<Vec<Value>>,
    pub(super) format: String,
    pub(super) pattern: Option<(String, Regex)>,
    pub(super) minimum: Option<(f64, bool)>,
    pub(super) maximum: Option<(f64, bool)>,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) min_properties: Option<u64>,
    pub(super) max_properties: Option<u64>,
    pub(super) all_of: Vec<Node>,
    pub(super) any_of: Vec<Node>,
    pub(super) one_of: Vec<Node>,
    pub(super) not: Option<Box<Node>>,
}

impl Node {
    /// Reads a schema. A part that this function does not understand was refused when the definition was accepted.
    pub(super) fn parse(schema: &Value) -> Self {
        let flag = |field: &str| schema.get(field) == Some(&Value::Bool(true));
        let text = |field: &str| schema.get(field).and_then(Value::as_str).unwrap_or_default();
        let properties: BTreeMap<String, Node> = schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, property)| (name.clone(), Self::parse(property)))
            .collect();
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => Some(Additional::Any),
            Some(inner @ Value::Object(_)) => Some(Additional::Schema(Box::new(Self::parse(inner)))),
            _ => None,
        };
        let items = schema
            .get("items")
            .filter(|items| items.is_object())
            .map(|items| Box::new(Self::parse(items)));
        let checks = Checks::parse(schema);
        let list_type = match text("x-kubernetes-list-type") {
            "set" => Some(ListType::Set),
            "map" => Some(ListType::Map),
            "atomic" => Some(ListType::Atomic),
            _ => None,
        };
        let embedded = flag("x-kubernetes-embedded-resource");
        let below = |has: fn(&Node) -> bool| {
            let of_entries = match &additional {
                Some(Additional::Schema(inner)) => has(inner),
                Some(Additional::Any) | None => false,
            };
            of_entries || items.as_deref().is_some_and(has) || properties.values().any(has)
        };
        let correlated = matches!(list_type, Some(ListType::Set | ListType::Map));
        Self {
            has_correlated_lists: correlated || below(|node| node.has_correlated_lists),
            has_embedded: embedded || below(|node| node.has_embedded),
            kind: parse_kind(text("type")),
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded,
            properties,
            additional,
            items,
            default: schema
                .get("default")
                .filter(|default| !default.is_null() || flag("nullable"))
                .cloned(),
            list_type,
            list_keys: list_strings(schema.get("x-kubernetes-list-map-keys")),
            checks,
        }
    }
}

impl Checks {
    fn parse(schema: &Value) -> Self {
        let number = |field: &str| schema.get(field).and_then(Value::as_f64);
        let count = |field: &str| schema.get(field).and_then(Value::as_u64);
        let flag = |field: &str| schema.get(field) == Some(&Value::Bool(true));
        let nodes = |field: &str| -> Vec<Node> {
            schema
                .get(field)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(Node::parse)
                .collect()
        };
        let pattern = schema
            .get("pattern")
            .and_then(Value::as_str)
            .filter(|pattern| !pattern.is_empty());
        Self {
            required: list_strings(schema.get("required")),
            allowed: schema
                .get("enum")
                .and_then(Value::as_array)
                .filter(|values| !values.is_empty())
                .cloned(),
            format: schema
                .get("format")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            pattern: pattern
                .and_then(|pattern| Some((pattern.to_owned(), kubernetes_cel::pattern::compile(pattern).ok()?))),
            minimum: number("minimum").map(|least| (least, flag("exclusiveMinimum"))),
            maximum: number("maximum").map(|most| (most, flag("exclusiveMaximum"))),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            all_of: nodes("allOf"),
            any_of: nodes("anyOf"),
            one_of: nodes("oneOf"),
            not: schema
                .get("not")
                .filter(|not| not.is_object())
                .map(|not| Box::new(Node::parse(not))),
        }
    }
}

fn parse_kind(text: &str) -> Option<Kind> {
    Some(match text {
        "object" => Kind::Object,
        "array" => Kind::Array,
        "string" => Kind::String,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        _ => return None,
    })
}

fn list_strings(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}
