//! What is known of a kind's shape, as the registry asks for it: one door to the schemas of built-in and custom kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::catalog::Resource;
use crate::http::{ApiError, FieldError};
use crate::registry::Operation;
use crate::routes::Include;

/// Fills in the kind's defaults.
pub(crate) fn set_defaults(_resource: &Resource, _object: &mut Value) {}

/// What is wrong with an object that is about to be created.
pub(crate) fn validate(_resource: &Resource, _object: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// What is wrong with an object that is about to replace another.
pub(crate) fn validate_update(_op: &Operation, _live: &Value, _new: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// Why the kind's types can't hold this object, if they can't.
pub(crate) fn type_error(_op: &Operation, _object: &Value) -> Option<String> {
    None
}

/// Drops unknown fields and names them.
pub(crate) fn prune_unknown(_op: &Operation, _object: &mut Value) -> Vec<String> {
    Vec::new()
}

/// Merges a patch whose lists merge by key.
pub(crate) fn strategic_merge(_resource: &Resource, live: &Value, patch: &Value) -> Result<Value, ApiError> {
    let mut result = live.clone();
    crate::registry::merge(&mut result, patch);
    Ok(result)
}

/// The JSON form of a protobuf body.
pub(crate) fn decode_protobuf(_body: &[u8]) -> Result<Value, String> {
    Err("protobuf bodies are not read yet".to_owned())
}

/// What is done to every object that is read: custom resources get the defaults of today's schema.
pub(crate) fn on_read(_resource: &Resource, _object: &mut Value) {}

/// Prepares a CustomResourceDefinition that is about to be created.
pub(crate) fn prepare_definition(_object: &mut Value) {}

/// The table of some objects.
pub(crate) fn table(resource: &Resource, objects: &[Value], include: Include, now: Timestamp) -> Value {
    let _ = (resource, now);
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut row = json!({"cells": [object.pointer("/metadata/name")]});
            let embedded = match include {
                Include::None => None,
                Include::Object => Some(object.clone()),
                Include::Metadata => Some(json!({
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.get("metadata"),
                })),
            };
            if let (Some(map), Some(embedded)) = (row.as_object_mut(), embedded) {
                map.insert("object".to_owned(), embedded);
            }
            row
        })
        .collect();
    let columns = json!([{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}]);
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": columns, "rows": rows})
}
