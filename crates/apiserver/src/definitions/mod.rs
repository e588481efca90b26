//! CustomResourceDefinitions at work: what they define is served from the moment their write is acknowledged, and a
//! definition goes only after its objects have gone.
//!
//! What a definition means, and the resources that it comes to, is `tenure_kinds::customresources`' business; this folder keeps the
//! table of resources in step with the store, and empties what is being deleted.

mod cleanup;

use std::sync::Arc;

use serde_json::Value;

pub(crate) use cleanup::start as start_cleanup;
use tenure_kinds::customresources::{self, definitions, priority};

use crate::catalog::{Catalog, Origin, Resource};
use crate::conversion::Webhook;
use crate::registry::{ObjectExt, Registry};

/// Brings the table of resources in step with the definitions in the store. What did not change is kept.
pub(crate) fn refresh(registry: &Registry) {
    let old = registry.catalog();
    let mut resources = Vec::new();
    let mut hashes = std::collections::BTreeMap::<String, String>::new();
    for definition in definitions(&registry.view()) {
        if !customresources::is_established(&definition) {
            continue;
        }
        for resource in compile(&definition, &old) {
            let state = hashes
                .entry(format!("apis/{}/{}", resource.group, resource.version))
                .or_default();
            state.push_str(&format!("{}@{};", definition.uid(), definition.resource_version()));
            resources.push(resource);
        }
    }
    resources.sort_by(|left, right| {
        (&left.group, priority(&left.version), &left.plural).cmp(&(
            &right.group,
            priority(&right.version),
            &right.plural,
        ))
    });
    let hashes = hashes
        .into_iter()
        .map(|(path, state)| (path, crate::http::etag::hash(state.as_bytes())))
        .collect();
    registry.set_catalog(Catalog::builtin_of(&old).with_custom(resources, hashes));
}

/// The resources of an established definition; those of `old` if nothing changed.
fn compile(definition: &Value, old: &Catalog) -> Vec<Arc<Resource>> {
    kept(definition, old).unwrap_or_else(|| {
        let webhook = Webhook::of(definition).map(Arc::new);
        customresources::compile(definition)
            .into_iter()
            .map(|resource| Arc::new(Resource::new(resource, webhook.clone())))
            .collect()
    })
}

fn kept(definition: &Value, old: &Catalog) -> Option<Vec<Arc<Resource>>> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/status/acceptedNames/plural"));
    let name_of = |version: &Value| {
        version
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    customresources::versions(definition)
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

/// The OpenAPI document of a group and version that definitions serve.
pub(crate) fn document(registry: &Registry, path: &str) -> Option<Vec<u8>> {
    let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
    let definitions: Vec<Value> = definitions(&registry.view())
        .into_iter()
        .filter(customresources::is_established)
        .collect();
    let document = customresources::openapi_document(group, version, &definitions);
    serde_json::to_vec(&document).ok()
}
