//! Access to metadata, and its rules: labels, annotations, owner references, finalizers, and what may never change.

use serde_json::{Map, Value, json};

use super::names;
use crate::catalog::Resource;
use crate::http::{FieldError, FieldErrorKind};

/// Short ways to an object's metadata.
pub(crate) trait ObjectExt {
    fn metadata(&self) -> Option<&Map<String, Value>>;
    fn metadata_mut(&mut self) -> Option<&mut Map<String, Value>>;
    /// A text in metadata; empty if it is not there.
    fn meta_str(&self, key: &str) -> &str;
    fn name(&self) -> &str {
        self.meta_str("name")
    }
    fn namespace(&self) -> &str {
        self.meta_str("namespace")
    }
    fn uid(&self) -> &str {
        self.meta_str("uid")
    }
    fn resource_version(&self) -> &str {
        self.meta_str("resourceVersion")
    }
    fn finalizers(&self) -> Vec<&str>;
    fn is_deleting(&self) -> bool {
        !self.meta_str("deletionTimestamp").is_empty()
    }
    fn set_meta(&mut self, key: &str, value: Value);
    fn remove_meta(&mut self, key: &str) -> Option<Value>;
}

impl ObjectExt for Value {
    fn metadata(&self) -> Option<&Map<String, Value>> {
        self.get("metadata").and_then(Value::as_object)
    }

    fn metadata_mut(&mut self) -> Option<&mut Map<String, Value>> {
        let map = self.as_object_mut()?;
        let metadata = map.entry("metadata").or_insert_with(|| json!({}));
        if !metadata.is_object() {
            *metadata = json!({});
        }
        metadata.as_object_mut()
    }

    fn meta_str(&self, key: &str) -> &str {
        self.metadata()
            .and_then(|metadata| metadata.get(key))
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn finalizers(&self) -> Vec<&str> {
        let list = self
            .metadata()
            .and_then(|metadata| metadata.get("finalizers"))
            .and_then(Value::as_array);
        list.map(|list| list.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default()
    }

    fn set_meta(&mut self, key: &str, value: Value) {
        if let Some(metadata) = self.metadata_mut() {
            metadata.insert(key.to_owned(), value);
        }
    }

    fn remove_meta(&mut self, key: &str) -> Option<Value> {
        self.metadata_mut()?.remove(key)
    }
}

/// The types of metadata's fields: a wrong one is a broken request, not an invalid object.
pub(crate) fn type_error(object: &Value) -> Option<String> {
    let metadata = match object.get("metadata") {
        None | Some(Value::Null) => return None,
        Some(Value::Object(metadata)) => metadata,
        Some(other) => return Some(go_type_error(other, "metadata", "v1.ObjectMeta")),
    };
    for (key, value) in metadata {
        let field = format!("metadata.{key}");
        let wrong = match (key.as_str(), value) {
            (_, Value::Null) => None,
            (
                "name" | "generateName" | "namespace" | "uid" | "resourceVersion" | "selfLink" | "creationTimestamp"
                | "deletionTimestamp",
                Value::String(_),
            ) => None,
            ("name" | "generateName" | "namespace" | "uid" | "resourceVersion" | "selfLink", other) => {
                Some(go_type_error(other, &format!("ObjectMeta.{field}"), "string"))
            }
            ("labels" | "annotations", Value::Object(map)) => map
                .values()
                .find(|value| !value.is_string() && !value.is_null())
                .map(|value| go_type_error(value, &format!("ObjectMeta.{field}"), "string")),
            ("labels" | "annotations", other) => Some(go_type_error(
                other,
                &format!("ObjectMeta.{field}"),
                "map[string]string",
            )),
            ("finalizers" | "ownerReferences" | "managedFields", Value::Array(_)) => None,
            ("finalizers" | "ownerReferences" | "managedFields", other) => {
                Some(go_type_error(other, &format!("ObjectMeta.{field}"), "[]"))
            }
            _ => None,
        };
        if wrong.is_some() {
            return wrong;
        }
    }
    None
}

fn go_type_error(value: &Value, field: &str, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")
}

/// The rules that hold for the metadata of every object.
pub(crate) fn validate(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = object.name();
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        for detail in names::validate_name(resource, name) {
            errors.push(FieldError::invalid("metadata.name", &json!(name), &detail));
        }
    }
    if !resource.namespaced && !object.namespace().is_empty() {
        errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
    }
    if let Some(generation) = object
        .metadata()
        .and_then(|metadata| metadata.get("generation"))
        .and_then(Value::as_i64)
        && generation < 0
    {
        errors.push(FieldError::invalid(
            "metadata.generation",
            &json!(generation),
            "must be greater than or equal to 0",
        ));
    }
    if let Some(Value::Object(labels)) = object.metadata().and_then(|metadata| metadata.get("labels")) {
        validate_labels(labels, "metadata.labels", &mut errors);
    }
    if let Some(Value::Object(annotations)) = object.metadata().and_then(|metadata| metadata.get("annotations")) {
        validate_annotations(annotations, &mut errors);
    }
    if let Some(Value::Array(references)) = object.metadata().and_then(|metadata| metadata.get("ownerReferences")) {
        validate_owners(references, &mut errors);
    }
    for (index, finalizer) in object.finalizers().iter().enumerate() {
        validate_finalizer(finalizer, index, &mut errors);
    }
    errors
}

/// The rules for a map of labels at `path`.
pub(crate) fn validate_labels(labels: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels {
        for detail in names::qualified_name(key) {
            errors.push(FieldError::invalid(path, &json!(key), &detail));
        }
        for detail in names::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(path, value, &detail));
        }
    }
}

