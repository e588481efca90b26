//! CustomResourceDefinitions at work: what they define is served from the moment their write is acknowledged, and a
//! definition goes only after its objects have gone.
//!
//! What a definition means is `customresources`' business; this folder keeps the table of resources in step with the
//! store, and empties what is being deleted.

mod cleanup;
mod compile;
mod version;

use std::sync::Arc;

use serde_json::Value;

pub(crate) use cleanup::start as start_cleanup;
use tenure_kinds::customresources;

use crate::catalog::Catalog;
use crate::registry::{ObjectExt, Registry, View};

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const PLURAL: &str = "customresourcedefinitions";

/// All definitions in the store.
pub(crate) fn all(view: &View) -> Vec<Value> {
    view.list(GROUP, PLURAL, None)
}

/// Brings the table of resources in step with the definitions in the store. What did not change is kept.
pub(crate) fn refresh(registry: &Registry) {
    let old = registry.catalog();
    let mut resources = Vec::new();
    let mut hashes = std::collections::BTreeMap::<String, String>::new();
    for definition in all(&registry.view()) {
        if !customresources::is_established(&definition) {
            continue;
        }
        for resource in compile::resources(&definition, &old) {
            let state = hashes
                .entry(format!("apis/{}/{}", resource.group, resource.version))
                .or_default();
            state.push_str(&format!("{}@{};", definition.uid(), definition.resource_version()));
            resources.push(resource);
        }
    }
    resources.sort_by(|left, right| {
        (&left.group, version::priority(&left.version), &left.plural).cmp(&(
            &right.group,
            version::priority(&right.version),
            &right.plural,
        ))
    });
    let hashes = hashes
        .into_iter()
        .map(|(path, state)| (path, crate::routes::hash(state.as_bytes())))
        .collect();
    registry.set_catalog(Catalog::builtin_of(&old).with_custom(resources, hashes));
}

/// Writes what the server writes into a definition: its status, with the names that are still free.
pub(crate) fn settle(definition: &mut Value, live: Option<&Value>, view: &View, now: &str) {
    match live {
        None => customresources::prepare_create(definition),
        Some(live) => customresources::prepare_update(definition, live),
    }
    let others: Vec<Value> = all(view)
        .into_iter()
        .filter(|other| other.name() != definition.name())
        .collect();
    if let Some(accepted) = customresources::accept_names(definition, &others, now) {
        *definition = accepted;
    }
}

/// The OpenAPI document of a group and version that definitions serve.
pub(crate) fn document(registry: &Registry, path: &str) -> Option<Vec<u8>> {
    let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
    let definitions: Vec<Value> = all(&registry.view())
        .into_iter()
        .filter(customresources::is_established)
        .collect();
    let document = customresources::openapi_document(group, version, &definitions);
    serde_json::to_vec(&document).ok()
}

/// Shared by everything that a definition's version needs.
pub(crate) type Compiled = Vec<Arc<crate::catalog::Resource>>;
