//! What the artifact store holds for a source, whatever its kind.
//!
//! There are two other shapes of an artifact, each for a reader of its own: `tenure_api::artifact::Artifact` is what a status tells people
//! and other tools in Flux's words, and is never read back, since a status can be forged; the record beside the archive on the disk is
//! [`StoredArtifact`] as it stands.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Which content an artifact has: all that matters to whoever renders from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactFacts {
    /// Revision in Flux's form, such as `main@sha1:<commit>`.
    pub revision: String,
    /// Digest of the archive, `sha256:<hex>`.
    pub digest: String,
    /// The revision of what it was made of, as the artifact says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_revision: Option<String>,
}

/// What is in the artifact store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredArtifact {
    /// Which content it is.
    #[serde(flatten)]
    pub facts: ArtifactFacts,
    /// Size of the archive in bytes.
    pub size: u64,
    /// Path within the store, for people: it is never used to read.
    pub path: String,
    /// When it was stored.
    pub stored_at: Option<Timestamp>,
    /// `spec.ignore` that it was made with.
    pub ignore: Option<String>,
    /// Digest of what, besides the revision, decided its content: another request makes another artifact of the same revision.
    #[serde(default)]
    pub fingerprint: String,
    /// Whose signatures of it were verified, in words; nothing when none had to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
    /// What of other sources was put into it, in the order of the fields that name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub included: Vec<IncludedArtifact>,
    /// What the upstream says of it, as far as it may stand in a status.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// What another source's artifact was when it was put into one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncludedArtifact {
    /// Which content it is.
    #[serde(flatten)]
    pub facts: ArtifactFacts,
    /// Size of the archive in bytes.
    pub size: u64,
    /// Path within the store, for people.
    pub path: String,
    /// When it was stored.
    pub stored_at: Option<Timestamp>,
}

impl From<&StoredArtifact> for IncludedArtifact {
    fn from(stored: &StoredArtifact) -> Self {
        Self {
            facts: stored.facts.clone(),
            size: stored.size,
            path: stored.path.clone(),
            stored_at: stored.stored_at,
        }
    }
}
