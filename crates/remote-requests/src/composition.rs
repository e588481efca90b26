//! The request for a composed artifact, and its recipe: the generator writes it, and the lane executes it in this form.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::artifact::{IncludedArtifact, StoredArtifact};
use tenure_api::digest::digest_value;

/// How an artifact is composed from files of other artifacts: its name and labels, and the copies in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Recipe {
    /// Name of its ExternalArtifact.
    pub name: String,
    /// Parts of the name that a pattern found: labels of the ExternalArtifact.
    pub labels: BTreeMap<String, String>,
    /// Alias of the source whose revision the artifact has; without one, the revision is `latest@<digest>`.
    pub revision: Option<String>,
    /// Alias of the source whose origin the artifact has.
    pub origin: Option<String>,
    /// The copies, in this order.
    pub copies: Vec<Copy>,
}

/// A step of a [`Recipe`], which copies files of a source into the artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Copy {
    /// Alias of the source.
    pub alias: String,
    /// A path or a pattern, without `./` and `/` in front and at the end; everything when it is empty.
    pub from: String,
    /// The target path, without `./` and `/` in front and at the end.
    pub to: String,
    /// Whether `to` is a folder even if a single file is copied.
    pub into_folder: bool,
    /// Patterns of excluded files.
    pub exclude: Vec<String>,
    /// The strategy for files that exist already.
    pub strategy: Strategy,
}

/// How a copy step treats existing files and archives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// Overwrite existing files.
    #[default]
    Overwrite,
    /// Merge YAML with existing files, as Helm merges values.
    Merge,
    /// Copy the files inside archives instead of the archives.
    Extract,
}

impl Recipe {
    /// Lists the aliases of the sources whose files are copied.
    fn list_copied(&self) -> impl Iterator<Item = &str> {
        self.copies.iter().map(|copy| copy.alias.as_str())
    }

    /// Lists the aliases of all necessary sources.
    pub fn list_aliases(&self) -> impl Iterator<Item = &str> {
        let revisions = self.revision.iter().chain(&self.origin);
        self.list_copied().chain(revisions.map(String::as_str))
    }

    /// Returns the digest of everything that decides the content: equal digests mean equal artifacts.
    #[must_use]
    pub fn fingerprint(&self, sources: &BTreeMap<String, IncludedArtifact>) -> String {
        let facts = |alias: &str| sources.get(alias).map(|artifact| &artifact.facts);
        let digests: BTreeMap<&str, Option<&str>> = self
            .list_copied()
            .map(|alias| (alias, facts(alias).map(|facts| facts.digest.as_str())))
            .collect();
        let revision = self.revision.as_deref().and_then(facts);
        let origin = self.origin.as_deref().and_then(facts);
        digest_value(&json!({
            "form": 1,
            "copies": self.copies,
            "digests": digests,
            "revision": revision.map(|facts| &facts.revision),
            "origin": origin.map(|facts| facts.origin_revision.as_ref().unwrap_or(&facts.revision)),
        }))
    }
}

/// A source of a generator, as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FoundSource {
    /// The kind of the source.
    pub kind: String,
    /// The namespace of the source.
    pub namespace: String,
    /// The name of the source.
    pub name: String,
    /// The artifact of the source.
    pub state: SourceState,
}

/// Whether a source of a generator exists, and has a stored artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SourceState {
    /// No source has this name, or the generator may not look at it.
    #[default]
    NotFound,
    /// Another lane's process made the source, and composed artifacts of another process are not used.
    Apart,
    /// The artifact is unknown; the text is the reason.
    Unknown(String),
    /// The source exists, and has nothing stored yet.
    Empty,
    /// The stored artifact of the source. The status is no evidence of it.
    Stored {
        /// The uid of the source.
        uid: String,
        /// The stored artifact.
        artifact: IncludedArtifact,
    },
}

impl FoundSource {
    /// Returns `Kind/namespace/name`.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}/{}/{}", self.kind, self.namespace, self.name)
    }

    /// Returns the uid of the source and its stored artifact, if it has one.
    #[must_use]
    pub fn stored(&self) -> Option<(&str, &IncludedArtifact)> {
        match &self.state {
            SourceState::Stored { uid, artifact } => Some((uid, artifact)),
            SourceState::NotFound | SourceState::Apart | SourceState::Unknown(_) | SourceState::Empty => None,
        }
    }

    /// Returns the stored artifact of the source.
    ///
    /// # Errors
    /// The reason for which nothing is stored, in words.
    pub fn find_artifact(&self) -> Result<&IncludedArtifact, String> {
        match &self.state {
            SourceState::Stored { artifact, .. } => Ok(artifact),
            SourceState::NotFound => Err(format!("source '{}' not found", self.describe())),
            SourceState::Empty => Err(format!("source '{}' is not ready", self.describe())),
            SourceState::Apart => Err(format!(
                "source '{}' is not taken: it is made by a generator in another tenant's process, so a cycle could not be detected; name its own sources instead, or run lanes as tasks (--lanes task)",
                self.describe()
            )),
            SourceState::Unknown(why) => Err(format!("source '{}' can't be reached: {why}", self.describe())),
        }
    }
}

/// A request to compose an artifact: the recipe, the sources that it needs, and the artifact of the last time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComposeRequest {
    /// The recipe.
    pub recipe: Recipe,
    /// The sources, by alias.
    pub sources: BTreeMap<String, FoundSource>,
    /// Digest of everything that decides the content.
    pub fingerprint: String,
    /// The time limit.
    pub timeout: Duration,
    /// The composed artifact that is in the store now. Nothing is composed if its fingerprint is the same.
    pub known: Option<StoredArtifact>,
}

impl ComposeRequest {
    /// Lists the stored artifacts of the sources, by alias.
    pub fn list_artifacts(&self) -> impl Iterator<Item = (&str, &FoundSource, &str, &IncludedArtifact)> {
        self.sources.iter().filter_map(|(alias, source)| {
            let (uid, artifact) = source.stored()?;
            Some((alias.as_str(), source, uid, artifact))
        })
    }
}
