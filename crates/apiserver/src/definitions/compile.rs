//! From a definition to the resources that it serves: one for each version.

use std::sync::Arc;

use serde_json::{Value, json};
use structured_merge::{SameShape, Schema, Typing};

use super::Compiled;
use crate::catalog::{Catalog, CustomKind, Origin, Resource, ScalePaths, Subresource};
use crate::customresources::{self, CustomSchema};
use crate::registry::ObjectExt;
use crate::table::Columns;

const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// The resources of an established definition; those of `old` if nothing changed.
pub(super) fn resources(definition: &Value, old: &Catalog) -> Compiled {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/status/acceptedNames/plural"));
    let served: Vec<&Value> = customresources::versions(definition)
        .filter(|version| version.get("served") == Some(&json!(true)))
        .collect();
    let kept: Option<Compiled> = served
        .iter()
        .map(|version| {
            let found = old.find(group, name_of(version), plural)?;
            let Origin::Custom(custom) = &found.origin else {
                return None;
            };
            (custom.revision == definition.resource_version()).then(|| found.clone())
        })
        .collect();
    if let Some(kept) = kept {
        return kept;
    }
    let storage = customresources::versions(definition)
        .find(|version| version.get("storage") == Some(&json!(true)))
        .map(name_of)
        .unwrap_or_default();
    let typings: Vec<(String, Typing)> = served
        .iter()
        .map(|version| (format!("{group}/{}", name_of(version)), typing(version)))
        .collect();
    let converter: Option<Arc<dyn structured_merge::Convert>> = if typings.len() > 1 {
        Some(Arc::new(SameShape::new(typings.clone())))
    } else {
        None
    };
    let mut resources = Vec::new();
    for (version, (_, typing)) in served.iter().zip(typings) {
        let Some(schema) = CustomSchema::new(definition, name_of(version)) else {
            continue;
        };
        let custom = CustomKind {
            revision: definition.resource_version().to_owned(),
            terminating: definition.is_deleting(),
            selectable_fields: selectable_fields(version),
            scale: scale(version),
            schema: Arc::new(schema),
            columns: Columns::Custom(customresources::columns(definition, name_of(version))),
            typing,
            converter: converter.clone(),
        };
        resources.push(Arc::new(Resource {
            group: group.to_owned(),
            version: name_of(version).to_owned(),
            plural: plural.to_owned(),
            singular: text("/status/acceptedNames/singular").to_owned(),
            kind: text("/status/acceptedNames/kind").to_owned(),
            list_kind: text("/status/acceptedNames/listKind").to_owned(),
            namespaced: text("/spec/scope") == "Namespaced",
            short_names: list(definition.pointer("/status/acceptedNames/shortNames")),
            categories: list(definition.pointer("/status/acceptedNames/categories")),
            verbs: VERBS.map(str::to_owned).to_vec(),
            subresources: subresources(version, &custom, text("/status/acceptedNames/kind")),
            stored_as: (group.to_owned(), plural.to_owned()),
            storage_api_version: format!("{group}/{storage}"),
            origin: Origin::Custom(Arc::new(custom)),
        }));
    }
    resources
}

fn name_of(version: &Value) -> &str {
    version.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn list(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// A schema whose types can't be told leaves every map granular and every list atomic.
fn typing(version: &Value) -> Typing {
    version
        .pointer("/schema/openAPIV3Schema")
        .and_then(|schema| Schema::from_structural(schema).ok())
        .unwrap_or_else(Typing::deduced)
}

fn selectable_fields(version: &Value) -> Vec<String> {
    version
        .get("selectableFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|field| field.get("jsonPath").and_then(Value::as_str))
        .map(|path| path.trim_start_matches('.').to_owned())
        .collect()
}

fn scale(version: &Value) -> Option<ScalePaths> {
    let scale = version.pointer("/subresources/scale")?;
    let path = |key: &str| {
        scale
            .get(key)
            .and_then(Value::as_str)
            .map(|path| path.replace('.', "/"))
    };
    Some(ScalePaths {
        spec: path("specReplicasPath")?,
        status: path("statusReplicasPath")?,
        selector: path("labelSelectorPath"),
    })
}

fn subresources(version: &Value, custom: &CustomKind, kind: &str) -> Vec<Subresource> {
    let verbs = || ["get", "patch", "update"].map(str::to_owned).to_vec();
    let mut subresources = Vec::new();
    if version.pointer("/subresources/status").is_some() {
        subresources.push(Subresource {
            name: "status".to_owned(),
            group: String::new(),
            version: String::new(),
            kind: kind.to_owned(),
            verbs: verbs(),
        });
    }
    if custom.scale.is_some() {
        subresources.push(Subresource {
            name: "scale".to_owned(),
            group: "autoscaling".to_owned(),
            version: "v1".to_owned(),
            kind: "Scale".to_owned(),
            verbs: verbs(),
        });
    }
    subresources
}
