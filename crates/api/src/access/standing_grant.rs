//! `FluxAccessStandingGrant` (tenure.dev/v1alpha1): an approval of a team's requests in advance, within bounds.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::time::{self, Time};

/// Bounds within which requests are approved in advance. A request must be within all of them. The spec never changes: for other bounds, make another grant.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "FluxAccessStandingGrant",
    plural = "fluxaccessstandinggrants",
    namespaced,
    status = "FluxAccessStandingGrantStatus",
    derive = "PartialEq",
    doc = "FluxAccessStandingGrant approves requests of one team in advance, within bounds. Creating it needs the verb approve on every target that it names.",
    printcolumn(name = "For", type_ = "string", json_path = ".spec.tenant"),
    printcolumn(name = "By", type_ = "string", json_path = ".spec.approvedBy"),
    printcolumn(name = "Until", type_ = "date", json_path = ".spec.notAfter"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessStandingGrantSpec {
    /// Tenant whose requests are approved. Default: requests of the platform, including those of its agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub tenant: Option<String>,
    /// Names of the FluxAccessTargets, 1 to 16.
    #[schemars(length(min = 1, max = 16))]
    pub targets: Vec<String>,
    /// Allowed roles: `read_repository` and `read_registry`.
    #[schemars(length(min = 1, max = 2))]
    pub roles: Vec<String>,
    /// Allowed namespaces, 1 to 64: names, or patterns with `*`. Each name of a request must be in this list or match a pattern of it; each pattern must be in this list.
    #[schemars(length(min = 1, max = 64))]
    pub namespaces: Vec<String>,
    /// ServiceAccounts that may get the right to read the Secret, at most 64. If the list is not empty, requests without ServiceAccounts are not approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub service_accounts: Vec<String>,
    /// Longest allowed time between two replacements of the credential, such as `90d`.
    pub max_rotate: String,
    /// Approver: the user that writes the grant. A holder of the verb `vouch` may write `gitlab:<id>` instead.
    #[schemars(length(min = 1, max = 512))]
    pub approved_by: String,
    /// Reason for the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// Time until which the grant counts. Default: without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub not_after: Option<Time>,
}

/// Whether the grant counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessStandingGrantStatus {
    /// Conditions: Ready, for whether the grant counts. No controller sets this condition yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
