//! `Package` (cozystack.io/v1alpha1): the installed variant of a PackageSource, and changes of its components. Cozystack's fields, and the
//! status fields by which later readers see its age.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::condition::Condition;

/// The Package with which an administrator begins a platform: no chart renders it.
pub const BOOTSTRAP: &str = "cozystack.cozystack-platform";
/// The namespace of the source of the platform's charts.
pub const SUPPLY_NAMESPACE: &str = "cozy-system";
/// The name of that source.
pub const SUPPLY_NAME: &str = "cozystack-packages";

/// The variant of a Package that names none.
pub const DEFAULT_VARIANT: &str = "default";
/// Label of a HelmRelease: the Package that made it. The label is for people and selectors, and proves nothing.
pub const PACKAGE_LABEL: &str = "cozystack.io/package";
/// Label of a HelmRelease of a privileged component: `true`.
pub const PRIVILEGED_LABEL: &str = "cozystack.io/privileged";
/// Label of a namespace of the platform: `true`.
pub const SYSTEM_LABEL: &str = "cozystack.io/system";
/// The beginning of the names of namespaces that are not the platform's.
pub const TENANT_NAMESPACE_PREFIX: &str = "tenant-";
/// Annotation of a HelmRelease: the values files of its component, separated by commas.
pub const VALUES_FILES: &str = "cozyhr.cozystack.io/values-files";
/// Annotation of a PackageSource: `true` leaves the Secret [`PLATFORM_VALUES`] out of its HelmReleases.
pub const SKIP_PLATFORM_VALUES: &str = "operator.cozystack.io/skip-cozystack-values";
/// The Secret with the platform's values, in each namespace of the platform.
pub const PLATFORM_VALUES: &str = "cozystack-values";
/// Annotation with which Helm, and the removal of releases, leave an object in the cluster: [`KEEP`].
pub const RESOURCE_POLICY: &str = "helm.sh/resource-policy";
/// Value of [`RESOURCE_POLICY`].
pub const KEEP: &str = "keep";
/// Annotation of a Package: `Orphan` leaves its HelmReleases in the cluster when the Package is deleted.
pub const DELETION_POLICY: &str = "tenure.dev/deletion-policy";
/// Value of [`DELETION_POLICY`].
pub const ORPHAN: &str = "Orphan";
/// Field manager of the HelmReleases, Namespaces and ArtifactGenerators that Tenure writes for Packages and PackageSources.
pub const PACKAGE_CONTROLLER: &str = "tenure-package-controller";

/// Variant to install, and changes of its components.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cozystack.io",
    version = "v1alpha1",
    kind = "Package",
    plural = "packages",
    shortname = "pkg",
    shortname = "pkgs",
    status = "PackageStatus",
    derive = "PartialEq",
    doc = "Package selects the variant that is installed of the PackageSource with the same name.",
    printcolumn(
        name = "Variant",
        type_ = "string",
        json_path = ".spec.variant",
        description = "Selected variant"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Overridden",
        type_ = "string",
        json_path = ".status.overridden",
        description = "Components that a PackageValues changes"
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct PackageSpec {
    /// Changes of components, by their names in the PackageSource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, PackageComponent>,
    /// Packages that the variant depends on and that need not be ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore_dependencies: Vec<String>,
    /// Variant of the PackageSource. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// Changes of one component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PackageComponent {
    /// Installs the component. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Values of the component's Helm chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_values")]
    pub values: Option<Map<String, Value>>,
}

/// State of the Package.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageStatus {
    /// The PackageValues whose changes all HelmReleases have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_values: Option<ValuesVersion>,
    /// Conditions of the Package.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Packages that the variant depends on, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dependencies: BTreeMap<String, DependencyStatus>,
    /// The last handled value of the annotation `reconcile.fluxcd.io/requestedAt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The `metadata.generation` that was reconciled last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The PackageValues that was reconciled last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_values: Option<ValuesVersion>,
    /// Components that a PackageValues changes, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden: Option<String>,
    /// HelmReleases that the Package created, or is about to create. A HelmRelease without an entry is never changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<PackageRelease>,
}

/// A version of the PackageValues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ValuesVersion {
    /// The `metadata.generation` of the PackageValues.
    pub generation: i64,
    /// The `metadata.uid` of the PackageValues.
    pub uid: String,
}

/// A HelmRelease of the Package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PackageRelease {
    /// Component of the PackageSource.
    pub component: String,
    /// Name of the HelmRelease.
    pub name: String,
    /// Namespace of the HelmRelease.
    pub namespace: String,
    /// Digests of the proofs of creation. The entry has them until the uid is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proof_digests: Vec<String>,
    /// The HelmRelease is being removed, as an administrator allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removing: bool,
    /// Uid of the HelmRelease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// State of a Package that the variant depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DependencyStatus {
    /// The Package is ready.
    pub ready: bool,
}

/// Returns the schema of a Helm chart's values: any fields, stored as they were written.
pub(crate) fn any_values(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "object",
        "description": "Values of its Helm chart.",
        "x-kubernetes-preserve-unknown-fields": true
    })
}
