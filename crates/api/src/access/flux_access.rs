//! `FluxAccess` (tenure.dev/v1alpha1): a request in Kubernetes for credentials of projects and groups, for the requester's own namespaces.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::provider::EntryProblem;
use crate::condition::Condition;
use crate::kustomization::is_false;

/// Requested credentials. The fields are those of `flux_access` in the configuration of a GitLab agent, in Kubernetes' spelling.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "FluxAccess",
    plural = "fluxaccesses",
    namespaced,
    status = "FluxAccessStatus",
    derive = "PartialEq",
    doc = "FluxAccess asks for credentials of projects and groups. They are delivered to namespaces of its tenant, or only to its own namespace.",
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.provider"),
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
pub struct FluxAccessSpec {
    /// Name of the AccessProvider, in the platform namespace.
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub provider: String,
    /// Role of entries without a role: `read_repository` or `read_registry`. Default: `read_registry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Time between two replacements of a credential, for entries without `rotate`: a whole number with `h`, `d` or `w`, from `1d` to `365d`. Default: `90d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate: Option<String>,
    /// Projects to read, at most 500.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub projects: Vec<AccessEntry>,
    /// Groups to read, at most 500.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub groups: Vec<AccessEntry>,
}

/// A project or group. A mistake in one entry is reported and affects no other entry, so the schema checks little here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AccessEntry {
    /// Path of the project or group, such as `group-1/project-a`.
    #[schemars(length(min = 1, max = 1024))]
    pub id: String,
    /// Role: `read_repository` or `read_registry`. Default: `spec.role`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Time between two replacements of the credential, such as `90d`. Default: `spec.rotate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate: Option<String>,
    /// Name of the Secret in each namespace. Default: `gitlab-flux-token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// Namespaces that get the Secret, 1 to 64: names, or patterns with `*`.
    #[schemars(length(max = 64))]
    pub namespaces: Vec<String>,
    /// The only ServiceAccounts of each namespace that get the right to read the Secret, at most 64. Default: any account with that right by RBAC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub service_accounts: Vec<String>,
    /// Delivers nothing while a RoleBinding of the namespace gives any other account a way to the Secret. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strict: bool,
    /// Adds the Secret to the `imagePullSecrets` of `serviceAccounts`, which must not be empty. For `read_registry` only. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub image_pull_secrets: bool,
}

/// State of the requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessStatus {
    /// Conditions: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Problems of single entries: the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub problems: Vec<EntryProblem>,
    /// FluxAccessRequests that were made from the entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub requests: Vec<EntryRequest>,
}

/// Request that was made from an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct EntryRequest {
    /// The entry, such as `spec.projects[3]`.
    pub entry: String,
    /// Name of the FluxAccessRequest, in the platform namespace.
    pub request: String,
    /// State of the entry: `Pending`, `Approved` or `Denied`.
    pub state: String,
}
