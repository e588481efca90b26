//! The artifact of a source, in its status.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::{self, Time};

/// A fetched and stored revision of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Artifact {
    /// Digest of the content, `<algorithm>:<hex>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$"))]
    pub digest: Option<String>,
    /// When the artifact was last changed.
    #[schemars(schema_with = "time::describe")]
    pub last_update_time: Time,
    /// Metadata from the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Path within the artifact store: `<kind>/<namespace>/<name>/<file>`.
    pub path: String,
    /// Human-readable identifier in the upstream, such as `main@sha1:<commit>`.
    pub revision: String,
    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Address of the artifact; empty where artifacts are served to nobody. Tenure never reads this field: a forged one has no effect.
    pub url: String,
}
