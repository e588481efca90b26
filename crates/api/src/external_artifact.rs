//! `ExternalArtifact` (source.toolkit.fluxcd.io/v1) with all of Flux's fields: what an ArtifactGenerator generates, and what controllers that
//! are neither Flux's nor Tenure's make and tell of in its status.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::condition::Condition;

/// What an artifact was made for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "ExternalArtifact",
    plural = "externalartifacts",
    namespaced,
    status = "ExternalArtifactStatus",
    derive = "PartialEq",
    doc = "ExternalArtifact is an artifact that was made of other sources.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message"
    ),
    printcolumn(name = "Source", type_ = "string", json_path = ".spec.sourceRef.name")
)]
#[serde(rename_all = "camelCase")]
pub struct ExternalArtifactSpec {
    /// The object for which the artifact is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<ArtifactOwnerReference>,
}

/// An object for which an artifact is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ArtifactOwnerReference {
    /// Its API version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its namespace; that of the ExternalArtifact when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// What was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalArtifactStatus {
    /// What was made last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Conditions: Ready, ArtifactInStorage, FetchFailed, StorageOperationFailed, Reconciling and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
