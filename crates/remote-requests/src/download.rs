//! The request to download an artifact that another controller has made.

use std::time::Duration;

use serde::Serialize;

use crate::artifact::{ArtifactFacts, StoredArtifact};

/// A request to download an artifact that another controller has made, from the address in its status.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DownloadRequest {
    /// The address.
    pub url: String,
    /// The digest: `sha256:<hex>`.
    pub digest: String,
    /// The name of the revision.
    pub revision: String,
    /// The origin of the artifact.
    pub origin: Option<String>,
    /// The time limit.
    pub timeout: Duration,
    /// The downloaded artifact that is in the store now.
    pub known: Option<StoredArtifact>,
    /// Whether the platform asks: a tenant's request is bound to the addresses that an administrator allows to tenants.
    pub platform: bool,
}

impl DownloadRequest {
    /// Returns the identity of the content that the request asks for.
    #[must_use]
    pub fn facts(&self) -> ArtifactFacts {
        ArtifactFacts {
            revision: self.revision.clone(),
            digest: self.digest.clone(),
            origin_revision: self.origin.clone(),
        }
    }
}
