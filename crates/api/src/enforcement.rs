//! `Enforcement` (tenure.dev/v1alpha1): whether what judges writes in this cluster is in force as it has to be. There is one, `tenure`.
//!
//! It says what nothing else can: webhook configurations have no status, and a policy that was deleted says nothing at all. Owns the kind;
//! what stands in it is decided by the planner (`enforcement`).

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// The name of the only one.
pub const ENFORCEMENT: &str = "tenure";

/// Nothing is asked for: what is kept in force, the controllers are told when they start.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "Enforcement",
    plural = "enforcements",
    status = "EnforcementStatus",
    derive = "PartialEq",
    doc = "Enforcement says whether the webhooks and policies that judge what is written in this cluster are in force. There is one, called tenure.",
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

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnforcementStatus {
    /// `PoliciesInForce` and `WebhooksInForce`, where there are to be some, `LanesSeparated`, and `Ready`, which says whether all of them hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Every rule, with the policies and webhooks that keep it now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<KeptRule>,
}

/// What keeps one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptRule {
    /// The rule, as messages name it.
    pub name: String,
    /// The purpose of the rule: `isolation`, `bound` or `convenience`.
    pub purpose: String,
    /// `webhooks`, `policies`, both, or nothing: they keep it now. `policies (in part)` leaves something to webhooks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_by: Vec<String>,
    /// Policies or webhooks that are meant to keep it too, and don't.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}
