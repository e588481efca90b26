//! The status of a HelmRelease, as helm-controller writes it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::inventory::ResourceInventory;
use crate::time::{self, Time};

/// State of the HelmRelease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmReleaseStatus {
    /// Conditions: Ready, Released, TestSuccess, Remediated, Reconciling and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Failures since the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<i64>,
    /// The HelmChart that was made for `spec.chart`, as `NAMESPACE/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm_chart: Option<String>,
    /// The last releases, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ReleaseSnapshot>,
    /// Failed installations since the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_failures: Option<i64>,
    /// Objects of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// Digest of the values of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_config_digest: Option<String>,
    /// The `metadata.generation` of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_generation: Option<i64>,
    /// Action of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["install", "upgrade"]))]
    pub last_attempted_release_action: Option<String>,
    /// Duration of that action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_release_action_duration: Option<String>,
    /// Version of the chart of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,
    /// Digest of the chart of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision_digest: Option<String>,
    /// Checksum of the values of the last attempt, by earlier versions of helm-controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_values_checksum: Option<String>,
    /// Last value of the annotation `reconcile.fluxcd.io/forceAt` that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_force_at: Option<String>,
    /// Last value of the annotation `reconcile.fluxcd.io/requestedAt` that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Last value of the annotation `reconcile.fluxcd.io/resetAt` that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reset_at: Option<String>,
    /// Number of the last release, by earlier versions of helm-controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_release_revision: Option<i64>,
    /// Digest of `spec.commonMetadata` of the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_common_metadata_digest: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Digest of `spec.postRenderers` of the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_post_renderers_digest: Option<String>,
    /// Namespace of Helm's records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub storage_namespace: Option<String>,
    /// Failed upgrades since the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_failures: Option<i64>,
}

/// A release in Helm's records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ReleaseSnapshot {
    /// Action that made the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Version of the form of this entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Version of the application, as the chart says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    /// Name of the chart.
    pub chart_name: String,
    /// Version of the chart.
    pub chart_version: String,
    /// Digest of the values.
    pub config_digest: String,
    /// Time of the deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub deleted: Option<Time>,
    /// Digest of the release.
    pub digest: String,
    /// Time of the first release.
    #[schemars(schema_with = "time::describe")]
    pub first_deployed: Time,
    /// Time of this release.
    #[schemars(schema_with = "time::describe")]
    pub last_deployed: Time,
    /// Name of the release.
    pub name: String,
    /// Namespace of the release.
    pub namespace: String,
    /// Digest of the chart's artifact in a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci_digest: Option<String>,
    /// State of the release in Helm.
    pub status: String,
    /// Results of tests, by their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_hooks: Option<BTreeMap<String, TestResult>>,
    /// Number of the release.
    pub version: i64,
}

/// Result of a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct TestResult {
    /// Time of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub last_completed: Option<Time>,
    /// Time of its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub last_started: Option<Time>,
    /// State in Helm's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}
