//! The built-in resources that are served: names, scope, verbs, subresources. The data of discovery.

use std::sync::LazyLock;

use serde::Deserialize;

use super::archive::inflate;

static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    let text = inflate(include_bytes!("../../data/resources.json.gz")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
});

/// The kind that a resource's or subresource's bodies have; an empty group and version mean the resource's own.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ResponseKind {
    /// API group.
    #[serde(default)]
    pub group: String,
    /// API version.
    #[serde(default)]
    pub version: String,
    /// Kind.
    #[serde(default)]
    pub kind: String,
}

/// A subresource.
#[derive(Clone, Debug, Deserialize)]
pub struct Subresource {
    /// Its name, `status`.
    #[serde(rename = "subresource")]
    pub name: String,
    /// What its bodies are.
    #[serde(rename = "responseKind", default)]
    pub response_kind: ResponseKind,
    /// What may be done with it.
    #[serde(default)]
    pub verbs: Vec<String>,
}

/// A resource.
#[derive(Clone, Debug, Deserialize)]
pub struct Resource {
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name.
    #[serde(rename = "resource")]
    pub name: String,
    /// What its bodies are.
    #[serde(rename = "responseKind", default)]
    pub response_kind: ResponseKind,
    /// `Namespaced` or `Cluster`.
    pub scope: String,
    /// Singular name.
    #[serde(rename = "singularResource", default)]
    pub singular: String,
    /// What may be done with it.
    #[serde(default)]
    pub verbs: Vec<String>,
    /// Short names.
    #[serde(rename = "shortNames", default)]
    pub short_names: Vec<String>,
    /// Categories, `all`.
    #[serde(default)]
    pub categories: Vec<String>,
    /// Subresources.
    #[serde(default)]
    pub subresources: Vec<Subresource>,
}

impl Resource {
    /// Lives in a namespace.
    pub fn namespaced(&self) -> bool {
        self.scope == "Namespaced"
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// All built-in resources, in the order of discovery.
pub fn all() -> &'static [Resource] {
    &RESOURCES
}
