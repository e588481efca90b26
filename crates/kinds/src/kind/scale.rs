//! The Scale of an object: a number of the object, shown as an object of its own. This module knows the place of that number in each kind,
//! but not its owners.

use serde_json::{Value, json};

use super::{Origin, Resource, ScalePaths};
use crate::object::ObjectExt as _;

impl Resource {
    /// Returns the places of the values that a Scale shows.
    #[must_use]
    pub fn scale_paths(&self) -> ScalePaths {
        if let Origin::Custom(custom) = &self.origin
            && let Some(scale) = &custom.scale
        {
            return scale.clone();
        }
        ScalePaths {
            spec: "/spec/replicas".to_owned(),
            status: "/status/replicas".to_owned(),
            selector: None,
        }
    }

    /// Returns the Scale of an object.
    #[must_use]
    pub fn scale_of(&self, object: &Value) -> Value {
        let paths = self.scale_paths();
        let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or_default();
        let mut spec = json!({});
        if let Some(map) = spec.as_object_mut()
            && let Some(replicas) = object
                .pointer(&paths.spec)
                .and_then(Value::as_i64)
                .filter(|replicas| *replicas != 0)
        {
            map.insert("replicas".to_owned(), json!(replicas));
        }
        let mut status = json!({"replicas": number(&paths.status)});
        let selector = match &paths.selector {
            Some(path) => object.pointer(path).and_then(Value::as_str).map(str::to_owned),
            None if self.is_custom() => None,
            None => object.pointer("/spec/selector").map(selector_text),
        };
        if let (Some(map), Some(selector)) = (status.as_object_mut(), selector.filter(|selector| !selector.is_empty()))
        {
            map.insert("selector".to_owned(), Value::from(selector));
        }
        let mut metadata = json!({});
        for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let (Some(map), Some(value)) = (
                metadata.as_object_mut(),
                object.metadata().and_then(|metadata| metadata.get(key)),
            ) {
                map.insert(key.to_owned(), value.clone());
            }
        }
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
    }

    /// Writes the number of a Scale into the object.
    pub fn set_replicas(&self, object: &mut Value, replicas: Value) {
        set(object, &self.scale_paths().spec, replicas);
    }
}

/// Sets a value at a pointer, making the objects on the way.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut current = object;
    let parts: Vec<&str> = pointer.split('/').filter(|part| !part.is_empty()).collect();
    let Some((last, parents)) = parts.split_last() else {
        return;
    };
    for part in parents {
        if !current.is_object() {
            *current = json!({});
        }
        let Some(map) = current.as_object_mut() else { return };
        current = map.entry(*part).or_insert_with(|| json!({}));
    }
    if !current.is_object() {
        *current = json!({});
    }
    if let Some(map) = current.as_object_mut() {
        map.insert((*last).to_owned(), value);
    }
}

/// Returns a selector in the form that label selectors have in URLs.
#[must_use]
pub fn selector_text(selector: &Value) -> String {
    let labels = match selector.get("matchLabels") {
        Some(labels) => Some(labels),
        None if selector.get("matchExpressions").is_none() => Some(selector),
        None => None,
    };
    let mut terms: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
        let values: Vec<&str> = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        match expression.get("operator").and_then(Value::as_str) {
            Some("In") => terms.push(format!("{key} in ({})", values.join(","))),
            Some("NotIn") => terms.push(format!("{key} notin ({})", values.join(","))),
            Some("Exists") => terms.push(key.to_owned()),
            Some("DoesNotExist") => terms.push(format!("!{key}")),
            _ => {}
        }
    }
    terms.join(",")
}
