//! The request to fetch an artifact of a container registry.

use std::time::Duration;

use serde::Serialize;
use tenure_api::SourceUrl;
use tenure_api::oci_repository::OciRepositoryRef;

use crate::artifact::StoredArtifact;

/// The annotation of an artifact that names the source of its files.
pub const ORIGIN_SOURCE: &str = "org.opencontainers.image.source";
/// The annotation of an artifact that names the revision of its files.
pub const ORIGIN_REVISION: &str = "org.opencontainers.image.revision";

/// A request to fetch an artifact of a container registry, as the planner makes it. It names Secrets and never contains their data: the crate `sources` adds the
/// credentials.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchRequest {
    /// Address of the repository in the registry. A printed or serialized request contains only the part of it that may be shown.
    #[serde(serialize_with = "SourceUrl::serialize_shown")]
    pub url: SourceUrl,
    /// The artifact, with Flux's precedence: digest, semver, tag (`latest`).
    pub reference: OciRepositoryRef,
    /// Media type of the layer to fetch; the first layer if unset.
    pub media_type: Option<String>,
    /// The operation on the layer.
    pub operation: LayerOperation,
    /// Whether the registry is spoken to over plain HTTP.
    pub insecure: bool,
    /// Secret with the credentials. All Secrets of this request are in the source's namespace, and are read as the plan's identity.
    pub secret: Option<String>,
    /// ServiceAccount whose `imagePullSecrets` are credentials too.
    pub service_account: Option<String>,
    /// Secret with the trusted certificates and the client's own one.
    pub certificates: Option<String>,
    /// Secret with the address of a proxy, and credentials for it.
    pub proxy: Option<String>,
    /// Secret with the public keys of which one must have signed the artifact.
    pub keys: Option<String>,
    /// Patterns of files to leave out.
    pub ignore: Option<String>,
    /// The time limit.
    pub timeout: Duration,
    /// The stored artifact that was made with the same `ignore`. If all other inputs are unchanged as well, nothing is fetched.
    pub known: Option<StoredArtifact>,
    /// Whether the platform asks: a tenant's request is bound to the addresses that an administrator allows to tenants.
    pub platform: bool,
}

/// How a fetched layer becomes the artifact: extracted, or unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LayerOperation {
    /// The files of the layer are the artifact's files.
    #[default]
    Extract,
    /// The layer is the artifact, byte for byte.
    Copy,
}
