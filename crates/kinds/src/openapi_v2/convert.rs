//! Conversion of schemas and operations from version 3 to version 2.

use serde_json::{Map, Value, json};

const REFERENCE: &str = "#/components/schemas/";
const KINDS: &str = "x-kubernetes-group-version-kind";

/// Adds a document's paths and definitions.
pub(super) fn add_document(document: &Value, paths: &mut Map<String, Value>, definitions: &mut Map<String, Value>) {
    for (name, item) in list_entries(document, "/paths") {
        paths.entry(name).or_insert_with(|| path_item(item));
    }
    for (name, given) in list_entries(document, "/components/schemas") {
        match definitions.get_mut(name) {
            None => {
                definitions.insert(name.clone(), convert_schema(given));
            }
            // Each group's document lists only its own kinds in a definition that all groups share.
            Some(known) => add_kinds(known, given),
        }
    }
}

fn list_entries<'a>(document: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    document
        .pointer(pointer)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn add_kinds(known: &mut Value, given: &Value) {
    let (Some(Value::Array(all)), Some(Value::Array(more))) = (known.get_mut(KINDS), given.get(KINDS)) else {
        return;
    };
    for kind in more {
        if !all.contains(kind) {
            all.push(kind.clone());
        }
    }
}

fn convert_reference(text: &Value) -> Value {
    match text.as_str().and_then(|text| text.strip_prefix(REFERENCE)) {
        Some(name) => Value::from(format!("#/definitions/{name}")),
        None => text.clone(),
    }
}

/// Converts a schema and drops the parts that version 2 can't express: alternatives, nulls, and defaults beside references.
fn convert_schema(given: &Value) -> Value {
    let Some(given) = given.as_object() else {
        return given.clone();
    };
    let is_set = |key: &str| given.get(key).and_then(Value::as_bool) == Some(true);
    let is_open = is_set("x-kubernetes-preserve-unknown-fields") || is_set("nullable");
    let mut schema_of = Map::new();
    for (key, value) in given {
        let converted = match key.as_str() {
            "$ref" => convert_reference(value),
            "allOf" => match value.as_array().map(Vec::as_slice) {
                // A reference with a description is wrapped in version 3.
                Some([Value::Object(only)]) if only.len() == 1 && only.contains_key("$ref") => {
                    let target = only.get("$ref").map(convert_reference).unwrap_or_default();
                    schema_of.insert("$ref".to_owned(), target);
                    continue;
                }
                _ => convert_schemas(value),
            },
            "oneOf" | "anyOf" | "not" | "nullable" | "default" => continue,
            "type" if is_set("nullable") || is_set("x-kubernetes-int-or-string") => continue,
            "properties" | "items" if is_open => continue,
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                Value::Object(
                    properties
                        .map(|(name, value)| (name.clone(), convert_schema(value)))
                        .collect(),
                )
            }
            "items" | "additionalProperties" => convert_schema(value),
            _ => value.clone(),
        };
        schema_of.insert(key.clone(), converted);
    }
    if given.contains_key("oneOf") && given.contains_key("format") {
        schema_of.entry("type").or_insert_with(|| json!("string"));
    } else if given.contains_key("oneOf") && !schema_of.contains_key("type") && !schema_of.contains_key("properties") {
        schema_of.insert("type".to_owned(), json!("string"));
    }
    Value::Object(schema_of)
}

fn convert_schemas(list: &Value) -> Value {
    list.as_array().into_iter().flatten().map(convert_schema).collect()
}

fn path_item(item: &Value) -> Value {
    let mut converted = Map::new();
    for (key, value) in item.as_object().into_iter().flatten() {
        let value = match key.as_str() {
            "get" | "put" | "post" | "delete" | "options" | "head" | "patch" => convert_operation(value),
            "parameters" => convert_parameters(value),
            key if key.starts_with("x-") => value.clone(),
            _ => continue,
        };
        converted.insert(key.clone(), value);
    }
    Value::Object(converted)
}

