//! `FluxAccessStandingGrant` (tenure.dev/v1alpha1): what a team's requests are let through by without another person, within bounds.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::time::{self, Time};

/// Bounds within which requests are approved. All of them hold together. It is never changed: another one is another object.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "FluxAccessStandingGrant",
    plural = "fluxaccessstandinggrants",
    namespaced,
    status = "FluxAccessStandingGrantStatus",
    derive = "PartialEq",
    doc = "FluxAccessStandingGrant approves what a team asks for within bounds. Who makes it holds the verb approve on every target that it names.",
    printcolumn(name = "For", type_ = "string", json_path = ".spec.tenant"),
    printcolumn(name = "By", type_ = "string", json_path = ".spec.approvedBy"),
    printcolumn(name = "Until", type_ = "date", json_path = ".spec.notAfter"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessStandingGrantSpec {
    /// The Tenant whose requests it approves. Absent: those of the platform, its agents' included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub tenant: Option<String>,
    /// Names of the FluxAccessTargets.
    #[schemars(length(min = 1, max = 16))]
    pub targets: Vec<String>,
    /// Roles.
    #[schemars(length(min = 1, max = 2))]
    pub roles: Vec<String>,
    /// Namespaces: names, or patterns with `*`. Each that a request names has to be one of these, letter by letter, or a name that one of these matches.
    #[schemars(length(min = 1, max = 64))]
    pub namespaces: Vec<String>,
    /// ServiceAccounts that may read the Secret; a request without some, which leaves it to RBAC who reads, is let through only where this is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub service_accounts: Vec<String>,
    /// The longest period between replacements.
    pub max_rotate: String,
    /// The user who approves: the one who writes this.
    #[schemars(length(min = 1, max = 512))]
    pub approved_by: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// It counts until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub not_after: Option<Time>,
}

/// Whether it counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessStandingGrantStatus {
    /// Conditions: Ready, which says whether it counts, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
