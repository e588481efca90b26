//! The structural schema of a custom resource for expressions: types for the checker, sizes for the estimate, and typed views of objects.

use std::collections::BTreeMap;

use base64::Engine as _;
use go_words::value::type_name;
use serde_json::{Map as JsonMap, Value as Json};

use crate::environment::Environment;
use crate::escaping;
use crate::failure::Failure;
use crate::time;
use crate::types::Type;
use crate::value::{Entries, Items, List, Map, Value};

/// The size that Kubernetes assumes requests to have at most, in bytes.
pub const LARGEST_REQUEST: u64 = 3 * 1024 * 1024;

/// A schema as expressions see it.
#[derive(Debug, Clone)]
pub struct Shape {
    kind: ShapeKind,
    nullable: bool,
    declared: Option<Declared>,
}

/// The known facts about a value that expressions may read.
#[derive(Debug, Clone)]
struct Declared {
    of: Type,
    /// The maximum number of characters, items or entries.
    most: u64,
    /// The length of the value's shortest form, in bytes.
    shortest: u64,
}

/// The type of a value in a structural schema.
#[derive(Debug, Clone)]
enum ShapeKind {
    IntOrString,
    Object(BTreeMap<String, Shape>),
    Map(Box<Shape>),
    /// An object without properties.
    Bare,
    List(Box<Shape>, ListKind),
    String(Format),
    Number,
    Integer,
    Boolean,
    Preserved,
    Unknown,
}

/// The value of `x-kubernetes-list-type`, with the keys of a map.
#[derive(Debug, Clone)]
enum ListKind {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// The `format` of a text that expressions read as another type.
#[derive(Debug, Clone, Copy)]
enum Format {
    Text,
    Bytes,
    Duration,
    Date,
    DateTime,
}

/// How two lists of a schema are compared and joined, if `x-kubernetes-list-type` is a set or a map.
pub(crate) enum Joining<'s> {
    Set,
    ByKeys(&'s [String]),
}

impl Shape {
    /// Creates the schema at the root of a custom resource. Types below are named after `name`, which has to be unlike others.
    pub fn of_resource(schema: &Json, name: &str) -> Self {
        Self::build(schema, true, name)
    }

    /// Creates a schema below the root, or of an embedded resource.
    pub fn of_schema(schema: &Json, name: &str) -> Self {
        let embedded = has_flag(schema, "x-kubernetes-embedded-resource");
        Self::build(schema, embedded, name)
    }

    fn build(schema: &Json, resource: bool, name: &str) -> Self {
        let nullable = has_flag(schema, "nullable");
        let done = |kind: ShapeKind, declared: Option<(Type, u64, u64)>| Self {
            kind,
            nullable,
            declared: declared.map(|(of, most, shortest)| Declared { of, most, shortest }),
        };
        if has_flag(schema, "x-kubernetes-int-or-string") {
            let most = read_limit(schema, "maxLength").map_or(LARGEST_REQUEST - 2, |most| most.saturating_mul(4));
            return done(ShapeKind::IntOrString, Some((Type::Dyn, most, 1)));
        }
        let kind = schema.get("type").and_then(Json::as_str).unwrap_or_default();
        match kind {
            "array" => match schema.get("items").filter(|items| items.is_object()) {
                Some(items) => {
                    let items = Self::of_schema(items, &format!("{name}.@idx"));
                    let declared = items.declared.as_ref().map(|inner| {
                        let most =
                            read_limit(schema, "maxItems").unwrap_or((LARGEST_REQUEST - 2) / (inner.shortest + 1));
                        (Type::list(inner.of.clone()), most, 2)
                    });
                    let list = match schema.get("x-kubernetes-list-type").and_then(Json::as_str) {
                        Some("set") => ListKind::Set,
                        Some("map") => ListKind::Map(read_texts(schema.get("x-kubernetes-list-map-keys"))),
                        _ => ListKind::Atomic,
                    };
                    done(ShapeKind::List(Box::new(items), list), declared)
                }
                None => done(ShapeKind::Unknown, None),
            },
            "object" => {
                let values = schema
                    .get("additionalProperties")
                    .filter(|values| values.is_object() && !resource);
                if let Some(values) = values {
                    let values = Self::of_schema(values, &format!("{name}.@elem"));
                    let declared = values.declared.as_ref().map(|inner| {
                        let most =
                            read_limit(schema, "maxProperties").unwrap_or((LARGEST_REQUEST - 2) / (inner.shortest + 6));
                        (Type::map(Type::String, inner.of.clone()), most, 2)
                    });
                    return done(ShapeKind::Map(Box::new(values)), declared);
                }
                Self::build_object(schema, resource, nullable, name)
            }
            "string" => {
                let (format, of, most, shortest) = describe_string(schema);
                done(ShapeKind::String(format), Some((of, most, shortest)))
            }
            "boolean" => done(ShapeKind::Boolean, Some((Type::Bool, 0, 4))),
            "number" => done(ShapeKind::Number, Some((Type::Double, 0, 1))),
            "integer" => done(ShapeKind::Integer, Some((Type::Int, 0, 1))),
            _ if has_flag(schema, "x-kubernetes-preserve-unknown-fields") => done(ShapeKind::Preserved, None),
            _ => done(ShapeKind::Unknown, None),
        }
    }

