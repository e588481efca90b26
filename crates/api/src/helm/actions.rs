//! The settings of a HelmRelease for each action of Helm.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::DurationText;
use crate::kustomization::is_false;

/// The settings that an installation and an upgrade have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct CommonAction {
    /// Handling of the definitions in the folder `crds` of the chart. Default: `Create` for an installation, and `Skip` for an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Skip", "Create", "CreateReplace"]))]
    pub crds: Option<String>,
    /// Runs no hooks. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_hooks: bool,
    /// Does not validate objects against the schemas of the API server. Default: false.
    #[serde(default, rename = "disableOpenAPIValidation", skip_serializing_if = "is_false")]
    pub disable_open_api_validation: bool,
    /// Does not validate the values against the schema of the chart. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_schema_validation: bool,
    /// Refuses to take over objects of others. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_take_ownership: bool,
    /// Does not wait for objects. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_wait: bool,
    /// Does not wait for Jobs. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_wait_for_jobs: bool,
    /// Way to go on after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [write_retry_rule()]))]
    pub strategy: Option<Strategy>,
    /// Time limit of one operation. Default: `spec.timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
}

/// Settings of an installation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Install {
    /// The settings that an installation and an upgrade have in common.
    #[serde(flatten)]
    pub common: CommonAction,
    /// Creates the target namespace. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub create_namespace: bool,
    /// Reaction to a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation: Option<InstallRemediation>,
    /// Uses the name of a release that was deleted and is still recorded. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replace: bool,
    /// Applies on the server. Default: as the controller is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_side_apply: Option<bool>,
    /// Does not install the definitions of the chart. `crds` takes its place.
    #[serde(default, rename = "skipCRDs", skip_serializing_if = "is_false")]
    pub skip_crds: bool,
}

/// Settings of an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Upgrade {
    /// The settings that an installation and an upgrade have in common.
    #[serde(flatten)]
    pub common: CommonAction,
    /// Action when the name of the chart changes. Default: `Reinstall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["InPlaceUpdate", "Reinstall"]))]
    pub chart_name_change_strategy: Option<String>,
    /// Deletes new objects of a failed upgrade. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cleanup_on_fail: bool,
    /// Replaces objects that can't be changed. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// Keeps the values of the last release below the new ones. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub preserve_values: bool,
    /// Reaction to a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation: Option<UpgradeRemediation>,
    /// Applies on the server. Default: as the last release did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["enabled", "disabled", "auto"]))]
    pub server_side_apply: Option<String>,
}

/// Way to go on after a failed installation or upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Strategy {
    /// `RemediateOnFailure` follows `remediation`, and `RetryOnFailure` tries again and rolls nothing back.
    #[schemars(extend("enum" = ["RemediateOnFailure", "RetryOnFailure"]))]
    pub name: String,
    /// Pause before another try, for `RetryOnFailure`. Default: `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<DurationText>,
}

/// Returns the rule of a [`Strategy`].
fn write_retry_rule() -> serde_json::Value {
    serde_json::json!({
        "rule": "!has(self.retryInterval) || self.name == 'RetryOnFailure'",
        "message": "only RetryOnFailure takes retryInterval"
    })
}

/// Reaction to a failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct InstallRemediation {
    /// Counts failed tests as a success. Default: as `spec.test` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_test_failures: Option<bool>,
    /// Uninstalls or rolls back after the last try, too. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediate_last_failure: Option<bool>,
    /// Tries after the first one; -1 for no end. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<i64>,
}

/// Reaction to a failed upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct UpgradeRemediation {
    /// The settings that an installation has, too.
    #[serde(flatten)]
    pub common: InstallRemediation,
    /// Action after a failure. Default: `rollback`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["rollback", "uninstall"]))]
    pub strategy: Option<String>,
}

/// Settings of the chart's tests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Test {
    /// Runs the tests after an installation or upgrade. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub enable: bool,
    /// Tests to run or to leave out. Default: all run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<TestFilter>,
    /// Counts failed tests as a success. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ignore_failures: bool,
    /// Time limit of one operation. Default: `spec.timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
}

/// A test to run or to leave out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct TestFilter {
    /// Leaves the test out. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exclude: bool,
    /// Name of the test.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Settings of a rollback.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Rollback {
    /// Deletes new objects of a failed rollback. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cleanup_on_fail: bool,
    /// Runs no hooks. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_hooks: bool,
    /// Does not wait for objects. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_wait: bool,
    /// Does not wait for Jobs. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_wait_for_jobs: bool,
    /// Replaces objects that can't be changed. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// Restarts Pods. Helm 4 does not do that any more.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recreate: bool,
    /// Applies on the server. Default: as the release did that it goes back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["enabled", "disabled", "auto"]))]
    pub server_side_apply: Option<String>,
    /// Time limit of one operation. Default: `spec.timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
}

/// Settings of the uninstallation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Uninstall {
    /// Order in which Kubernetes deletes an object and what it owns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["background", "foreground", "orphan"], "default" = "background"))]
    pub deletion_propagation: Option<String>,
    /// Runs no hooks. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_hooks: bool,
    /// Does not wait until all objects are gone. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_wait: bool,
    /// Keeps Helm's records of the release. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keep_history: bool,
    /// Time limit of one operation. Default: `spec.timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
}
