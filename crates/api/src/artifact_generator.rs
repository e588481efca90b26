//! `ArtifactGenerator` (source.extensions.fluxcd.io/v1beta1) with all of Flux's fields. Which of them are implemented is the planner's to say.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// Which artifacts to make, and of what.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.extensions.fluxcd.io",
    version = "v1beta1",
    kind = "ArtifactGenerator",
    plural = "artifactgenerators",
    shortname = "ag",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-sources",
    namespaced,
    status = "ArtifactGeneratorStatus",
    derive = "PartialEq",
    annotation("kustomize.toolkit.fluxcd.io/substitute", "disabled"),
    doc = "ArtifactGenerator makes ExternalArtifacts of the files of other sources.",
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
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactGeneratorSpec {
    /// The artifacts that are made.
    #[schemars(length(min = 1, max = 1000))]
    pub artifacts: Vec<OutputArtifact>,
    /// Labels and annotations of everything that is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<ArtifactMetadata>,
    /// Folders of a source, `@<alias>/<pattern>`: `artifacts` is made for each that matches, with what its `{names}` stand for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"))]
    pub path_pattern: Option<String>,
    /// The sources whose files they are made of.
    #[schemars(length(min = 1, max = 1000))]
    pub sources: Vec<ArtifactSource>,
}

/// Labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ArtifactMetadata {
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A source of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ArtifactSource {
    /// What it is called in `artifacts`.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$"))]
    pub alias: String,
    /// Its kind.
    #[schemars(extend("enum" = ["Bucket", "GitRepository", "OCIRepository", "HelmChart", "ExternalArtifact"]))]
    pub kind: String,
    /// Its name.
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,
    /// Its namespace; that of the generator when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
}

/// An artifact that is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct OutputArtifact {
    /// What is copied into it, one after the other: what comes later is put over what came before.
    #[schemars(length(min = 1))]
    pub copy: Vec<CopyOperation>,
    /// Name of its ExternalArtifact; with a `pathPattern` it may have `{names}` of that.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The source, `@<alias>`, whose origin is told in the artifact's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"))]
    pub origin_revision: Option<String>,
    /// The source, `@<alias>`, whose revision it bears; `latest@<digest>` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"))]
    pub revision: Option<String>,
}

/// Files that are copied into an artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct CopyOperation {
    /// Patterns of files and folders that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub exclude: Vec<String>,
    /// From where, `@<alias>/<pattern>`.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$")
    )]
    pub from: String,
    /// What becomes of a file that is there already: `Overwrite`, which is meant when absent, `Merge` for YAML; or `Extract`, which copies
    /// what is in an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Overwrite", "Merge", "Extract"]))]
    pub strategy: Option<String>,
    /// To where, `@artifact/<path>`.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^@(artifact)/(.*)$"))]
    pub to: String,
}

/// What was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactGeneratorStatus {
    /// Conditions: Ready, Reconciling and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The ExternalArtifacts that were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<GeneratedArtifact>,
    /// The last value of the annotation `reconcile.fluxcd.io/requestedAt` that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Digest of what all sources had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_sources_digest: Option<String>,
}

/// An ExternalArtifact that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct GeneratedArtifact {
    /// Digest of its archive.
    pub digest: String,
    /// Name of the archive's file.
    pub filename: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}
