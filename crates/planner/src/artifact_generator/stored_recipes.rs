//! The recipes of a generator, as the ExternalArtifacts that execute them find them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure_remote_requests::composition::{FoundSource, Recipe};

/// A generator's recipes, for the ExternalArtifacts that execute them. They are lost with the process, and written again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredRecipes {
    /// Whether the generator is suspended.
    pub is_suspended: bool,
    /// The reason why the generator can make no artifact, if it can't.
    pub problem: Option<String>,
    /// The recipes, by name of the ExternalArtifact.
    pub recipes: BTreeMap<String, Recipe>,
    /// The sources, by alias.
    pub sources: BTreeMap<String, FoundSource>,
    /// The approximate memory of the recipes, in bytes.
    pub bytes: usize,
}
