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

/// Variant to install, and changes of its components. No controller of Tenure acts on this kind yet.
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
    /// Conditions of the Package.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Packages that the variant depends on, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dependencies: BTreeMap<String, DependencyStatus>,
    /// The `metadata.generation` that was reconciled last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Components that a PackageValues changes, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden: Option<String>,
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
