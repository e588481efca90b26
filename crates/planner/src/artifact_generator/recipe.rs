//! What an artifact is made of: the form in which a generator tells it, and in which it is carried out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::artifact::IncludedArtifact;
use crate::digest::digest_value;

/// An artifact that is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Recipe {
    /// Name of its ExternalArtifact.
    pub name: String,
    /// What of the name was found by a pattern: labels of the ExternalArtifact.
    pub labels: BTreeMap<String, String>,
    /// Alias of the source whose revision it bears; `latest@<digest>` when there is none.
    pub revision: Option<String>,
    /// Alias of the source whose origin it tells.
    pub origin: Option<String>,
    /// What is copied into it, in this order.
    pub copies: Vec<Copy>,
}

/// Files that are copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Copy {
    /// Alias of the source.
    pub alias: String,
    /// A path or a pattern, without `./` and `/` in front and at the end; everything when it is empty.
    pub from: String,
    /// A path, likewise.
    pub to: String,
    /// Whether `to` is a folder, whatever is copied.
    pub into_folder: bool,
    /// Patterns of what is left out.
    pub exclude: Vec<String>,
    /// What becomes of files that are there already.
    pub strategy: Strategy,
}

/// How files are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// Over what is there.
    #[default]
    Overwrite,
    /// YAML is merged with what is there, as Helm merges values.
    Merge,
    /// What is copied are the files in archives.
    Extract,
}

impl Recipe {
    /// The aliases of the sources whose files it takes.
    fn list_copied(&self) -> impl Iterator<Item = &str> {
        self.copies.iter().map(|copy| copy.alias.as_str())
    }

    /// The aliases of all sources that it needs.
    pub fn list_aliases(&self) -> impl Iterator<Item = &str> {
        let revisions = self.revision.iter().chain(&self.origin);
        self.list_copied().chain(revisions.map(String::as_str))
    }

    /// Digest of everything that decides what is made: of one artifact's, it says whether it would be made just so again.
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
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it has.
    pub state: SourceState,
}

/// What a source has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SourceState {
    /// There is none of that name, or it may not be looked at.
    #[default]
    NotFound,
    /// It was made in another lane's process, from which nothing that is made is taken.
    Apart,
    /// Nothing is known of it, and why.
    Unknown(String),
    /// It is there, and has nothing stored yet.
    Empty,
    /// This is stored for it: its status is not believed.
    Stored {
        /// Which object it is.
        uid: String,
        /// What is stored.
        artifact: IncludedArtifact,
    },
}

impl FoundSource {
    /// `Kind/namespace/name`.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}/{}/{}", self.kind, self.namespace, self.name)
    }

    /// What is stored for it; otherwise why nothing is.
    ///
    /// # Errors
    /// In words.
    pub fn find_artifact(&self) -> Result<&IncludedArtifact, String> {
        match &self.state {
            SourceState::Stored { artifact, .. } => Ok(artifact),
            SourceState::NotFound => Err(format!("source '{}' not found", self.describe())),
            SourceState::Empty => Err(format!("source '{}' is not ready", self.describe())),
            SourceState::Apart => Err(format!(
                "source '{}' is not taken: it is made by a generator in another tenant's process, so nobody could see whether that feeds on what is \
                 made here; name what it is made of, or run lanes as tasks (--lanes task)",
                self.describe()
            )),
            SourceState::Unknown(why) => Err(format!("source '{}' can't be reached: {why}", self.describe())),
        }
    }
}

/// What a generator tells of what it makes, for those who carry it out. Lost with the process, and told anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Told {
    /// Nothing is made for now.
    pub is_suspended: bool,
    /// Why nothing can be made.
    pub problem: Option<String>,
    /// What is made, by name.
    pub recipes: BTreeMap<String, Recipe>,
    /// Of what, by alias.
    pub sources: BTreeMap<String, FoundSource>,
    /// Bytes that the recipes take, about.
    pub bytes: usize,
}
