//! Validation of schemas: OpenAPI features, list and map types, defaults, and the form of validation rules.

use serde_json::Value;

use super::structural::Node;
use super::value_path::ValuePath;
use super::{defaulting, field_paths, get_text, pruning, values};
use crate::schema::{FieldError, FieldErrorKind, FieldPath};

/// Fields that are invalid in schemas of custom resources. All have one error text.
const UNSUPPORTED: [&str; 6] = [
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
];

/// The only fields at the root of a schema whose version has a status, by their JSON names.
const WITH_STATUS: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// The list in the form of the real server.
const WITH_STATUS_WORDS: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]";

/// Checks the root of a schema whose version has a status subresource.
pub(super) fn root_with_status(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = get_text(schema, "type");
    if !kind.is_empty() && kind != "object" {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(at.child("type"), kind, detail));
    }
    let other = schema
        .as_object()
        .into_iter()
        .flatten()
        .find(|(field, _)| !WITH_STATUS.contains(&field.as_str()));
    if other.is_some() {
        let detail = format!(
            "only {WITH_STATUS_WORDS} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        errors.push(FieldError::invalid(at, schema.clone(), detail));
    }
}

/// Checks whether the schema has only the parts of a structural schema. Otherwise the structural rules do not apply.
pub(super) fn is_parsable(schema: &Value) -> bool {
    let Some(map) = schema.as_object() else { return true };
    let fine =
        !UNSUPPORTED.iter().any(|field| map.contains_key(*field)) && !schema.get("items").is_some_and(Value::is_array);
    fine && list_subschemas(schema).all(|(_, inner)| is_parsable(inner))
}

/// Returns the schemas directly below a schema, with their paths relative to it.
pub(super) fn list_subschemas(schema: &Value) -> impl Iterator<Item = (Vec<Segment<'_>>, &Value)> {
    let maps = ["properties"].into_iter().flat_map(|field| {
        schema
            .get(field)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(move |(key, inner)| (vec![Segment::Field(field), Segment::Key(key)], inner))
    });
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|field| {
        let items = schema
            .get(field)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate();
        items.map(move |(index, inner)| (vec![Segment::Field(field), Segment::Index(index)], inner))
    });
    let single = ["items", "additionalProperties", "not"]
        .into_iter()
        .filter_map(|field| {
            let inner = schema.get(field).filter(|inner| inner.is_object())?;
            Some((vec![Segment::Field(field)], inner))
        });
    maps.chain(lists).chain(single)
}

/// A step of a path within a schema.
pub(super) enum Segment<'a> {
    Field(&'static str),
    Key(&'a str),
    Index(usize),
}

/// Returns a path with steps behind it.
pub(super) fn extend(path: &FieldPath, segments: &[Segment<'_>]) -> FieldPath {
    segments.iter().fold(path.clone(), |path, segment| match segment {
        Segment::Field(field) => path.child(field),
        Segment::Key(key) => path.key(key),
        Segment::Index(index) => path.index(*index),
    })
}

/// Checks a schema and all below it.
pub(super) fn check(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    validate_features(schema, at, errors);
    lists_and_maps(schema, at, errors);
    keys_have_values(schema, at, errors);
    validate_rules(schema, at, errors);
    for (segments, inner) in list_subschemas(schema) {
        check(inner, &extend(at, &segments), errors);
    }
}

fn validate_features(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let kind = get_text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(at.child("type"), kind, &TYPES));
    }
    for field in UNSUPPORTED {
        if schema.get(field).is_some_and(|value| !value.is_null()) {
            errors.push(FieldError::forbidden(
                at.child(field),
                format!("{field} is not supported"),
            ));
        }
    }
    if kind == "null" {
        errors.push(FieldError::forbidden(
            at.child("type"),
            "type cannot be set to null, use nullable as an alternative",
        ));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        errors.push(FieldError::forbidden(
            at.child("items"),
            "items must be a schema object and not an array",
        ));
    }
    if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(at.child("uniqueItems"), detail));
    }
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .is_some_and(|map| !map.is_empty());
    if properties
        && schema
            .get("additionalProperties")
            .is_some_and(|other| *other != Value::Bool(true))
    {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(at.child("additionalProperties"), detail));
    }
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if schema.get(preserve) == Some(&Value::Bool(false)) {
        errors.push(FieldError::invalid(
            at.child(preserve),
            false,
            "must be true or undefined",
        ));
    }
}