fn convert_parameters(list: &Value) -> Value {
    list.as_array().into_iter().flatten().map(convert_parameter).collect()
}

/// Converts a parameter. In version 3 its schema contains facts that version 2 puts into the parameter itself.
fn convert_parameter(given: &Value) -> Value {
    let mut converted = Map::new();
    for (key, value) in given.as_object().into_iter().flatten() {
        if key == "schema" {
            let schema = convert_schema(value);
            converted.extend(schema.as_object().cloned().unwrap_or_default());
        } else {
            converted.insert(key.clone(), value.clone());
        }
    }
    Value::Object(converted)
}

fn find_content(given: &Value) -> Option<&Map<String, Value>> {
    given.get("content").and_then(Value::as_object)
}

fn content_schema(given: &Value) -> Option<Value> {
    let first = find_content(given)?.values().next()?;
    first.get("schema").map(convert_schema)
}

fn media_types(given: Option<&Map<String, Value>>) -> Option<Value> {
    let types: Vec<&str> = given?.keys().map(String::as_str).collect();
    (!types.is_empty()).then(|| json!(types))
}

fn convert_operation(given: &Value) -> Value {
    let mut converted = Map::new();
    for (key, value) in given.as_object().into_iter().flatten() {
        if matches!(
            key.as_str(),
            "tags" | "description" | "summary" | "operationId" | "deprecated"
        ) || key.starts_with("x-")
        {
            converted.insert(key.clone(), value.clone());
        }
    }
    converted.insert("schemes".to_owned(), json!(["https"]));
    let mut list = given
        .get("parameters")
        .map(convert_parameters)
        .unwrap_or_else(|| json!([]));
    if let Some(body) = given.get("requestBody") {
        let consumes = media_types(find_content(body)).unwrap_or_else(|| json!(["*/*"]));
        converted.insert("consumes".to_owned(), consumes);
        let mut parameter = json!({"name": "body", "in": "body"});
        if let Some(parameter) = parameter.as_object_mut() {
            if let Some(schema) = content_schema(body) {
                parameter.insert("schema".to_owned(), schema);
            }
            if let Some(required) = body.get("required") {
                parameter.insert("required".to_owned(), required.clone());
            }
        }
        if let Some(list) = list.as_array_mut() {
            list.insert(0, parameter);
        }
    } else if given.get("x-kubernetes-action").is_some() {
        converted.insert("consumes".to_owned(), json!(["*/*"]));
    }
    if list.as_array().is_some_and(|list| !list.is_empty()) {
        converted.insert("parameters".to_owned(), list);
    }
    let mut responses = Map::new();
    for (code, response) in list_entries(given, "/responses") {
        if let Some(produces) = media_types(find_content(response)) {
            // For an operation of the discovery API, both lists contain the media types of its answers.
            converted.entry("consumes").or_insert_with(|| produces.clone());
            converted.entry("produces").or_insert(produces);
        }
        let mut answer = json!({"description": response.get("description").cloned().unwrap_or_default()});
        if let (Some(schema), Some(answer)) = (content_schema(response), answer.as_object_mut()) {
            answer.insert("schema".to_owned(), schema);
        }
        responses.insert(code.clone(), answer);
    }
    converted.insert("responses".to_owned(), Value::Object(responses));
    Value::Object(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_converted_to_version_2() {
        for (given, expect) in [
            (
                json!({"allOf": [{"$ref": "#/components/schemas/a.B"}], "default": {}, "description": "text"}),
                json!({"$ref": "#/definitions/a.B", "description": "text"}),
            ),
            (
                json!({"type": "array", "items": {"type": "string", "default": ""}}),
                json!({"type": "array", "items": {"type": "string"}}),
            ),
            (
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
                json!({"format": "int-or-string", "type": "string"}),
            ),
            (
                json!({"type": "object", "properties": {"default": {"type": "string", "nullable": true}}}),
                json!({"type": "object", "properties": {"default": {}}}),
            ),
        ] {
            assert_eq!(convert_schema(&given), expect, "{given}");
        }
    }
}
