//! The objects that a Tenant sets in each of its namespaces: LimitRanges, NetworkPolicies, ResourceQuotas, and labels and
//! annotations.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::label_selector::LabelSelector;

/// Objects of one kind in each of the tenant's namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct TenantItems {
    /// The `spec` of each object, as in Kubernetes: at most 16 items, each of at most 16 KiB as JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "write_items_schema")]
    pub items: Vec<Map<String, Value>>,
}

/// ResourceQuotas for the tenant's namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct TenantResourceQuotas {
    /// `Tenant` (default): the quotas bound all of the tenant's namespaces together. `Namespace`: they bound each namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Tenant", "Namespace"]))]
    pub scope: Option<String>,
    /// The `spec` of each ResourceQuota, as in Kubernetes: at most 16 items, each of at most 16 KiB as JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "write_items_schema")]
    pub items: Vec<Map<String, Value>>,
}

impl TenantResourceQuotas {
    /// Whether each of the namespaces is bounded for itself.
    #[must_use]
    pub fn is_for_each_namespace(&self) -> bool {
        self.scope.as_deref() == Some("Namespace")
    }
}

/// Labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AdditionalMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Labels and annotations of selected namespaces. In values, `{{ tenant.name }}` and `{{ namespace }}` stand for names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SelectedMetadata {
    /// Namespaces of the tenant that get the labels and annotations. Default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Objects of which Kubernetes knows the fields, and says what is wrong with them once they are written.
fn write_items_schema(_: &mut SchemaGenerator) -> Schema {
    let schema = json!({
        "type": "array",
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true }
    });
    Schema::try_from(schema).unwrap_or_default()
}
