//! `HelmChart` (source.toolkit.fluxcd.io/v1) with the fields of source-controller 1.9.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::condition::Condition;
use crate::duration::DurationText;
use crate::kustomization::is_false;
use crate::reference::LocalObjectReference;

/// Chart of a source to package.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "HelmChart",
    plural = "helmcharts",
    shortname = "hc",
    namespaced,
    status = "HelmChartStatus",
    derive = "PartialEq",
    doc = "HelmChart is a Helm chart of a HelmRepository or another source.",
    printcolumn(name = "Chart", type_ = "string", json_path = ".spec.chart"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Source Kind", type_ = "string", json_path = ".spec.sourceRef.kind"),
    printcolumn(name = "Source Name", type_ = "string", json_path = ".spec.sourceRef.name"),
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
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.verify) || self.sourceRef.kind == 'HelmRepository'", "message": "only charts of a HelmRepository are verified" }
]))]
pub struct HelmChartSpec {
    /// Name of the chart in a HelmRepository, or its path in another source.
    pub chart: String,
    /// Passes over entries of `valuesFiles` that do not exist. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ignore_missing_values_files: bool,
    /// Time between two checks of the source, such as `5m`.
    pub interval: DurationText,
    /// Change of the source that makes another chart: a version of the chart, or each revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["ChartVersion", "Revision"], "default" = "ChartVersion"))]
    pub reconcile_strategy: Option<String>,
    /// Source of the chart.
    pub source_ref: LocalChartSourceReference,
    /// Stops the reconciliation while true. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Files of the source that replace the default values of the chart. A later file is laid over an earlier one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,
    /// Verification of signatures, for a HelmRepository of type `oci`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<ChartVerification>,
    /// Range of versions. Only a HelmRepository has versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "*"))]
    pub version: Option<String>,
}

/// Reference to a source in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct LocalChartSourceReference {
    /// API version of the referent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the referent.
    #[schemars(extend("enum" = ["HelmRepository", "GitRepository", "Bucket"]))]
    pub kind: String,
    /// Name of the referent.
    pub name: String,
}

/// Verification of signatures, for the HelmChart of a HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Verification {
    /// Form of the signatures.
    #[schemars(extend("enum" = ["cosign", "notation"], "default" = "cosign"))]
    pub provider: String,
    /// Secret with the trusted keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
}

/// Verification of signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ChartVerification {
    /// Identities of which one signed, for signatures without a key.
    #[serde(default, rename = "matchOIDCIdentity", skip_serializing_if = "Vec::is_empty")]
    pub match_oidc_identity: Vec<crate::oci_repository::OidcIdentityMatch>,
    /// Form of the signatures.
    #[schemars(extend("enum" = ["cosign", "notation"], "default" = "cosign"))]
    pub provider: String,
    /// Secret with the trusted keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
}

/// State of the HelmChart and of its artifact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartStatus {
    /// Artifact that was made last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Conditions: Ready, ArtifactInStorage, BuildFailed, FetchFailed, Reconciling and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Last value of the annotation `reconcile.fluxcd.io/requestedAt` that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Name of the chart that was found last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_chart_name: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Revision of the source when the artifact was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_source_artifact_revision: Option<String>,
    /// Files of values in the artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_values_files: Vec<String>,
    /// Address at which Flux serves the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
