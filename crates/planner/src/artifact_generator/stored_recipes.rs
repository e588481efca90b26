//! The recipes of a generator, as the ExternalArtifacts that execute them find them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure_remote_requests::composition::{FoundSource, Recipe};

/// A generator's recipes, for the ExternalArtifacts that execute them. They are lost with the process, and written again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredRecipes {
    /// Whether the generator makes nothing for now.
    pub is_suspended: bool,
    /// The reason for which nothing can be made.
    pub problem: Option<String>,
    /// The recipes, by name of the ExternalArtifact.
    pub recipes: BTreeMap<String, Recipe>,
    /// The sources, by alias.
    pub sources: BTreeMap<String, FoundSource>,
    /// Bytes that the recipes take, about.
    pub bytes: usize,
}
