//! Removal of fields that a structural schema does not declare. The removed fields are reported for strict decoding.

use std::collections::HashSet;

use serde_json::{Map, Value};
use tenure_checkpoint::checkpoint;

use super::structural::{Additional, Node};
use super::value_path::ValuePath;
use crate::schema::BuiltinSchemas;
use crate::schema::strict::Faults;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Prunes an object's fields except for its own type and metadata, and reports the removed fields.
pub(super) fn prune_object(root: &Node, object: &mut Map<String, Value>, unknown: &mut Vec<String>) {
    let kept: Vec<(String, Value)> = ["apiVersion", "kind", "metadata"]
        .iter()
        .filter_map(|field| object.remove_entry(*field))
        .collect();
    let (mut first, mut later) = (Faults::default(), Faults::default());
    prune_fields(root, object, &ValuePath::ROOT, &mut first, &mut later);
    // Unknown fields in the metadata of embedded objects are reported last.
    unknown.append(&mut first.texts);
    unknown.append(&mut later.texts);
    object.extend(kept);
}

fn prune_fields(
    node: &Node,
    object: &mut Map<String, Value>,
    path: &ValuePath<'_>,
    unknown: &mut Faults,
    later: &mut Faults,
) {
    let mut dropped = HashSet::new();
    for (name, value) in object.iter_mut() {
        checkpoint();
        let at = path.field(name);
        if let Some(property) = node.properties.get(name) {
            prune_value(property, value, &at, unknown, later);
        } else if let Some(Additional::Schema(inner)) = &node.additional {
            prune_value(inner, value, &at, unknown, later);
        } else if node.additional.is_none() && !node.preserve {
            unknown.add(|| format!("unknown field \"{at}\""));
            dropped.insert(name.clone());
        }
    }
    object.retain(|name, _| !dropped.contains(name));
}

fn prune_value(node: &Node, value: &mut Value, path: &ValuePath<'_>, unknown: &mut Faults, later: &mut Faults) {
    match value {
        Value::Object(object) if node.embedded => {
            let kept: Vec<(String, Value)> = ["apiVersion", "kind", "metadata"]
                .iter()
                .filter_map(|field| object.remove_entry(*field))
                .collect();
            prune_fields(node, object, path, unknown, later);
            for (name, mut value) in kept {
                if name == "metadata" {
                    embedded_metadata(&mut value, &path.field("metadata"), later);
                }
                object.insert(name, value);
            }
        }
        Value::Object(object) => prune_fields(node, object, path, unknown, later),
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for (index, item) in items.iter_mut().enumerate() {
                    checkpoint();
                    prune_value(inner, item, &path.item(index), unknown, later);
                }
            }
        }
        _ => {}
    }
}

/// Prunes the metadata of an embedded object to the known metadata fields.
fn embedded_metadata(value: &mut Value, path: &ValuePath<'_>, unknown: &mut Faults) {
    let (Value::Object(metadata), Some(known)) = (value, BuiltinSchemas::instance().definition(OBJECT_META)) else {
        return;
    };
    metadata.retain(|name, _| {
        let found = known.fields.contains_key(name.as_str());
        if !found {
            unknown.add(|| format!("unknown field \"{}\"", path.field(name)));
        }
        found
    });
}
