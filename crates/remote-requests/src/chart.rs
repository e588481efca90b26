//! The facts about a stored chart.

use serde::{Deserialize, Serialize};

/// The facts about a stored chart besides its archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChartFacts {
    /// Name of the chart.
    pub name: String,
    /// Whether the archive was packaged here. If not, it is the repository's.
    pub is_packaged: bool,
    /// Files of values that are in the default values.
    pub values_files: Vec<String>,
    /// The facts with which a registry or an index offered the chart, to see whether it has changed there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pulled: Option<PulledChart>,
}

/// The facts about a chart in a registry, or in an index, when it was fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PulledChart {
    /// The tag with the digest of the manifest, or the digest of the index.
    pub revision: String,
    /// The digest of all other inputs.
    pub fingerprint: String,
}

impl ChartFacts {
    /// Describes the chart with its version, as Flux does.
    #[must_use]
    pub fn describe(&self, version: &str) -> String {
        let action = if self.is_packaged { "packaged" } else { "pulled" };
        let mut text = format!("{action} '{}' chart with version '{version}'", self.name);
        if !self.values_files.is_empty() {
            text.push_str(&format!(" and merged values files [{}]", self.values_files.join(" ")));
        }
        text
    }
}
