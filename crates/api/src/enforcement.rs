//! `Enforcement` (tenure.dev/v1alpha1): whether the checks of writes in this cluster are in force. Only the object `tenure` exists.
//!
//! Webhook configurations have no status, and a deleted policy can't report itself. This object reports both. The planner decides its
//! contents (`enforcement`).

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// The name of the only object.
pub const ENFORCEMENT: &str = "tenure";

/// No fields: the flags of the controllers decide which policies and webhooks must be in force.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "Enforcement",
    plural = "enforcements",
    status = "EnforcementStatus",
    derive = "PartialEq",
    doc = "Enforcement reports whether the webhooks and policies that check writes in this cluster are in force. The cluster has one, named tenure.",
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
pub struct EnforcementSpec {}

/// State of the policies and webhooks that enforce the rules of admission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnforcementStatus {
    /// Conditions: PoliciesInForce and WebhooksInForce if the installation has them, LanesSeparated, and Ready. Ready is True if all others are True.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// All rules of admission, with the policies and webhooks that enforce them now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<KeptRule>,
}

/// A rule of admission, with the parts that enforce it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptRule {
    /// Name of the rule, as in messages.
    pub name: String,
    /// Purpose of the rule: `isolation`, `bound` or `convenience`.
    pub purpose: String,
    /// Parts that enforce the rule now: `webhooks`, `policies`, `policies (in part)` (webhooks enforce the rest) or `policies of the installation`. Empty: nothing
    /// enforces the rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_by: Vec<String>,
    /// Parts that should enforce the rule, too, and are not in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}
