//! `Tenant` (capsule.clastix.io/v1beta2): the part of Capsule's kind that Tenure acts on. Everything else in a spec is kept as it is
//! and can be listed ([`TenantSpec::other`]), so that an object that Capsule wrote loses nothing.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

mod bounds;
mod contents;
mod label_selector;

use std::collections::BTreeMap;

pub use bounds::{
    AllowedClasses, AllowedNames, AllowedServices, ByPolicies, CollisionScope, DeniedNames, ExternalIps,
    IngressOptions, ServiceOptions, TenantBounds,
};
pub use contents::{AdditionalMetadata, SelectedMetadata, TenantItems, TenantResourceQuotas};
use kube::CustomResource;
pub use label_selector::{LabelRequirement, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::condition::Condition;
use crate::metadata::{HOME_OWNER_CLUSTER_ROLE, NAMESPACE_DELETER_CLUSTER_ROLE, OWNER_CLUSTER_ROLE};

/// Who owns the tenant, and what its namespaces may be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "capsule.clastix.io",
    version = "v1beta2",
    kind = "Tenant",
    plural = "tenants",
    shortname = "tnt",
    status = "TenantStatus",
    derive = "PartialEq",
    doc = "Tenant is a group of namespaces with owners.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(
        name = "Namespace quota",
        type_ = "integer",
        json_path = ".spec.namespaceOptions.quota"
    ),
    printcolumn(name = "Namespace count", type_ = "integer", json_path = ".status.size"),
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
pub struct TenantSpec {
    /// Who owns the tenant. Each gets RoleBindings in every one of its namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<TenantOwner>,
    /// What the tenant's namespaces may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_options: Option<NamespaceOptions>,
    /// RoleBindings in every namespace that confer no ownership.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_role_bindings: Vec<AdditionalRoleBinding>,
    /// Whether the tenant's owners and its GitOps account may change nothing for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned: Option<bool>,
    /// Whether names of its namespaces must begin with its own name and a hyphen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_tenant_prefix: Option<bool>,
    /// Whether the Tenant may not be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prevent_deletion: Option<bool>,
    /// LimitRanges of every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ranges: Option<TenantItems>,
    /// NetworkPolicies of every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policies: Option<TenantItems>,
    /// ResourceQuotas of every namespace, or of all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_quotas: Option<TenantResourceQuotas>,
    /// Labels of the nodes that its Pods run on, as an annotation of every namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// What objects in its namespaces may be.
    #[serde(flatten)]
    pub bounds: TenantBounds,
    /// What Capsule knows and Tenure does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// One owner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct TenantOwner {
    /// Annotations of the RoleBindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// ClusterRoles bound in every namespace; `admin` and `capsule-namespace-deleter` when absent, with `tenure-home-owner` in place of
    /// `admin` in the home namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_roles: Option<Vec<String>>,
    /// What the owner is.
    #[schemars(extend("enum" = ["User", "Group", "ServiceAccount"]))]
    pub kind: String,
    /// Labels of the RoleBindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Name; of a ServiceAccount `system:serviceaccount:<namespace>:<name>`.
    pub name: String,
    /// What Capsule knows and Tenure does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// What the tenant's namespaces may be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct NamespaceOptions {
    /// How many there may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub quota: Option<i32>,
    /// Labels and annotations of all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_metadata: Option<AdditionalMetadata>,
    /// Labels and annotations of some of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_metadata_list: Vec<SelectedMetadata>,
    /// Labels that owners don't set on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden_labels: Option<DeniedNames>,
    /// Annotations that owners don't set on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden_annotations: Option<DeniedNames>,
    /// What Capsule knows and Tenure does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// A RoleBinding in every namespace that confers no ownership.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AdditionalRoleBinding {
    /// Annotations of the RoleBinding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// The ClusterRole.
    pub cluster_role_name: String,
    /// Labels of the RoleBinding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Who it is bound to.
    pub subjects: Vec<Subject>,
}

/// A subject of a RoleBinding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Subject {
    /// API group of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace of a ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// What was observed and written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// Conditions: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Names of the tenant's namespaces, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Namespaces that the controllers are about to create, so that they recognize them after a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub creating: Vec<NamespaceIntent>,
    /// Generation that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many namespaces there may be: `spec.namespaceOptions.quota`, or the installation's default. Absent where there is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_quota: Option<i64>,
    /// How many namespaces there are.
    #[serde(default)]
    #[schemars(required)]
    pub size: i64,
    /// The tenant's namespaces, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spaces: Vec<TenantSpace>,
    /// `Active`, `Cordoned` or `Terminating`.
    #[serde(default)]
    #[schemars(required)]
    pub state: String,
    /// What Capsule wrote and Tenure does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// A namespace that the controllers are about to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct NamespaceIntent {
    /// Name.
    pub name: String,
    /// Digest of the annotation `tenure.dev/creation-proof` that the namespace will bear.
    pub proof_digest: String,
}

/// One namespace of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TenantSpace {
    /// Name.
    pub name: String,
    /// Uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The labels and annotations that it has from the Tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<AdditionalMetadata>,
    /// What Capsule wrote and Tenure does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

impl TenantOwner {
    /// The ClusterRoles bound for this owner in namespaces other than the home: Capsule's default when none is named.
    #[must_use]
    pub fn effective_cluster_roles(&self) -> Vec<String> {
        self.cluster_roles
            .clone()
            .unwrap_or_else(|| default_cluster_roles(OWNER_CLUSTER_ROLE))
    }

    /// Those in the home namespace, where an account is that others must not be: when none is named, nothing that leads to it. What an
    /// administrator names he gets there, too.
    #[must_use]
    pub fn cluster_roles_at_home(&self) -> Vec<String> {
        self.cluster_roles
            .clone()
            .unwrap_or_else(|| default_cluster_roles(HOME_OWNER_CLUSTER_ROLE))
    }
}

fn default_cluster_roles(first: &str) -> Vec<String> {
    vec![first.to_owned(), NAMESPACE_DELETER_CLUSTER_ROLE.to_owned()]
}
