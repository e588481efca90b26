//! What sequences are made of: for each kind the smallest valid object, and values for its fields, good and bad. Data only.

use serde::Deserialize;
use serde_json::Value;

/// A field with values that are accepted (mostly) and values that are refused (mostly).
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Field(pub(crate) String, pub(crate) Vec<Value>, pub(crate) Vec<Value>);

/// One kind.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Kind {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    /// How often it is chosen.
    pub(crate) weight: usize,
    /// Whether it has a status subresource.
    #[serde(default)]
    pub(crate) status: bool,
    #[serde(default)]
    pub(crate) scale: bool,
    /// Whether its objects are in no namespace. They are named after the story's.
    #[serde(default)]
    pub(crate) cluster: bool,
    /// Versions that it is asked for in; none for just its own.
    #[serde(default)]
    pub(crate) versions: Vec<String>,
    pub(crate) base: Value,
    pub(crate) spec: Vec<Field>,
    #[serde(default)]
    pub(crate) status_fields: Vec<Field>,
    /// Strategic merge patches that no combination of fields gives.
    #[serde(default)]
    pub(crate) strategic: Vec<Value>,
}

impl Kind {
    /// The path of the kind's objects in the story's namespace, or of all of them if they are in none.
    pub(crate) fn path(&self, api_version: &str) -> String {
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        if self.cluster {
            format!("{root}/{api_version}/{}", self.plural)
        } else {
            format!("{root}/{api_version}/namespaces/@NS/{}", self.plural)
        }
    }

    /// The name that an object of this kind has where it is called `name` in short.
    pub(crate) fn name(&self, name: &str) -> String {
        if self.cluster {
            format!("@NS-{name}")
        } else {
            name.to_owned()
        }
    }
}

/// All kinds.
pub(crate) fn kinds() -> anyhow::Result<Vec<Kind>> {
    let mut kinds: Vec<Kind> = serde_json::from_str(include_str!("../data/builtin.json"))?;
    kinds.extend(serde_json::from_str::<Vec<Kind>>(include_str!("../data/cluster.json"))?);
    kinds.extend(serde_json::from_str::<Vec<Kind>>(include_str!("../data/custom.json"))?);
    Ok(kinds)
}

/// The CustomResourceDefinitions that the custom kinds need.
pub(crate) fn definitions() -> anyhow::Result<Vec<Value>> {
    Ok(serde_json::from_str(include_str!("../data/definitions.json"))?)
}

/// What any object may have in its metadata.
pub(crate) fn metadata_fields() -> anyhow::Result<Vec<Field>> {
    Ok(serde_json::from_str(include_str!("../data/metadata.json"))?)
}
