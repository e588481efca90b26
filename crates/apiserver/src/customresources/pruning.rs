//! Dropping what a structural schema does not know, and naming it for strict decoding.

use serde_json::{Map, Value};

use super::structural::{Additional, Node};
use crate::schema::BuiltinSchemas;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Prunes an object's fields except for its own type and metadata; names what went.
pub(super) fn prune_object(root: &Node, object: &mut Map<String, Value>, unknown: &mut Vec<String>) {
    let kept: Vec<(String, Value)> = ["apiVersion", "kind", "metadata"]
        .iter()
        .filter_map(|field| object.remove_entry(*field))
        .collect();
    let mut later = Vec::new();
    fields(root, object, "", unknown, &mut later);
    // What embedded objects' metadata does not have is told last.
    unknown.append(&mut later);
    object.extend(kept);
}

fn fields(
    node: &Node,
    object: &mut Map<String, Value>,
    path: &str,
    unknown: &mut Vec<String>,
    later: &mut Vec<String>,
) {
    let mut dropped = Vec::new();
    for (name, value) in object.iter_mut() {
        let at = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        if let Some(property) = node.properties.get(name) {
            prune(property, value, &at, unknown, later);
        } else if let Some(Additional::Schema(inner)) = &node.additional {
            prune(inner, value, &at, unknown, later);
        } else if node.additional.is_none() && !node.preserve {
            unknown.push(format!("unknown field \"{at}\""));
            dropped.push(name.clone());
        }
    }
    object.retain(|name, _| !dropped.contains(name));
}

fn prune(node: &Node, value: &mut Value, path: &str, unknown: &mut Vec<String>, later: &mut Vec<String>) {
    match value {
        Value::Object(object) if node.embedded => {
            let kept: Vec<(String, Value)> = ["apiVersion", "kind", "metadata"]
                .iter()
                .filter_map(|field| object.remove_entry(*field))
                .collect();
            fields(node, object, path, unknown, later);
            for (name, mut value) in kept {
                if name == "metadata" {
                    embedded_metadata(&mut value, &format!("{path}.metadata"), later);
                }
                object.insert(name, value);
            }
        }
        Value::Object(object) => fields(node, object, path, unknown, later),
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for (index, item) in items.iter_mut().enumerate() {
                    prune(inner, item, &format!("{path}[{index}]"), unknown, later);
                }
            }
        }
        _ => {}
    }
}

/// An embedded object's metadata keeps what metadata has.
fn embedded_metadata(value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    let (Value::Object(metadata), Some(known)) = (value, BuiltinSchemas::shared().definition(OBJECT_META)) else {
        return;
    };
    metadata.retain(|name, _| {
        let found = known.fields.contains_key(name.as_str());
        if !found {
            unknown.push(format!("unknown field \"{path}.{name}\""));
        }
        found
    });
}
