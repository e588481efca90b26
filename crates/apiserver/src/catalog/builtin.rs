//! What is built in, read from a table that was recorded from the discovery documents of a Kubernetes 1.36 API server.

use serde::Deserialize;
use tenure_kinds::schema::autoscaler;

use super::{Origin, Resource, Subresource};

const TABLE: &str = include_str!("builtin.json");

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

/// The built-in resources in discovery's order.
pub(super) fn resources() -> Vec<Resource> {
    // The table is part of the program; a test reads it, so an unreadable one can't be built into a release.
    let rows: Vec<Row> = serde_json::from_str(TABLE).unwrap_or_default();
    rows.into_iter().map(Resource::from).collect()
}

impl From<Row> for Resource {
    fn from(row: Row) -> Self {
        // Events have two faces and one store; the core one is kept, as it has the fields that old clients read.
        let (stored_as, storage_api_version) = if row.group == "events.k8s.io" {
            ((String::new(), row.resource.clone()), "v1".to_owned())
        } else {
            let api_version = match (row.group.as_str(), row.resource.as_str()) {
                ("", _) => row.version.clone(),
                ("autoscaling", "horizontalpodautoscalers") => autoscaler::STORED.to_owned(),
                (group, _) => format!("{group}/{}", row.version),
            };
            ((row.group.clone(), row.resource.clone()), api_version)
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
            origin: Origin::Builtin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_reads() {
        let rows: Vec<Row> = serde_json::from_str(TABLE).unwrap();
        assert!(rows.len() > 40);
    }
}
