//! `PackageSource` (cozystack.io/v1alpha1): the charts of a Package, and the variants in which they are installed. Cozystack's fields.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::selector::CustomHealthCheck;

/// The kind of a source whose charts are in the folder [`GIT_FOLDER`] by default.
pub const GIT_REPOSITORY: &str = "GitRepository";
/// The folder of the charts in a GitRepository.
pub const GIT_FOLDER: &str = "packages";
/// Label of an ArtifactGenerator: the PackageSource that made it.
pub const PACKAGE_SOURCE_LABEL: &str = "cozystack.io/packagesource";
/// Values of `install.upgradeCRDs`.
pub const CRD_POLICIES: [&str; 3] = ["Skip", "Create", "CreateReplace"];
/// Values of `install.waitStrategy`. Helm evaluates `healthCheckExprs` only with the first one.
pub const WAIT_STRATEGIES: [&str; 2] = ["poller", "legacy"];

/// Source of the charts, and the variants to install from it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cozystack.io",
    version = "v1alpha1",
    kind = "PackageSource",
    plural = "packagesources",
    shortname = "pks",
    status = "PackageSourceStatus",
    derive = "PartialEq",
    doc = "PackageSource names the source of the charts for the Package with the same name.",
    printcolumn(
        name = "Variants",
        type_ = "string",
        json_path = ".status.variants",
        description = "Variants, separated by commas"
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
    /// Source of the charts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<PackageSourceReference>,
    /// Variants that can be installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<PackageVariant>,
}

/// A source of charts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PackageSourceReference {
    /// Kind of the source.
    #[schemars(extend("enum" = ["GitRepository", "OCIRepository"]))]
    pub kind: String,
    /// Name of the source.
    pub name: String,
    /// Namespace of the source.
    pub namespace: String,
    /// Folder of the source that all other paths are relative to. Default: `packages` for a GitRepository, the root for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A variant of the Package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PackageVariant {
    /// Components of the variant. Each component is a Helm release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<VariantComponent>,
    /// Packages that must be ready before this variant is installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Library charts that the components use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<PackageLibrary>,
    /// Name of the variant.
    pub name: String,
}

/// A library chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PackageLibrary {
    /// Name of the library below `charts`. Default: the last part of `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Folder of the library chart.
    pub path: String,
}

/// A component: a Helm chart and its installation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct VariantComponent {
    /// Installation of the component. Without this field, the component is not installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<ComponentInstall>,
    /// Libraries of the variant that the component uses, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<String>,
    /// Name of the component.
    pub name: String,
    /// Folder of the Helm chart.
    pub path: String,
    /// Values files of the chart. A later file wins over an earlier one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,
}

/// Installation of a component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ComponentInstall {
    /// Components that must be installed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// CEL expressions for the health of the component's custom resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_check_exprs: Vec<CustomHealthCheck>,
    /// Namespace of the Helm release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The Pods of the component need the Pod Security level `privileged`. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// Name of the Helm release. Default: the name of the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_name: Option<String>,
    /// Handling of the chart's CRDs during an upgrade: `Skip`, `Create` or `CreateReplace`. Default: an upgrade does not change them.
    #[serde(default, rename = "upgradeCRDs", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Skip", "Create", "CreateReplace"]))]
    pub upgrade_crds: Option<String>,
    /// Strategy to wait until the release is ready: `poller` or `legacy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["poller", "legacy"]))]
    pub wait_strategy: Option<String>,
}

/// State of the PackageSource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageSourceStatus {
    /// Conditions of the PackageSource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The ArtifactGenerator that the PackageSource created, or is about to create.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<RecordedGenerator>,
    /// The last handled value of the annotation `reconcile.fluxcd.io/requestedAt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The `metadata.generation` that was reconciled last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Names of the variants, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variants: Option<String>,
}

/// The ArtifactGenerator of a PackageSource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RecordedGenerator {
    /// Name of the ArtifactGenerator.
    pub name: String,
    /// Namespace of the ArtifactGenerator.
    pub namespace: String,
    /// Digests of the proofs of creation. The entry has them until the uid is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proof_digests: Vec<String>,
    /// Uid of the ArtifactGenerator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}
