//! `Tenant` (capsule.clastix.io/v1beta2): the part of Capsule's kind that Tenure acts on. All other fields of a spec are kept and
//! can be listed ([`TenantSpec::other`]), so that an object that Capsule wrote loses nothing.

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
use crate::metadata::{
    AUTHOR_CLUSTER_ROLE, HOME_OWNER_CLUSTER_ROLE, NAMESPACE_DELETER_CLUSTER_ROLE, NAMESPACE_EDITOR_CLUSTER_ROLE,
    OWNER_CLUSTER_ROLE,
};

/// Owners of the tenant, and rules for its namespaces.
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
    /// Owners of the tenant. Each owner gets RoleBindings in all of the tenant's namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<TenantOwner>,
    /// Quota, labels and annotations of the tenant's namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_options: Option<NamespaceOptions>,
    /// Further RoleBindings in all of the tenant's namespaces. Their subjects do not become owners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_role_bindings: Vec<AdditionalRoleBinding>,
    /// Denies the tenant's owners, its GitOps account and the ServiceAccounts of its namespaces changes in these namespaces. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned: Option<bool>,
    /// Requires names of the tenant's namespaces to begin with the name of the Tenant and a hyphen. The home namespace is exempt. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_tenant_prefix: Option<bool>,
    /// Denies the deletion of the Tenant. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prevent_deletion: Option<bool>,
    /// LimitRanges in each of the tenant's namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ranges: Option<TenantItems>,
    /// NetworkPolicies in each of the tenant's namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policies: Option<TenantItems>,
    /// ResourceQuotas for each of the tenant's namespaces, or for all of them together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_quotas: Option<TenantResourceQuotas>,
    /// Labels of the nodes for the tenant's Pods. Each namespace gets them as the annotation `scheduler.alpha.kubernetes.io/node-selector`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Bounds of the objects in the tenant's namespaces.
    #[serde(flatten)]
    pub bounds: TenantBounds,
    /// Fields of Capsule that Tenure stores and does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// An owner of the tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct TenantOwner {
    /// Annotations of the owner's RoleBindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// ClusterRoles of the owner in each of the tenant's namespaces. Default: `admin`, `capsule-namespace-deleter`, `tenure-author`, and where admission checks
    /// writes `tenure-namespace-editor`. In the home namespace `tenure-home-owner` replaces `admin`. An owner that is a ServiceAccount doesn't get `tenure-author`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_roles: Option<Vec<String>>,
    /// Kind of the owner: `User`, `Group` or `ServiceAccount`.
    #[schemars(extend("enum" = ["User", "Group", "ServiceAccount"]))]
    pub kind: String,
    /// Labels of the owner's RoleBindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Name of the owner; for a ServiceAccount `system:serviceaccount:<namespace>:<name>`.
    pub name: String,
    /// Fields of Capsule that Tenure stores and does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// Quota, labels and annotations of the tenant's namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct NamespaceOptions {
    /// Maximum number of the tenant's namespaces, at least 1. Default: the maximum of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub quota: Option<i32>,
    /// Labels and annotations of all of the tenant's namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_metadata: Option<AdditionalMetadata>,
    /// Labels and annotations of selected namespaces of the tenant. If several entries set one key, the first entry wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_metadata_list: Vec<SelectedMetadata>,
    /// Labels that the tenant's owners and ServiceAccounts can't set on its namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden_labels: Option<DeniedNames>,
    /// Annotations that the tenant's owners and ServiceAccounts can't set on its namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden_annotations: Option<DeniedNames>,
    /// Fields of Capsule that Tenure stores and does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// A RoleBinding in all of the tenant's namespaces. Its subjects do not become owners.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AdditionalRoleBinding {
    /// Annotations of the RoleBinding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Name of the ClusterRole.
    pub cluster_role_name: String,
    /// Labels of the RoleBinding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Subjects of the RoleBinding.
    pub subjects: Vec<Subject>,
}

/// A subject of a RoleBinding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Subject {
    /// API group of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind of the subject: `User`, `Group` or `ServiceAccount`.
    pub kind: String,
    /// Name of the subject.
    pub name: String,
    /// Namespace of a ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// State of the Tenant and of its namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// Conditions: Ready, NamespacesRecorded, OwnersFound and AccountExclusive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Names of the tenant's namespaces, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Namespaces that the controllers are about to create. By this record, the controllers recognize them after a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub creating: Vec<NamespaceIntent>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Maximum number of namespaces: `spec.namespaceOptions.quota`, or the default of the installation. Absent if there is no maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_quota: Option<i64>,
    /// Number of the tenant's namespaces.
    #[serde(default)]
    #[schemars(required)]
    pub size: i64,
    /// Record of the tenant's namespaces, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spaces: Vec<TenantSpace>,
    /// State in one word: `Active`, `Cordoned` or `Terminating`.
    #[serde(default)]
    #[schemars(required)]
    pub state: String,
    /// Fields of Capsule that Tenure stores and does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

/// A namespace that the controllers are about to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct NamespaceIntent {
    /// Name of the namespace.
    pub name: String,
    /// Digest of the annotation `tenure.dev/creation-proof` that the namespace will have.
    pub proof_digest: String,
}

/// A namespace of the tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TenantSpace {
    /// Name of the namespace.
    pub name: String,
    /// UID of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Labels and annotations that the namespace has from the Tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<AdditionalMetadata>,
    /// Fields of Capsule that Tenure stores and does not act on.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, Value>,
}

impl TenantOwner {
    /// Returns the ClusterRoles of this owner in namespaces other than the home. The default is Capsule's, with the role of authors.
    #[must_use]
    pub fn effective_cluster_roles(&self) -> Vec<String> {
        self.cluster_roles
            .clone()
            .unwrap_or_else(|| self.default_cluster_roles(OWNER_CLUSTER_ROLE))
    }

    /// Returns the ClusterRoles in the home namespace, which has an account that owners must not use. If none is named, the default
    /// gives no access to this account. Roles that an administrator names are granted there, too.
    #[must_use]
    pub fn cluster_roles_at_home(&self) -> Vec<String> {
        self.cluster_roles
            .clone()
            .unwrap_or_else(|| self.default_cluster_roles(HOME_OWNER_CLUSTER_ROLE))
    }

    /// Checks whether the owner is or contains ServiceAccounts, or other identities of Kubernetes' own. A repository may be applied as such an owner.
    #[must_use]
    pub fn has_accounts(&self) -> bool {
        self.kind == "ServiceAccount" || self.name.starts_with(KUBERNETES_NAMES)
    }

    fn default_cluster_roles(&self, first: &str) -> Vec<String> {
        let mut roles = [first, NAMESPACE_DELETER_CLUSTER_ROLE, NAMESPACE_EDITOR_CLUSTER_ROLE]
            .map(str::to_owned)
            .to_vec();
        if !self.has_accounts() {
            roles.push(AUTHOR_CLUSTER_ROLE.to_owned());
        }
        roles
    }
}

/// The prefix of the names of Kubernetes' own users and groups. ServiceAccounts and their groups are among them.
pub const KUBERNETES_NAMES: &str = "system:";