fn must_be(schema: &Value, wanted: &str, because: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = get_text(schema, "type");
    let detail = format!("must be {wanted} if {because} is specified");
    if kind.is_empty() {
        errors.push(FieldError::required(at.child("type"), detail));
    } else if kind != wanted {
        errors.push(FieldError::invalid(at.child("type"), kind, detail));
    }
}

fn lists_and_maps(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let (list, map, keys) = (
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-list-map-keys",
    );
    let items = schema.get("items").filter(|items| items.is_object());
    if let Some(map_type) = schema.get(map).and_then(Value::as_str) {
        must_be(schema, "object", map, at, errors);
        if !matches!(map_type, "atomic" | "granular") {
            errors.push(FieldError::not_supported(
                at.child(map),
                map_type,
                &["atomic", "granular"],
            ));
        }
    }
    let list_type = schema.get(list).and_then(Value::as_str);
    let listed = schema
        .get(keys)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    if let Some(list_type) = list_type {
        must_be(schema, "array", list, at, errors);
        if list_type == "set" && get_text(schema, "type") == "array" {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let (kind, field) = match items.map(|items| get_text(items, "type")) {
                Some("array") => ("array", list),
                Some("object") => ("object", map),
                _ => ("", ""),
            };
            let found = items.and_then(|items| items.get(field)).and_then(Value::as_str);
            let atomic = found == Some("atomic") || (kind == "array" && found.is_none());
            if !kind.is_empty() && !atomic {
                // The real server shows the list type in both cases.
                let shown = items.and_then(|items| items.get(list)).cloned().unwrap_or_default();
                errors.push(FieldError::invalid(at.child("items").child(field), shown, detail));
            }
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            errors.push(FieldError::not_supported(
                at.child(list),
                list_type,
                &["atomic", "set", "map"],
            ));
        }
    }
    if !listed.is_empty() && list_type != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.push(FieldError::required(at.child(list), detail)),
            Some(other) => errors.push(FieldError::invalid(at.child(list), other, detail)),
        }
    }
    if list_type != Some("map") {
        return;
    }
    if listed.is_empty() {
        errors.push(FieldError::required(
            at.child(keys),
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    let Some(items) = items else {
        errors.push(FieldError::required(
            at.child("items"),
            "must have a schema if x-kubernetes-list-type is map",
        ));
        return;
    };
    let item_type = get_text(items, "type");
    if item_type != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(at.child("items").child("type"), item_type, detail));
        return;
    }
    for (index, key) in listed.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        match items.get("properties").and_then(|properties| properties.get(name)) {
            Some(property) if matches!(get_text(property, "type"), "array" | "object") => {
                let at = at.child("items").child("properties").key(name).child("type");
                // kube-apiserver reports the type of `items` here, not the type of the key's property.
                errors.push(FieldError::invalid(
                    at,
                    item_type,
                    "must be a scalar type if parent array's x-kubernetes-list-type is map",
                ));
            }
            Some(_) => {}
            None => errors.push(FieldError::invalid(
                at.child(keys),
                listed.to_vec(),
                "entries must all be names of item properties",
            )),
        }
        if listed.get(..index).is_some_and(|before| before.contains(key)) {
            errors.push(FieldError::invalid(
                at.child(keys),
                listed.to_vec(),
                "must not contain duplicate entries",
            ));
        }
    }
}

