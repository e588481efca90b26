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

/// Changes that are laid over the Package of the same name.
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
    /// Values that are texts in Secrets and ConfigMaps, at most 16. helm-controller reads them. Their writer needs the right to `get` each object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub values_from: Vec<ValueReference>,
}

/// A value of a component that is a text in a Secret or ConfigMap. The text stays unchanged: `1` and `true` are texts, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ValueReference {
    /// The component, by its name in the PackageSource.
    #[schemars(length(min = 1, max = 253))]
    pub component: String,
    /// The path of the value, such as `/database/password`. A key at the top needs no `/`. In a key, `~1` is a `/`, and `~0` is a `~`.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// The kind of the object.
    pub kind: ReferenceKind,
    /// The namespace of the object: that of the component's HelmRelease.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in the object's data.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// The kinds of objects whose texts can be values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ReferenceKind {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
}

impl ReferenceKind {
    /// Returns the name of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }
}

/// Changes of one component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ComponentValues {
    /// Installs the component. Default: as in the Package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Lists in `values` whose items merge by a key with those of the Package, at most 1,000. Every other list replaces the list of the Package.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub lists: Vec<KeyedList>,
    /// Values to remove, as paths such as `/controller/replicas`, at most 1,000. A key at the top needs no `/`. A `null` in `values` does not remove a value: a
    /// patch drops the `null`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(min = 1, max = 1024)))]
    pub unset: Vec<String>,
    /// Values of the component's Helm chart, laid over the values of the Package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_values")]
    pub values: Option<Map<String, Value>>,
}

/// A list in values whose items merge by a key. Items keep the order of the Package, and new items follow. An item `{KEY: …, $remove: true}` removes the item with this
/// key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct KeyedList {
    /// The path of the list, such as `/controller/images`. A key at the top needs no `/`. In a key, `~1` is a `/`, and `~0` is a `~`.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// The key of the items: each item has a text or a whole number there, each once in a list.
    #[schemars(length(min = 1, max = 1024))]
    pub key: String,
}

/// State of the PackageValues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageValuesStatus {
    /// The changed components with their values after the changes, by name. A component that is disabled or has invalid changes is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, EffectiveValues>,
    /// Conditions: Accepted, Merged and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The `metadata.generation` that was reconciled last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Values of a component after the changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct EffectiveValues {
    /// SHA-256 of the values as JSON with sorted keys, as `sha256:HEX`.
    pub digest: String,
    /// The paths that the PackageValues sets or removes, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<String>,
    /// The paths at which a map replaces another kind of value, at most 100. A map of `cozystack-values` or of the chart shows through there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
    /// The values of the HelmRelease as JSON with sorted keys. They are left out if all components together have more than 32 KiB of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<String>,
}
