//! `PackageSource` (cozystack.io/v1alpha1): where the charts of a Package come from, and in which variants they are installed. Cozystack's fields.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::selector::CustomHealthCheck;

/// The charts of a Package.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cozystack.io",
    version = "v1alpha1",
    kind = "PackageSource",
    plural = "packagesources",
    shortname = "pks",
    status = "PackageSourceStatus",
    derive = "PartialEq",
    doc = "PackageSource says where the charts of the Package of its name come from.",
    printcolumn(
        name = "Variants",
        type_ = "string",
        json_path = ".status.variants",
        description = "Variants, with commas between them"
    ),
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
pub struct PackageSourceSpec {
    /// The source of the charts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<PackageSourceReference>,
    /// What can be installed of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<PackageVariant>,
}

/// A source of charts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PackageSourceReference {
    /// Its kind.
    #[schemars(extend("enum" = ["GitRepository", "OCIRepository"]))]
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The folder below which paths are; of a GitRepository `packages` when absent, else the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// One way in which a Package can be installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PackageVariant {
    /// Its components, each a Helm release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<VariantComponent>,
    /// Packages that have to be ready before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Library charts that components use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<PackageLibrary>,
    /// Its name.
    pub name: String,
}

/// A library chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PackageLibrary {
    /// What it is called below `charts`; the last part of its path when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its folder.
    pub path: String,
}

/// A component: a chart, and how it is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct VariantComponent {
    /// How it is installed; it isn't when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<ComponentInstall>,
    /// Libraries of the variant that it uses, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<String>,
    /// Its name.
    pub name: String,
    /// The chart's folder.
    pub path: String,
    /// Files of values, the later over the earlier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,
}

/// How a component is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ComponentInstall {
    /// Components that have to be installed before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// When its custom resources are healthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_check_exprs: Vec<CustomHealthCheck>,
    /// Namespace of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether its Pods need the Pod security level `privileged`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// Name of the release; the component's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_name: Option<String>,
    /// What an upgrade does with the chart's CRDs; nothing when absent.
    #[serde(default, rename = "upgradeCRDs", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Skip", "Create", "CreateReplace"]))]
    pub upgrade_crds: Option<String>,
    /// How readiness is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["poller", "legacy"]))]
    pub wait_strategy: Option<String>,
}

/// What was observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageSourceStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Names of the variants, with commas between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variants: Option<String>,
}
