//! The rules of structural schemas: every part has a type, and combinations add no structure.

use serde_json::{Value, json};

use super::schema_rules::{Segment, extend, subschemas};
use super::text;
use crate::schema::{FieldError, FieldPath};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks a version's schema.
pub(super) fn check(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    structure(schema, Level::Root, at, errors);
    complete(schema, schema, at, errors);
}

fn flag(schema: &Value, field: &str) -> bool {
    schema.get(field) == Some(&Value::Bool(true))
}

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

fn structure(schema: &Value, level: Level, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let items = schema.get("items").filter(|items| items.is_object());
    if kind == "array" && items.is_none() {
        errors.push(FieldError::required(at.child("items"), "must be specified"));
    }
    if let Some(items) = items {
        structure(items, Level::Item, &at.child("items"), errors);
    }
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        structure(property, Level::Field, &at.child("properties").key(name), errors);
    }
    if let Some(additional) = schema.get("additionalProperties") {
        if level == Level::Root {
            errors.push(FieldError::forbidden(
                at.child("additionalProperties"),
                "must not be used at the root",
            ));
        }
        if additional.is_object() {
            structure(additional, Level::Field, &at.child("additionalProperties"), errors);
        }
    }
    for other in [PRESERVE, EMBEDDED] {
        if flag(schema, INT_OR_STRING) && flag(schema, other) {
            errors.push(FieldError::invalid(
                at.child(other),
                true,
                format!("must be false if {INT_OR_STRING} is true"),
            ));
        }
    }
    value_validations(schema, at, errors);
    types(schema, level, at, errors);
    object_fields(schema, level, at, errors);
}

fn types(schema: &Value, level: Level, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let path = at.child("type");
    if flag(schema, EMBEDDED) && kind != "object" {
        let detail = format!("must be object if {EMBEDDED} is true");
        errors.push(if kind.is_empty() {
            FieldError::required(path, detail)
        } else {
            FieldError::invalid(path, kind, detail)
        });
    } else if kind.is_empty() && !flag(schema, INT_OR_STRING) && !flag(schema, PRESERVE) {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(path, detail));
    } else if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(path, kind, "must be object at the root"));
    }
    if flag(schema, EMBEDDED) && schema.get("additionalProperties").is_some() {
        let detail = format!("must not be used if {EMBEDDED} is set");
        errors.push(FieldError::forbidden(at.child("additionalProperties"), detail));
    }
}

/// Checks the fields that every object has. A schema may contain little about them.
fn object_fields(schema: &Value, level: Level, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let object = level == Level::Root || flag(schema, EMBEDDED);
    let properties = schema.get("properties").and_then(Value::as_object);
    let at_properties = at.child("properties");
    if let Some(properties) = properties.filter(|_| object) {
        for field in ["kind", "apiVersion"] {
            if let Some(property) = properties
                .get(field)
                .filter(|property| text(property, "type") != "string")
            {
                let at = at_properties.key(field).child("type");
                errors.push(FieldError::invalid(at, text(property, "type"), "must be string"));
            }
        }
        if let Some(metadata) = properties.get("metadata") {
            let at = at_properties.key("metadata");
            if text(metadata, "type") != "object" {
                errors.push(FieldError::invalid(
                    at.child("type"),
                    text(metadata, "type"),
                    "must be object",
                ));
            }
            if level == Level::Root && !says_only_names(metadata) {
                let detail =
                    "must not specify anything other than name and generateName, but metadata is implicitly specified";
                errors.push(FieldError::forbidden(at, detail));
            }
        }
    }
    if flag(schema, EMBEDDED) && !flag(schema, PRESERVE) && properties.is_none_or(serde_json::Map::is_empty) {
        let detail = format!("must not be empty if {EMBEDDED} is true without {PRESERVE}");
        errors.push(FieldError::required(at_properties, detail));
    }
}

fn says_only_names(metadata: &Value) -> bool {
    metadata
        .as_object()
        .into_iter()
        .flatten()
        .all(|(field, value)| match field.as_str() {
            "type" | "default" => true,
            "properties" => value
                .as_object()
                .is_none_or(|map| map.keys().all(|name| matches!(name.as_str(), "name" | "generateName"))),
            _ => false,
        })
}

