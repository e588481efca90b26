//! The built-in resources, from a table that was recorded from the discovery documents of a Kubernetes 1.36 API server.

use serde::Deserialize;

use super::find_resource;
use crate::kind::{Origin, Resource, Subresource};

const TABLE: &str = include_str!("resources.json");

/// A resource of the recorded discovery documents.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    group: String,
    version: String,
    resource: String,
    kind: String,
    singular: String,
    namespaced: bool,
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    subresources: Vec<SubresourceRow>,
}

/// A subresource of such a resource.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubresourceRow {
    name: String,
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    kind: String,
    verbs: Vec<String>,
}

/// Returns the built-in resources in the order of discovery.
#[must_use]
pub fn list_resources() -> Vec<Resource> {
    // The table is part of the program; a test reads it, so an unreadable one can't be built into a release.
    let rows: Vec<Row> = serde_json::from_str(TABLE).unwrap_or_default();
    rows.into_iter().map(Resource::from).collect()
}

impl From<Row> for Resource {
    fn from(row: Row) -> Self {
        let behavior = find_resource(&row.group, &row.resource);
        let stored_as = match behavior.stored_as {
            Some((group, plural)) => (group.to_owned(), plural.to_owned()),
            None => (row.group.clone(), row.resource.clone()),
        };
        let storage_api_version = match (behavior.stored_version, row.group.as_str()) {
            (Some(version), _) => version.to_owned(),
            (None, "") => row.version.clone(),
            (None, group) => format!("{group}/{}", row.version),
        };
        Self {
            list_kind: format!("{}List", row.kind),
            stored_as,
            storage_api_version,
            group: row.group,
            version: row.version,
            plural: row.resource,
            singular: row.singular,
            kind: row.kind,
            namespaced: row.namespaced,
            short_names: row.short_names,
            categories: row.categories,
            verbs: row.verbs,
            subresources: row
                .subresources
                .into_iter()
                .map(|row| Subresource {
                    name: row.name,
                    group: row.group,
                    version: row.version,
                    kind: row.kind,
                    verbs: row.verbs,
                })
                .collect(),
            behavior,
            origin: Origin::Builtin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_table_is_valid() {
        let rows: Vec<Row> = serde_json::from_str(TABLE).unwrap();
        assert!(rows.len() > 40);
    }
}
