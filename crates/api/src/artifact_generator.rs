//! `ArtifactGenerator` (source.extensions.fluxcd.io/v1beta1) with all of Flux's fields. The planner decides which of them are implemented.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// Artifacts to make, and the sources of their files.
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
    doc = "ArtifactGenerator makes ExternalArtifacts from the files of other sources.",
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
    /// Artifacts to make, 1 to 1,000.
    #[schemars(length(min = 1, max = 1000))]
    pub artifacts: Vec<OutputArtifact>,
    /// Labels and annotations of all ExternalArtifacts of this generator, at most 100 each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<ArtifactMetadata>,
    /// Pattern for folders of a source, such as `@<alias>/apps/{app}`. Every entry of `artifacts` is made once for each matching folder; `{app}` in its name and paths
    /// stands for the matched text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"))]
    pub path_pattern: Option<String>,
    /// Sources of the files, 1 to 1,000.
    #[schemars(length(min = 1, max = 1000))]
    pub sources: Vec<ArtifactSource>,
}

/// Labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ArtifactMetadata {
    /// Annotations of the ExternalArtifacts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels of the ExternalArtifacts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A source of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ArtifactSource {
    /// Name of the source in `artifacts` and `pathPattern`, unique in this generator: at most 63 lower-case letters, digits, `-` and `_`.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$"))]
    pub alias: String,
    /// Kind of the source.
    #[schemars(extend("enum" = ["Bucket", "GitRepository", "OCIRepository", "HelmChart", "ExternalArtifact"]))]
    pub kind: String,
    /// Name of the source.
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,
    /// Namespace of the source. Default: the namespace of the generator. Another namespace must belong to the same tenant, or an administrator must grant the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
}

/// An artifact to make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct OutputArtifact {
    /// Copies that fill the artifact, in this order, at most 500. A later copy replaces files of an earlier one.
    #[schemars(length(min = 1))]
    pub copy: Vec<CopyOperation>,
    /// Name of the ExternalArtifact. With a `pathPattern`, the name may contain the `{names}` of that pattern.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Source, as `@<alias>`, for the origin in the artifact's metadata: the origin revision of the source, or else its revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"))]
    pub origin_revision: Option<String>,
    /// Source, as `@<alias>`, whose revision the artifact gets. Default: the revision is `latest@<digest>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"))]
    pub revision: Option<String>,
}

/// Files to copy into the artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct CopyOperation {
    /// Patterns of files and folders to leave out, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub exclude: Vec<String>,
    /// Files to copy, as `@<alias>/<pattern>`: a file, a folder or a pattern.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$")
    )]
    pub from: String,
    /// `Overwrite` (default) replaces an existing file. `Merge` merges YAML into the existing file. `Extract` copies the content of an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Overwrite", "Merge", "Extract"]))]
    pub strategy: Option<String>,
    /// Target in the artifact, as `@artifact/<path>`. A path with `/` at its end is a folder.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^@(artifact)/(.*)$"))]
    pub to: String,
}

/// State of the ArtifactGenerator and of its artifacts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactGeneratorStatus {
    /// Conditions: Ready, Reconciling and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// ExternalArtifacts that the generator made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<GeneratedArtifact>,
    /// Last value of the annotation `reconcile.fluxcd.io/requestedAt` that the controller handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Digest of the artifacts of all sources at the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_sources_digest: Option<String>,
}

/// An ExternalArtifact of the generator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct GeneratedArtifact {
    /// Digest of the archive.
    pub digest: String,
    /// File name of the archive.
    pub filename: String,
    /// Name of the ExternalArtifact.
    pub name: String,
    /// Namespace of the ExternalArtifact.
    pub namespace: String,
}