    fn build_object(schema: &Json, resource: bool, nullable: bool, name: &str) -> Self {
        let empty = JsonMap::new();
        let given = schema.get("properties").and_then(Json::as_object);
        let mut properties: BTreeMap<String, Shape> = given
            .unwrap_or(&empty)
            .iter()
            .map(|(property, schema)| (property.clone(), Self::of_schema(schema, &format!("{name}.{property}"))))
            .collect();
        if resource {
            let text = || Self::build(&serde_json::json!({"type": "string"}), false, "");
            let metadata = serde_json::json!({"type": "object", "properties": {
                "name": {"type": "string"}, "generateName": {"type": "string"},
            }});
            properties.insert("apiVersion".to_owned(), text());
            properties.insert("kind".to_owned(), text());
            properties.insert(
                "metadata".to_owned(),
                Self::build(&metadata, false, &format!("{name}.metadata")),
            );
        }
        let required = read_texts(schema.get("required"));
        let mut shortest = 2;
        for (property, shape) in &properties {
            let Some(declared) = &shape.declared else { continue };
            let has_default = given
                .and_then(|given| given.get(property)?.get("default"))
                .is_some_and(|default| !default.is_null());
            if required.contains(property) && !has_default {
                shortest += property.len() as u64 + declared.shortest + 4;
            }
        }
        let kind = if given.is_none() && !resource {
            ShapeKind::Bare
        } else {
            ShapeKind::Object(properties)
        };
        Self {
            kind,
            nullable,
            declared: Some(Declared {
                of: Type::object(name),
                most: 0,
                shortest,
            }),
        }
    }

    /// Returns the type for expressions; `None` if expressions can't read the value.
    pub fn declared_type(&self) -> Option<&Type> {
        self.declared.as_ref().map(|declared| &declared.of)
    }

    /// Adds the object types of this schema to an environment.
    #[must_use]
    pub fn declare(&self, mut environment: Environment) -> Environment {
        match &self.kind {
            ShapeKind::Object(properties) => {
                let mut fields = BTreeMap::new();
                for (property, shape) in properties {
                    if let (Some(of), Some(name)) = (shape.declared_type(), escaping::escape(property)) {
                        fields.insert(name, of.clone());
                        environment = shape.declare(environment);
                    }
                }
                if let Some(Type::Object(name)) = self.declared_type() {
                    environment = environment.with_object(name, fields);
                }
                environment
            }
            ShapeKind::Bare => match self.declared_type() {
                Some(Type::Object(name)) => environment.with_object(name, BTreeMap::new()),
                _ => environment,
            },
            ShapeKind::Map(inner) | ShapeKind::List(inner, _) => inner.declare(environment),
            _ => environment,
        }
    }

    /// Returns how many values of this schema fit into a request. A rule at this place is evaluated at most this many times.
    pub fn most_in_request(&self) -> u64 {
        let shortest = self.declared.as_ref().map_or(0, |declared| declared.shortest);
        LARGEST_REQUEST / (shortest + 1)
    }

    /// Returns the items, values or the property that a step of a path leads to.
    pub(crate) fn find_step(&self, step: &str) -> Option<&Shape> {
        let found = match (&self.kind, step) {
            (ShapeKind::List(inner, _), "@items" | "@values") | (ShapeKind::Map(inner), "@items" | "@values") => inner,
            (ShapeKind::Object(properties), field) => properties.get(&escaping::unescape(field)?)?,
            _ => return None,
        };
        found.declared.is_some().then_some(found)
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self.kind, ShapeKind::Map(_))
    }

