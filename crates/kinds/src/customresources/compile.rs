//! Compiles a definition into the resources that it serves: one for each version.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use structured_merge::{Schema, Typing};

use super::{CUSTOM, CustomSchema, list_versions, make_columns, version_priority};
use crate::kind::{CustomKind, Origin, Resource, ScalePaths, Subresource, Types};
use crate::object::ObjectExt;
use crate::schema::ObjectSchema;
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

/// Returns the resources of an established definition.
#[must_use]
pub fn compile_definition(definition: &Value) -> Vec<Resource> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/status/acceptedNames/plural"));
    let served: Vec<&Value> = list_versions(definition)
        .filter(|version| version.get("served") == Some(&json!(true)))
        .collect();
    let storage = list_versions(definition)
        .find(|version| version.get("storage") == Some(&json!(true)))
        .map(name_of)
        .unwrap_or_default();
    let typings: Vec<(String, Typing)> = list_versions(definition)
        .map(|version| (format!("{group}/{}", name_of(version)), compile_typing(version)))
        .collect();
    let schemas: BTreeMap<String, Arc<dyn ObjectSchema>> = list_versions(definition)
        .filter_map(|version| {
            let schema = CustomSchema::new(definition, name_of(version))?;
            Some((
                format!("{group}/{}", name_of(version)),
                Arc::new(schema) as Arc<dyn ObjectSchema>,
            ))
        })
        .collect();
    let schemas = Arc::new(schemas);
    let with_status: Vec<String> = list_versions(definition)
        .filter(|version| {
            ["served", "storage"]
                .iter()
                .any(|field| version.get(field) == Some(&json!(true)))
        })
        .filter(|version| version.pointer("/subresources/status").is_some())
        .map(|version| format!("{group}/{}", name_of(version)))
        .collect();
    let types = Arc::new(Types::new(typings.clone()));
    let mut resources = Vec::new();
    for version in served {
        let api_version = format!("{group}/{}", name_of(version));
        let typing = typings.iter().find(|(other, _)| *other == api_version);
        let (Some(schema), Some((_, typing))) = (schemas.get(&api_version).cloned(), typing) else {
            continue;
        };
        let custom = CustomKind {
            revision: definition.resource_version().to_owned(),
            terminating: definition.is_deleting(),
            selectable_fields: selectable_fields(version),
            with_status: with_status.clone(),
            deprecation: deprecation_message(definition, version),
            scale: read_scale_paths(version),
            schema,
            schemas: schemas.clone(),
            columns: Columns::Custom(make_columns(definition, name_of(version))),
            typing: typing.clone(),
            types: types.clone(),
        };
        resources.push(Resource {
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
            subresources: make_subresources(version, &custom, text("/status/acceptedNames/kind")),
            stored_as: (group.to_owned(), plural.to_owned()),
            storage_api_version: format!("{group}/{storage}"),
            behavior: &CUSTOM,
            origin: Origin::Custom(Arc::new(custom)),
        });
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

/// Returns the type of a version. If the schema has no readable types, every map is granular and every list atomic.
fn compile_typing(version: &Value) -> Typing {
    version
        .pointer("/schema/openAPIV3Schema")
        .and_then(|schema| Schema::from_structural(schema).ok())
        .unwrap_or_else(Typing::deduced)
}

/// Returns the deprecation message of the definition, or else Kubernetes' own, which points to the best version that is not deprecated.
fn deprecation_message(definition: &Value, version: &Value) -> Option<String> {
    let is_deprecated = |version: &Value| version.get("deprecated") == Some(&json!(true));
    if !is_deprecated(version) {
        return None;
    }
    if let Some(words) = version.get("deprecationWarning").and_then(Value::as_str) {
        return Some(words.to_owned());
    }
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
    let name = name_of(version);
    let mut better: Vec<&str> = list_versions(definition)
        .filter(|other| other.get("served") == Some(&json!(true)) && !is_deprecated(other))
        .map(name_of)
        .filter(|other| version_priority(other) < version_priority(name))
        .collect();
    better.sort_by_key(|name| version_priority(name));
    let advice = better.first().map(|best| format!("; use {group}/{best} {kind}"));
    Some(format!(
        "{group}/{name} {kind} is deprecated{}",
        advice.unwrap_or_default()
    ))
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

fn read_scale_paths(version: &Value) -> Option<ScalePaths> {
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

fn make_subresources(version: &Value, custom: &CustomKind, kind: &str) -> Vec<Subresource> {
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
