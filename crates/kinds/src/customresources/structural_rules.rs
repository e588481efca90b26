//! The rules of structural schemas: every part has a type, and combinations add no structure.

use serde_json::{Value, json};

use super::get_text;
use super::schema_rules::{Segment, extend, list_subschemas};
use crate::schema::{FieldError, FieldPath};

/// The position of a schema: at the root, as the items of a list, or as a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks a version's schema.
pub(super) fn check(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    validate_structure(schema, Level::Root, at, errors);
    validate_completeness(schema, schema, at, errors);
}

fn has_flag(schema: &Value, field: &str) -> bool {
    schema.get(field) == Some(&Value::Bool(true))
}

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

fn validate_structure(schema: &Value, level: Level, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = get_text(schema, "type");
    let items = schema.get("items").filter(|items| items.is_object());
    if kind == "array" && items.is_none() {
        errors.push(FieldError::required(at.child("items"), "must be specified"));
    }
    if let Some(items) = items {
        validate_structure(items, Level::Item, &at.child("items"), errors);
    }
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        validate_structure(property, Level::Field, &at.child("properties").key(name), errors);
    }
    if let Some(additional) = schema.get("additionalProperties") {
        if level == Level::Root {
            errors.push(FieldError::forbidden(
                at.child("additionalProperties"),
                "must not be used at the root",
            ));
        }
        if additional.is_object() {
            validate_structure(additional, Level::Field, &at.child("additionalProperties"), errors);
        }
    }
    for other in [PRESERVE, EMBEDDED] {
        if has_flag(schema, INT_OR_STRING) && has_flag(schema, other) {
            errors.push(FieldError::invalid(
                at.child(other),
                true,
                format!("must be false if {INT_OR_STRING} is true"),
            ));
        }
    }
    value_validations(schema, at, errors);
    validate_types(schema, level, at, errors);
    object_fields(schema, level, at, errors);
}

fn validate_types(schema: &Value, level: Level, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = get_text(schema, "type");
    let path = at.child("type");
    if has_flag(schema, EMBEDDED) && kind != "object" {
        let detail = format!("must be object if {EMBEDDED} is true");
        errors.push(if kind.is_empty() {
            FieldError::required(path, detail)
        } else {
            FieldError::invalid(path, kind, detail)
        });
    } else if kind.is_empty() && !has_flag(schema, INT_OR_STRING) && !has_flag(schema, PRESERVE) {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(path, detail));
    } else if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(path, kind, "must be object at the root"));
    }
    if has_flag(schema, EMBEDDED) && schema.get("additionalProperties").is_some() {
        let detail = format!("must not be used if {EMBEDDED} is set");
        errors.push(FieldError::forbidden(at.child("additionalProperties"), detail));
    }
}

/// Checks the fields that every object has. A schema may contain little about them.
fn object_fields(schema: &Value, level: Level, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let object = level == Level::Root || has_flag(schema, EMBEDDED);
    let properties = schema.get("properties").and_then(Value::as_object);
    let at_properties = at.child("properties");
    if let Some(properties) = properties.filter(|_| object) {
        for field in ["kind", "apiVersion"] {
            if let Some(property) = properties
                .get(field)
                .filter(|property| get_text(property, "type") != "string")
            {
                let at = at_properties.key(field).child("type");
                errors.push(FieldError::invalid(at, get_text(property, "type"), "must be string"));
            }
        }
        if let Some(metadata) = properties.get("metadata") {
            let at = at_properties.key("metadata");
            if get_text(metadata, "type") != "object" {
                errors.push(FieldError::invalid(
                    at.child("type"),
                    get_text(metadata, "type"),
                    "must be object",
                ));
            }
            if level == Level::Root && !restricts_only_names(metadata) {
                let detail =
                    "must not specify anything other than name and generateName, but metadata is implicitly specified";
                errors.push(FieldError::forbidden(at, detail));
            }
        }
    }
    if has_flag(schema, EMBEDDED) && !has_flag(schema, PRESERVE) && properties.is_none_or(serde_json::Map::is_empty) {
        let detail = format!("must not be empty if {EMBEDDED} is true without {PRESERVE}");
        errors.push(FieldError::required(at_properties, detail));
    }
}

fn restricts_only_names(metadata: &Value) -> bool {
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
    for (segments, inner) in list_subschemas(schema) {
        let (nested, skipped) = match segments.first() {
            Some(Segment::Field("anyOf")) => (true, skip_any),
            Some(Segment::Field("allOf")) => (true, skip_first && matches!(segments.get(1), Some(Segment::Index(0)))),
            Some(Segment::Field("oneOf" | "not")) => (true, false),
            _ => (false, false),
        };
        if nested && !skipped {
            self::validate_nested(inner, &extend(at, &segments), errors);
        }
    }
    let pattern = get_text(schema, "pattern");
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
fn validate_nested(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    value_validations(schema, at, errors);
    for (segments, inner) in list_subschemas(schema) {
        if matches!(segments.first(), Some(Segment::Field("items" | "properties"))) {
            validate_nested(inner, &extend(at, &segments), errors);
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
        if has_flag(schema, field) {
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
fn validate_completeness(structure: &Value, schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for (segments, inner) in list_subschemas(schema) {
        let path = extend(at, &segments);
        match segments.first() {
            Some(Segment::Field("allOf" | "anyOf" | "oneOf" | "not")) => {
                validate_mentioned(structure, inner, &path, at, errors)
            }
            _ => {
                let below =
                    list_subschemas(structure).find(|(other, _)| extend(at, other).to_string() == path.to_string());
                if let Some((_, below)) = below {
                    validate_completeness(below, inner, &path, errors);
                }
            }
        }
    }
}

fn validate_mentioned(
    structure: &Value,
    combination: &Value,
    at: &FieldPath,
    structure_at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    for (segments, inner) in list_subschemas(combination) {
        match segments.as_slice() {
            [Segment::Field("properties"), Segment::Key(name)] => {
                let at_structure = structure_at.child("properties").key(name);
                match structure.get("properties").and_then(|properties| properties.get(*name)) {
                    Some(described) => {
                        validate_mentioned(described, inner, &extend(at, &segments), &at_structure, errors)
                    }
                    None => {
                        let detail = format!("because it is defined in {}", extend(at, &segments));
                        errors.push(FieldError::required(at_structure, detail));
                    }
                }
            }
            [Segment::Field("items")] => {
                let at_structure = structure_at.child("items");
                match structure.get("items") {
                    Some(described) => {
                        validate_mentioned(described, inner, &extend(at, &segments), &at_structure, errors)
                    }
                    None => {
                        let detail = format!("because it is defined in {}", extend(at, &segments));
                        errors.push(FieldError::required(at_structure, detail));
                    }
                }
            }
            [Segment::Field("allOf" | "anyOf" | "oneOf" | "not"), ..] => {
                validate_mentioned(structure, inner, &extend(at, &segments), structure_at, errors);
            }
            _ => {}
        }
    }
}