    /// Returns the maximum number of characters, items or entries.
    pub(crate) fn maximum_length(&self) -> u64 {
        self.declared.as_ref().map_or(0, |declared| declared.most)
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self.kind, ShapeKind::Object(_))
    }

    pub(crate) fn property(&self, name: &str) -> Option<&Shape> {
        match &self.kind {
            ShapeKind::Object(properties) => properties.get(name),
            ShapeKind::Map(values) => Some(values),
            _ => None,
        }
    }

    pub(crate) fn items(&self) -> Option<&Shape> {
        match &self.kind {
            ShapeKind::List(items, _) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn join_rule(&self) -> Option<Joining<'_>> {
        match &self.kind {
            ShapeKind::List(_, ListKind::Set) => Some(Joining::Set),
            ShapeKind::List(_, ListKind::Map(keys)) => Some(Joining::ByKeys(keys)),
            _ => None,
        }
    }

    /// Looks at JSON as this schema types it.
    pub(crate) fn view<'a>(&'a self, value: &'a Json) -> Result<Value<'a>, Failure> {
        let wrong = |message: &str| Err(Failure::new(message));
        match (&self.kind, value) {
            (_, Json::Null) if self.nullable => Ok(Value::Null),
            (_, Json::Null) => wrong("invalid data, got null for schema with nullable=false"),
            (ShapeKind::IntOrString, Json::String(text)) => Ok(Value::from(text.as_str())),
            (ShapeKind::IntOrString, Json::Number(number)) if number.is_i64() => {
                Ok(Value::Int(number.as_i64().unwrap_or_default()))
            }
            (ShapeKind::IntOrString, _) => {
                wrong("invalid data, expected XIntOrString value to be either a string or integer")
            }
            (ShapeKind::Object(_) | ShapeKind::Map(_) | ShapeKind::Bare, Json::Object(entries)) => {
                Ok(Value::Map(Map {
                    entries: Entries::Json(entries, Some(self)),
                }))
            }
            (ShapeKind::Object(_) | ShapeKind::Map(_) | ShapeKind::Bare, _) => {
                wrong("invalid data, expected a map for the provided schema with type=object")
            }
            (ShapeKind::List(..), Json::Array(items)) => Ok(Value::List(List {
                items: Items::Json(items),
                shape: Some(self),
            })),
            (ShapeKind::List(..), _) => {
                wrong("invalid data, expected an array for the provided schema with type=array")
            }
            (ShapeKind::String(format), Json::String(text)) => parse_formatted(*format, text),
            (ShapeKind::String(_), other) => Err(Failure::new(format!(
                "invalid data, expected string, got {}",
                type_name(other)
            ))),
            (ShapeKind::Number, Json::Number(number)) => Ok(Value::Double(number.as_f64().unwrap_or(f64::NAN))),
            (ShapeKind::Number, other) => Err(Failure::new(format!(
                "invalid data, expected float, got {}",
                type_name(other)
            ))),
            (ShapeKind::Integer, Json::Number(number)) if number.is_i64() => {
                Ok(Value::Int(number.as_i64().unwrap_or_default()))
            }
            (ShapeKind::Integer, other) => Err(Failure::new(format!(
                "invalid data, expected int, got {}",
                type_name(other)
            ))),
            (ShapeKind::Boolean, Json::Bool(value)) => Ok(Value::Bool(*value)),
            (ShapeKind::Boolean, other) => Err(Failure::new(format!(
                "invalid data, expected bool, got {}",
                type_name(other)
            ))),
            (ShapeKind::Preserved, value) => Ok(Value::Preserved(value)),
            (ShapeKind::Unknown, _) => wrong(
                "invalid type, expected object, array, number, integer, boolean or string, or no type with \
                 x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got ",
            ),
        }
    }
}

fn parse_formatted<'a>(format: Format, text: &'a str) -> Result<Value<'a>, Failure> {
    match format {
        Format::Text => Ok(Value::from(text)),
        Format::Bytes => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map(|bytes| Value::Bytes(bytes.into()))
            .map_err(|problem| Failure::new(format!("Invalid byte formatted string {text}: {problem}"))),
        Format::Duration => go_words::duration::parse_loose(text)
            .map(Value::Duration)
            .ok_or_else(|| Failure::new(format!("Invalid duration {text}: unable to parse {text} as duration"))),
        Format::Date => time::parse_date(text)
            .map(Value::Timestamp)
            .ok_or_else(|| Failure::new(format!("Invalid date formatted string {text}: not a date"))),
        Format::DateTime => time::parse_loose_timestamp(text)
            .map(Value::Timestamp)
            .ok_or_else(|| Failure::new(format!("Invalid date-time formatted string {text}: not a time"))),
    }
}

/// Returns a text's format, type, most letters and shortest form.
fn describe_string(schema: &Json) -> (Format, Type, u64, u64) {
    const LONGEST: u64 = LARGEST_REQUEST - 2;
    match schema.get("format").and_then(Json::as_str) {
        Some("byte") => {
            let most = read_limit(schema, "maxLength").unwrap_or(LONGEST);
            (Format::Bytes, Type::Bytes, most, 2)
        }
        Some("duration") => (Format::Duration, Type::Duration, 32, 3),
        Some("date") => (Format::Date, Type::Timestamp, 12, 12),
        Some("date-time") => (Format::DateTime, Type::Timestamp, 32, 21),
        _ => {
            let longest_of = |values: &Vec<Json>| {
                let lengths = values.iter().filter_map(Json::as_str).map(str::len);
                lengths.max().unwrap_or_default() as u64
            };
            let allowed = schema
                .get("enum")
                .and_then(Json::as_array)
                .filter(|values| !values.is_empty());
            let most = match (read_limit(schema, "maxLength"), allowed) {
                (Some(most), _) => most.saturating_mul(4),
                (None, Some(values)) => longest_of(values),
                (None, None) => LONGEST,
            };
            (Format::Text, Type::String, most, 2)
        }
    }
}

fn has_flag(schema: &Json, name: &str) -> bool {
    schema.get(name) == Some(&Json::Bool(true))
}

fn read_limit(schema: &Json, name: &str) -> Option<u64> {
    let value = schema.get(name)?;
    // A negative limit allows nothing.
    value.as_u64().or_else(|| value.as_i64().map(|_| 0))
}

fn read_texts(list: Option<&Json>) -> Vec<String> {
    let items = list.and_then(Json::as_array).into_iter().flatten();
    items.filter_map(Json::as_str).map(str::to_owned).collect()
}
