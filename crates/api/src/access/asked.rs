//! `FluxAccess` (tenure.dev/v1alpha1): what somebody asks for in Kubernetes: credentials of projects and groups, for namespaces of its own.

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

/// Which credentials are asked for. The words are those of `flux_access` in an agent's configuration, in Kubernetes' spelling.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "FluxAccess",
    plural = "fluxaccesses",
    namespaced,
    status = "FluxAccessStatus",
    derive = "PartialEq",
    doc = "FluxAccess asks for credentials of projects and groups, for namespaces of who asks: its tenant's, or its own alone.",
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
    /// The AccessProvider, in the platform namespace.
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub provider: String,
    /// The role of entries that name none: `read_registry` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The period of entries that name none: `90d` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate: Option<String>,
    /// Projects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub projects: Vec<AccessEntry>,
    /// Groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub groups: Vec<AccessEntry>,
}

/// One project or group. What is wrong with it is said of it alone, so nothing here but the id is demanded by the schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AccessEntry {
    /// Its path, such as `group-1/project-a`.
    #[schemars(length(min = 1, max = 1024))]
    pub id: String,
    /// `read_repository` or `read_registry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// How often the credential is replaced, as in `90d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate: Option<String>,
    /// Name of the Secret in each namespace; `gitlab-flux-token` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// Namespaces: names, or patterns with `*`.
    #[schemars(length(max = 64))]
    pub namespaces: Vec<String>,
    /// The ServiceAccounts of each namespace that may read the Secret, and no other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub service_accounts: Vec<String>,
    /// Deliver nothing where a RoleBinding of the namespace gives anybody else a way to the Secret.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strict: bool,
    /// Put the Secret among the `imagePullSecrets` of these ServiceAccounts, too. For `read_registry` alone.
    #[serde(default, skip_serializing_if = "is_false")]
    pub image_pull_secrets: bool,
}

/// What became of what is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessStatus {
    /// Conditions: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Generation that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is wrong with single entries, the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub problems: Vec<EntryProblem>,
    /// The FluxAccessRequests that were made of its entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub requests: Vec<EntryRequest>,
}

/// The request that was made of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct EntryRequest {
    /// The entry, such as `projects[3]`.
    pub entry: String,
    /// Name of the FluxAccessRequest, in the platform namespace.
    pub request: String,
    /// `Pending`, `Approved`, `Denied` or `Revoked`.
    pub state: String,
}