/// Kubernetes' limit on all annotations of one object, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

fn validate_annotations(annotations: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let mut total = 0;
    for (key, value) in annotations {
        for detail in names::qualified_name(&key.to_ascii_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &json!(key), &detail));
        }
        total += key.len() + value.as_str().map_or(0, str::len);
    }
    if total > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_LIMIT));
    }
}

fn validate_owners(references: &[Value], errors: &mut Vec<FieldError>) {
    let mut controllers = 0;
    for (index, reference) in references.iter().enumerate() {
        let path = format!("metadata.ownerReferences[{index}]");
        let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
        let api_version = text("apiVersion");
        if api_version.is_empty() || api_version.matches('/').count() > 1 {
            errors.push(FieldError::invalid(
                format!("{path}.apiVersion"),
                &json!(api_version),
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if text(key).is_empty() {
                errors.push(FieldError::invalid(
                    format!("{path}.{key}"),
                    &json!(""),
                    if key == "kind" {
                        "must not be empty"
                    } else {
                        "must not be empty"
                    },
                ));
            }
        }
        if api_version == "v1" && text("kind") == "Event" {
            errors.push(FieldError::invalid(
                path,
                reference,
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if reference.get("controller").and_then(Value::as_bool) == Some(true) {
            controllers += 1;
        }
    }
    if controllers > 1 {
        errors.push(FieldError {
            kind: FieldErrorKind::Invalid,
            field: "metadata.ownerReferences".to_owned(),
            message: format!(
                "Invalid value: {}: Only one reference can have Controller set to true. Found \"true\" in references for {}",
                Value::from(references.to_vec()),
                controllers_of(references)
            ),
        });
    }
}

fn controllers_of(references: &[Value]) -> String {
    let names: Vec<String> = references
        .iter()
        .filter(|reference| reference.get("controller").and_then(Value::as_bool) == Some(true))
        .map(|reference| {
            let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
            format!("{}/{}", text("kind"), text("name"))
        })
        .collect();
    names.join(" and ")
}

fn validate_finalizer(finalizer: &str, index: usize, errors: &mut Vec<FieldError>) {
    let path = format!("metadata.finalizers[{index}]");
    let details = names::qualified_name(finalizer);
    if !details.is_empty() {
        for detail in details {
            errors.push(FieldError::invalid("metadata.finalizers", &json!(finalizer), &detail));
        }
    } else if !finalizer.contains('/') && !matches!(finalizer, "orphan" | "foregroundDeletion" | "kubernetes") {
        errors.push(FieldError::invalid(
            path,
            &json!(finalizer),
            "name is neither a standard finalizer name nor is it fully qualified",
        ));
    }
}

/// What an update may not do to metadata.
pub(crate) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (was, is) = (
            old.metadata().and_then(|m| m.get(key)),
            new.metadata().and_then(|m| m.get(key)),
        );
        if was != is {
            let shown = is.cloned().unwrap_or_else(|| json!(""));
            errors.push(FieldError::invalid(
                format!("metadata.{key}"),
                &shown,
                "field is immutable",
            ));
        }
    }
    if old.is_deleting() {
        let before = old.finalizers();
        let added: Vec<&str> = new
            .finalizers()
            .into_iter()
            .filter(|finalizer| !before.contains(finalizer))
            .collect();
        if !added.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                &format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
                ),
            ));
        }
    }
    errors
}
