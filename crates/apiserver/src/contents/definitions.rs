//! CustomResourceDefinitions in use: their resources are served as soon as the write of a definition is acknowledged.
//! This module computes the table of resources from the stored definitions. `tenure_kinds::customresources`
//! interprets a definition, and a controller deletes the objects of a deleted one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tenure_kinds::customresources::{self, list_definitions, version_priority};
use tenure_kinds::object::ObjectExt as _;

use super::Contents;
use crate::catalog::{Catalog, Origin, Resource};
use crate::conversion::Webhook;
use crate::http::etag;
use crate::view::View;

/// Returns the table of resources for the stored definitions. Unchanged entries come from the old table.
pub(super) fn compile_all(view: &View, old: &Catalog) -> Catalog {
    let mut resources = Vec::new();
    let mut hashes = BTreeMap::<String, String>::new();
    for definition in list_definitions(view) {
        if !customresources::is_established(&definition) {
            continue;
        }
        for resource in compile_or_reuse(&definition, old) {
            let state = hashes
                .entry(format!("apis/{}/{}", resource.group, resource.version))
                .or_default();
            state.push_str(&format!("{}@{};", definition.uid(), definition.resource_version()));
            resources.push(resource);
        }
    }
    resources.sort_by(|left, right| {
        (&left.group, version_priority(&left.version), &left.plural).cmp(&(
            &right.group,
            version_priority(&right.version),
            &right.plural,
        ))
    });
    let hashes = hashes
        .into_iter()
        .map(|(path, state)| (path, etag::hash(state.as_bytes())))
        .collect();
    Catalog::builtin_of(old).with_custom(resources, hashes)
}

/// Returns the resources of an established definition; those of `old` if nothing changed.
fn compile_or_reuse(definition: &Value, old: &Catalog) -> Vec<Arc<Resource>> {
    find_unchanged(definition, old).unwrap_or_else(|| {
        let webhook = Webhook::from_definition(definition).map(Arc::new);
        customresources::compile_definition(definition)
            .into_iter()
            .map(|resource| Arc::new(Resource::new(resource, webhook.clone())))
            .collect()
    })
}

fn find_unchanged(definition: &Value, old: &Catalog) -> Option<Vec<Arc<Resource>>> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/status/acceptedNames/plural"));
    let name_of = |version: &Value| {
        version
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    customresources::list_versions(definition)
        .filter(|version| version.get("served") == Some(&Value::Bool(true)))
        .map(|version| {
            let found = old.find(group, &name_of(version), plural)?;
            let Origin::Custom(custom) = &found.origin else {
                return None;
            };
            (custom.revision == definition.resource_version()).then(|| found.clone())
        })
        .collect()
}

impl Contents {
    /// Returns the OpenAPI document of a group and version that definitions serve.
    pub(crate) fn openapi_document(&self, path: &str) -> Option<Vec<u8>> {
        let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
        let definitions: Vec<Value> = list_definitions(&self.view())
            .into_iter()
            .filter(customresources::is_established)
            .collect();
        let document = customresources::openapi_document(group, version, &definitions);
        serde_json::to_vec(&document).ok()
    }
}
