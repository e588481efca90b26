//! The data of stories: for each kind the smallest valid object, and good and bad values for its fields.

use serde::Deserialize;
use serde_json::Value;

/// A field with values that are mostly accepted, and values that are mostly refused.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Field(pub(crate) String, pub(crate) Vec<Value>, pub(crate) Vec<Value>);

/// One kind.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Kind {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    /// Its weight in random choices.
    pub(crate) weight: usize,
    /// Whether it has a status subresource.
    #[serde(default)]
    pub(crate) status: bool,
    #[serde(default)]
    pub(crate) scale: bool,
    /// Whether its objects have no namespace. Their names then contain the story's.
    #[serde(default)]
    pub(crate) cluster: bool,
    /// Versions that requests use; only its own if empty.
    #[serde(default)]
    pub(crate) versions: Vec<String>,
    pub(crate) base: Value,
    pub(crate) spec: Vec<Field>,
    #[serde(default)]
    pub(crate) status_fields: Vec<Field>,
    /// Strategic merge patches that no combination of fields produces.
    #[serde(default)]
    pub(crate) strategic: Vec<Value>,
}

impl Kind {
    /// Returns the path of the kind's objects in the story's namespace, or of all its objects if they have no namespace.
    pub(crate) fn path(&self, api_version: &str) -> String {
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        if self.cluster {
            format!("{root}/{api_version}/{}", self.plural)
        } else {
            format!("{root}/{api_version}/namespaces/@NS/{}", self.plural)
        }
    }

    /// Returns the full name of the object with the short name `name`.
    pub(crate) fn name(&self, name: &str) -> String {
        if self.cluster {
            format!("@NS-{name}")
        } else {
            name.to_owned()
        }
    }
}

/// Reads all kinds.
pub(crate) fn read_kinds() -> anyhow::Result<Vec<Kind>> {
    let mut kinds: Vec<Kind> = serde_json::from_str(include_str!("../data/builtin.json"))?;
    kinds.extend(serde_json::from_str::<Vec<Kind>>(include_str!("../data/cluster.json"))?);
    kinds.extend(serde_json::from_str::<Vec<Kind>>(include_str!("../data/custom.json"))?);
    Ok(kinds)
}

/// Reads the CustomResourceDefinitions of the custom kinds.
pub(crate) fn read_definitions() -> anyhow::Result<Vec<Value>> {
    Ok(serde_json::from_str(include_str!("../data/definitions.json"))?)
}

/// Reads the metadata fields that any object may have.
pub(crate) fn metadata_fields() -> anyhow::Result<Vec<Field>> {
    Ok(serde_json::from_str(include_str!("../data/metadata.json"))?)
}
