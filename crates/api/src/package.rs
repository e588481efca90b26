//! `Package` (cozystack.io/v1alpha1): which variant of a PackageSource is installed, and what is changed of its components. Cozystack's fields,
//! and those of the status by which later readers see how old it is.

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
/// The namespace of the source that the platform's charts come from.
pub const SUPPLY_NAMESPACE: &str = "cozy-system";
/// The name of that source.
pub const SUPPLY_NAME: &str = "cozystack-packages";

/// What is installed of a PackageSource.
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
    doc = "Package says which variant of the PackageSource of its name is installed.",
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
    /// What is changed of components, by their names in the PackageSource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, PackageComponent>,
    /// Packages that the variant depends on and that need not be ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore_dependencies: Vec<String>,
    /// The variant of the PackageSource; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// What is changed of a component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PackageComponent {
    /// Whether it is installed; it is when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Values of its Helm chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_values")]
    pub values: Option<Map<String, Value>>,
}

/// What was observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The Packages that the variant depends on, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dependencies: BTreeMap<String, DependencyStatus>,
    /// The generation that was last seen to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The components that a PackageValues changes, with commas between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden: Option<String>,
}

/// A Package that another one depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DependencyStatus {
    /// Whether it is ready.
    pub ready: bool,
}

/// Values of a Helm chart: any fields, kept as they were written.
pub(crate) fn any_values(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "object",
        "description": "Values of its Helm chart.",
        "x-kubernetes-preserve-unknown-fields": true
    })
}
