//! The content of the artifact store for a source of any kind.
//!
//! An artifact has two other forms, each for its own reader. `tenure_api::artifact::Artifact` is the form in a status, in Flux's words, for people and other tools.
//! Tenure never reads it back, since a status can be forged. The record beside the archive on the disk is [`StoredArtifact`] as it stands.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::chart::ChartFacts;

/// The identity of an artifact's content: everything that a rendering depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactFacts {
    /// Revision in Flux's form, such as `main@sha1:<commit>`.
    pub revision: String,
    /// Digest of the archive, `sha256:<hex>`.
    pub digest: String,
    /// The revision of the artifact's origin, as the artifact states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_revision: Option<String>,
}

/// The record of an artifact in the store: the identity of its content, its place, and the inputs from which it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredArtifact {
    /// The identity of the content.
    #[serde(flatten)]
    pub facts: ArtifactFacts,
    /// Size of the archive in bytes.
    pub size: u64,
    /// Path within the store, for people: it is never used to read.
    pub path: String,
    /// The time of storage.
    pub stored_at: Option<Timestamp>,
    /// The patterns of `spec.ignore` at the time when the artifact was made.
    pub ignore: Option<String>,
    /// Digest of all inputs of the content besides the revision: another request makes another artifact of the same revision.
    #[serde(default)]
    pub fingerprint: String,
    /// The verified signers of the artifact, in words; unset if no signature was required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
    /// The artifacts of other sources that were put into this one, in the order of the fields that name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub included: Vec<IncludedArtifact>,
    /// The upstream's metadata, as far as a status may show it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The facts about a chart, for the artifact of a HelmChart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<ChartFacts>,
}

/// The artifact of another source at the moment when it was put into this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncludedArtifact {
    /// The identity of the content.
    #[serde(flatten)]
    pub facts: ArtifactFacts,
    /// Size of the archive in bytes.
    pub size: u64,
    /// Path within the store, for people.
    pub path: String,
    /// The time of storage.
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
