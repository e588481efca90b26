//! `PackageValues` (cozystack.io/v1alpha1): an administrator's changes of the Package with the same name, in an object that no chart writes. So
//! neither side has to take a field from the other.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::condition::Condition;
use crate::package::any_values;

/// Changes that are laid over the Package of the same name. No controller of Tenure acts on this kind yet.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cozystack.io",
    version = "v1alpha1",
    kind = "PackageValues",
    plural = "packagevalues",
    singular = "packagevalues",
    shortname = "pkgv",
    status = "PackageValuesStatus",
    derive = "PartialEq",
    doc = "PackageValues overrides values of the Package with the same name.",
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].status"
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
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PackageValuesSpec {
    /// Changes of components, by their names in the PackageSource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, ComponentValues>,
    /// Packages that the variant depends on and that need not be ready, in addition to those of the Package.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore_dependencies: Vec<String>,
}

/// Changes of one component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ComponentValues {
    /// Installs the component. Default: as in the Package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Values to remove, as JSON pointers such as `/controller/replicas`, at most 1,000. A `null` in `values` does not remove a value: a patch drops the `null`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(max = 1024), regex(pattern = r"^(/[^/]*)+$")))]
    pub unset: Vec<String>,
    /// Values of the component's Helm chart, laid over the values of the Package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_values")]
    pub values: Option<Map<String, Value>>,
}

/// State of the PackageValues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageValuesStatus {
    /// Conditions: Accepted, Merged and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The `metadata.generation` that was reconciled last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