/// Checks for one of the two explicit forms of the int-or-string pattern.
fn spells_int_or_string(schemas: Option<&Value>) -> bool {
    schemas == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}

fn value_validations(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let skip_any = spells_int_or_string(schema.get("anyOf"));
    let skip_first = spells_int_or_string(schema.pointer("/allOf/0/anyOf"));
    for (segments, inner) in subschemas(schema) {
        let (nested, skipped) = match segments.first() {
            Some(Segment::Field("anyOf")) => (true, skip_any),
            Some(Segment::Field("allOf")) => (true, skip_first && matches!(segments.get(1), Some(Segment::Index(0)))),
            Some(Segment::Field("oneOf" | "not")) => (true, false),
            _ => (false, false),
        };
        if nested && !skipped {
            self::nested(inner, &extend(at, &segments), errors);
        }
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(reason) = kubernetes_cel::pattern::compile(pattern)
    {
        errors.push(FieldError::invalid(
            at.child("pattern"),
            pattern,
            format!("must be a valid regular expression, but isn't: error parsing regexp: {reason}"),
        ));
    }
}

/// Checks that a schema inside a combination only restricts values and adds no structure.
fn nested(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    value_validations(schema, at, errors);
    for (segments, inner) in subschemas(schema) {
        if matches!(segments.first(), Some(Segment::Field("items" | "properties"))) {
            nested(inner, &extend(at, &segments), errors);
        }
    }
    let present = |field: &str| schema.get(field).is_some_and(|value| !value.is_null());
    let mut forbid = |field: &str, detail: &str| errors.push(FieldError::forbidden(at.child(field), detail));
    if present("type") {
        forbid("type", "must be empty to be structural");
    }
    for field in [
        "additionalProperties",
        "default",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ] {
        if present(field) {
            forbid(field, "must be undefined to be structural");
        }
    }
    for field in [
        "title",
        "description",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-validations",
    ] {
        if present(field) {
            forbid(field, "must be empty to be structural");
        }
    }
    for field in ["nullable", PRESERVE, EMBEDDED, INT_OR_STRING] {
        if flag(schema, field) {
            forbid(field, "must be false to be structural");
        }
    }
    if schema
        .get("properties")
        .and_then(|properties| properties.get("metadata"))
        .is_some()
    {
        errors.push(FieldError::forbidden(
            at.child("properties").key("metadata"),
            "must not be specified in a nested context",
        ));
    }
}

/// Checks that the structure itself describes every property and item in a combination.
fn complete(structure: &Value, schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for (segments, inner) in subschemas(schema) {
        let path = extend(at, &segments);
        match segments.first() {
            Some(Segment::Field("allOf" | "anyOf" | "oneOf" | "not")) => mentioned(structure, inner, &path, at, errors),
            _ => {
                let below = subschemas(structure).find(|(other, _)| extend(at, other).to_string() == path.to_string());
                if let Some((_, below)) = below {
                    complete(below, inner, &path, errors);
                }
            }
        }
    }
}

fn mentioned(
    structure: &Value,
    combination: &Value,
    at: &FieldPath,
    structure_at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    for (segments, inner) in subschemas(combination) {
        match segments.as_slice() {
            [Segment::Field("properties"), Segment::Key(name)] => {
                let at_structure = structure_at.child("properties").key(name);
                match structure.get("properties").and_then(|properties| properties.get(*name)) {
                    Some(described) => mentioned(described, inner, &extend(at, &segments), &at_structure, errors),
                    None => {
                        let detail = format!("because it is defined in {}", extend(at, &segments));
                        errors.push(FieldError::required(at_structure, detail));
                    }
                }
            }
            [Segment::Field("items")] => {
                let at_structure = structure_at.child("items");
                match structure.get("items") {
                    Some(described) => mentioned(described, inner, &extend(at, &segments), &at_structure, errors),
                    None => {
                        let detail = format!("because it is defined in {}", extend(at, &segments));
                        errors.push(FieldError::required(at_structure, detail));
                    }
                }
            }
            [Segment::Field("allOf" | "anyOf" | "oneOf" | "not"), ..] => {
                mentioned(structure, inner, &extend(at, &segments), structure_at, errors);
            }
            _ => {}
        }
    }
}