/// Checks that the keys of a list map are required or have a default, and that neither keys nor items are nullable.
fn keys_have_values(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let list_type = get_text(schema, "x-kubernetes-list-type");
    let Some(items) = schema
        .get("items")
        .filter(|items| items.is_object() && matches!(list_type, "map" | "set"))
    else {
        return;
    };
    let at = at.child("items");
    if items.get("nullable") == Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden(
            at.child("nullable"),
            "cannot be nullable when x-kubernetes-list-type is ".to_owned() + list_type,
        ));
    }
    if list_type != "map" {
        return;
    }
    let required = items
        .get("required")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    for key in schema
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let name = key.as_str().unwrap_or_default();
        let Some(property) = items.get("properties").and_then(|properties| properties.get(name)) else {
            continue;
        };
        let at = at.child("properties").key(name);
        if !required.contains(key) && property.get("default").is_none() {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(at.child("default"), detail));
        }
        if property.get("nullable") == Some(&Value::Bool(true)) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(at.child("nullable"), detail));
        }
    }
}

/// Checks the form of validation rules. [`super::rule_checks`] checks their expressions.
fn validate_rules(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "x-kubernetes-validations";
    const LINE_ENDS: [char; 2] = ['\n', '\r'];
    const REASONS: [&str; 4] = [
        "FieldValueDuplicate",
        "FieldValueForbidden",
        "FieldValueInvalid",
        "FieldValueRequired",
    ];
    for (index, rule) in schema
        .get(FIELD)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let at = at.child(FIELD).index(index);
        let (expression, message) = (get_text(rule, "rule").trim(), get_text(rule, "message"));
        if expression.is_empty() {
            errors.push(FieldError::required(at.child("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(FieldError::invalid(
                at.child("message"),
                message,
                "must be non-empty if specified",
            ));
        } else if message.trim().contains(LINE_ENDS) {
            errors.push(FieldError::invalid(
                at.child("message"),
                message,
                "must not contain line breaks",
            ));
        } else if expression.contains(LINE_ENDS) && message.is_empty() {
            errors.push(FieldError::required(
                at.child("message"),
                "message must be specified if rule contains line breaks",
            ));
        }
        let computed = get_text(rule, "messageExpression");
        if !computed.is_empty() && computed.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(at.child("messageExpression"), detail));
        }
        let reason = rule.get("reason").and_then(Value::as_str);
        if let Some(reason) = reason.filter(|reason| !REASONS.contains(reason)) {
            errors.push(FieldError::not_supported(at.child("reason"), reason, &REASONS));
        }
        let (path, at) = (get_text(rule, "fieldPath"), at.child("fieldPath"));
        if !path.is_empty() && path.trim().is_empty() {
            errors.push(FieldError::invalid(&at, path, "must be non-empty if specified"));
        }
        if path.contains(LINE_ENDS) {
            errors.push(FieldError::invalid(&at, path, "must not contain line breaks"));
        }
        if !path.is_empty() && field_paths::normalize_path(path, schema).is_none() {
            errors.push(FieldError::invalid(&at, path, "must be a valid path"));
        }
    }
}

/// Checks that defaults satisfy their own schema, and have no unknown fields.
pub(super) fn validate_defaults(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        let at = at.child("default");
        let node = Node::parse(schema);
        let mut filled = default.clone();
        if let Value::Object(object) = &mut filled {
            let mut unknown = Vec::new();
            pruning::prune_object(&node, object, &mut unknown);
            if !unknown.is_empty() {
                errors.push(FieldError::invalid(at, default.clone(), "must not have unknown fields"));
                return;
            }
            defaulting::default_object(&node, object);
        }
        let mut found = Vec::new();
        values::check(&node, &filled, None, &ValuePath::ROOT, &mut found);
        errors.extend(found.into_iter().map(|mut error| {
            error.field = match (error.kind, error.field.as_str()) {
                (_, "" | "<nil>") => at.to_string(),
                (FieldErrorKind::Required, field) | (_, field) => at.child(field).to_string(),
            };
            error
        }));
    }
    for (segments, inner) in list_subschemas(schema) {
        validate_defaults(inner, &extend(at, &segments), errors);
    }
}
