//! `HelmRelease` (helm.toolkit.fluxcd.io/v2) with the fields of helm-controller 1.6.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::actions::{Install, Rollback, Test, Uninstall, Upgrade};
use super::chart::Verification;
use super::release_status::HelmReleaseStatus;
use crate::duration::DurationText;
use crate::kustomization::{CommonMetadata, IgnoreRule, KubeConfigReference, is_false};
use crate::package::any_values;
use crate::package_values::ReferenceKind;
use crate::reference::DependencyReference;
use crate::selector::{CustomHealthCheck, Image, Patch};

/// A chart to install, its values, and the account that installs it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "helm.toolkit.fluxcd.io",
    version = "v2",
    kind = "HelmRelease",
    plural = "helmreleases",
    shortname = "hr",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-appliers",
    namespaced,
    status = "HelmReleaseStatus",
    derive = "PartialEq",
    doc = "HelmRelease is a Helm chart that helm-controller installs and upgrades.",
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
    { "rule": "has(self.chart) != has(self.chartRef)", "message": "set either chart or chartRef" }
]))]
pub struct HelmReleaseSpec {
    /// HelmChart to make for this release. Either this or `chartRef` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<ChartTemplate>,
    /// Source of the chart. Either this or `chart` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart_ref: Option<ChartReference>,
    /// Labels and annotations of all objects of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// HelmReleases that must be ready first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependencyReference>,
    /// Detection of changes that others made to the objects of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift_detection: Option<DriftDetection>,
    /// Expressions that decide whether objects of custom kinds are healthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_check_exprs: Vec<CustomHealthCheck>,
    /// Settings of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<Install>,
    /// Time between two reconciliations, such as `5m`.
    pub interval: DurationText,
    /// Cluster that the chart is installed in. Default: this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigReference>,
    /// Releases that Helm keeps; 0 for all. Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_history: Option<i64>,
    /// Keeps one client for all actions of a reconciliation. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_client: Option<bool>,
    /// Way in which the changes of `postRenderers` reach the hooks of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["nohooks", "combined", "separate"]))]
    pub post_render_strategy: Option<String>,
    /// Changes of the rendered objects, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post_renderers: Vec<PostRenderer>,
    /// Name of the release in Helm. Default: that of the HelmRelease, after the target namespace if one is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 53))]
    pub release_name: Option<String>,
    /// Settings of a rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// ServiceAccount of this namespace that helm-controller acts as. Default: its own account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Namespace of Helm's records of the release. Default: this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub storage_namespace: Option<String>,
    /// Stops the reconciliation while true. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Namespace that the chart is installed in. Default: this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,
    /// Settings of the chart's tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<Test>,
    /// Time limit of one operation of Helm, such as a Job of a hook. Default: `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
    /// Settings of the uninstallation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uninstall: Option<Uninstall>,
    /// Settings of an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// Values of the chart, laid over those of `valuesFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_values")]
    pub values: Option<Value>,
    /// Secrets and ConfigMaps with values. A later one is laid over an earlier one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_from: Vec<ValuesReference>,
    /// Way to wait for the objects of the chart. Default: `poller`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_strategy: Option<WaitStrategy>,
}

/// A HelmChart for one HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ChartTemplate {
    /// Labels and annotations of the HelmChart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<CommonMetadata>,
    /// The spec of the HelmChart.
    pub spec: ChartTemplateSpec,
}

/// The spec of a HelmChart for one HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ChartTemplateSpec {
    /// Name of the chart in a HelmRepository, or its path in another source.
    #[schemars(length(min = 1, max = 2048))]
    pub chart: String,
    /// Passes over entries of `valuesFiles` that do not exist. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ignore_missing_values_files: bool,
    /// Time between two checks of the source. Default: the interval of the HelmRelease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<DurationText>,
    /// Change of the source that makes another chart: a version of the chart, or each revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["ChartVersion", "Revision"], "default" = "ChartVersion"))]
    pub reconcile_strategy: Option<String>,
    /// Source of the chart.
    pub source_ref: ChartSourceReference,
    /// Files of the source that replace the default values of the chart. A later file is laid over an earlier one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,
    /// Verification of signatures. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verification>,
    /// Range of versions. Only a HelmRepository has versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "*"))]
    pub version: Option<String>,
}

/// Reference to the source of a HelmChart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ChartSourceReference {
    /// API version of the referent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the referent.
    #[schemars(extend("enum" = ["HelmRepository", "GitRepository", "Bucket"]))]
    pub kind: String,
    /// Name of the referent.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the referent. Default: this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// Reference to a source with a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ChartReference {
    /// API version of the referent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the referent.
    #[schemars(extend("enum" = ["OCIRepository", "HelmChart", "ExternalArtifact"]))]
    pub kind: String,
    /// Name of the referent.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the referent. Default: this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// Detection of changes that others made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DriftDetection {
    /// Fields that others may change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<IgnoreRule>,
    /// Whether changes are put back, only reported, or not detected. Default: `disabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["enabled", "warn", "disabled"]))]
    pub mode: Option<String>,
}

/// A change of the rendered objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PostRenderer {
    /// Changes as a kustomization makes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kustomize: Option<KustomizeRenderer>,
}

/// Changes as a kustomization makes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct KustomizeRenderer {
    /// Images to replace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Patches of objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
}

/// A Secret or ConfigMap with values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ValuesReference {
    /// The kind of the object.
    pub kind: ReferenceKind,
    /// Reads the text as `helm --set-literal` does: each letter stands for itself. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub literal: bool,
    /// Name of the object, in this namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Goes on without the object if it does not exist. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
    /// Path of the value that the text is, as `helm --set` writes it. Default: the text is a YAML document of values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 250), regex(pattern = r"^([a-zA-Z0-9_\-.\\\/]|\[[0-9]{1,5}\])+$"))]
    pub target_path: Option<String>,
    /// Key of the text. Default: `values.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^[\-._a-zA-Z0-9]+$"))]
    pub values_key: Option<String>,
}

/// Way to wait for objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct WaitStrategy {
    /// `poller` looks at the objects as Flux does, and `legacy` as Helm 3 does.
    #[schemars(extend("enum" = ["poller", "legacy"]))]
    pub name: String,
}
