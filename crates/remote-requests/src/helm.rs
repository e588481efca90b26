//! The requests to fetch the index of a Helm repository, and to make the artifact of a chart.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::SourceUrl;

use crate::artifact::StoredArtifact;
use crate::composition::FoundSource;

/// A request to fetch the index of a Helm repository. It names Secrets and never contains their data.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IndexRequest {
    /// The repository.
    pub repository: RepositoryAccess,
    /// The time limit.
    pub timeout: Duration,
    /// The stored index.
    pub known: Option<StoredArtifact>,
    /// Whether the platform asks: a tenant's request is bound to the addresses that an administrator allows to tenants.
    pub platform: bool,
}

/// The address of a Helm repository, and the names of the Secrets for it. All Secrets are in the namespace of the HelmRepository, and are read as the plan's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RepositoryAccess {
    /// The address. A printed request contains only the part of it that may be shown.
    #[serde(serialize_with = "SourceUrl::serialize_shown")]
    pub url: SourceUrl,
    /// Secret with `username` and `password`, or for a registry with `.dockerconfigjson`.
    pub secret: Option<String>,
    /// Secret with the trusted certificates and the client's own one.
    pub certificates: Option<String>,
    /// Whether other hosts of charts get the credentials, too.
    pub passes_credentials: bool,
    /// Whether the registry is spoken to over plain HTTP.
    pub insecure: bool,
}

/// A request to make the artifact of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChartRequest {
    /// Name of the chart in a repository, or its path in another source.
    pub chart: String,
    /// The place of the chart.
    pub origin: ChartOrigin,
    /// Files that replace the default values, a later one over an earlier one.
    pub values_files: Vec<String>,
    /// Whether missing files of values are passed over.
    pub ignores_missing_values_files: bool,
    /// Build metadata that the version gets.
    pub version_metadata: Option<String>,
    /// The generation of the HelmChart. With another generation, the artifact is made again.
    pub generation: Option<i64>,
    /// The time limit.
    pub timeout: Duration,
    /// The stored chart.
    pub known: Option<StoredArtifact>,
    /// Whether the platform asks: a tenant's request is bound to the addresses that an administrator allows to tenants.
    pub platform: bool,
}

/// The place of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChartOrigin {
    /// A repository with an index.
    Index {
        /// The repository.
        repository: RepositoryAccess,
        /// The HelmRepository, whose artifact is the index.
        index: FoundSource,
        /// A version, or a range of versions.
        version: String,
    },
    /// A container registry.
    Registry {
        /// The registry, with the path that the charts are in.
        repository: RepositoryAccess,
        /// A version, or a range of versions.
        version: String,
        /// Secret with the public keys of which one must have signed the chart.
        keys: Option<String>,
    },
    /// The files of another source.
    Files(FoundSource),
}
