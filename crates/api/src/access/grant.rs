//! `FluxAccessGrant` (tenure.dev/v1alpha1): the answer of an approver for a project or group.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::time::{self, Time};

/// Value of [`FluxAccessGrantSpec::decision`] that approves a request.
pub const APPROVED: &str = "Approved";
/// Value of [`FluxAccessGrantSpec::decision`] that denies a request.
pub const DENIED: &str = "Denied";

/// Answer to one request, with a copy of the answered fields. The spec never changes: to revoke a grant, delete it; for another answer, make another grant.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "FluxAccessGrant",
    plural = "fluxaccessgrants",
    namespaced,
    status = "FluxAccessGrantStatus",
    derive = "PartialEq",
    doc = "FluxAccessGrant answers a FluxAccessRequest. Creating it needs the verb approve on the target. Deleting it revokes the access.",
    printcolumn(name = "Request", type_ = "string", json_path = ".spec.requestRef.name"),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.target"),
    printcolumn(name = "Decision", type_ = "string", json_path = ".spec.decision"),
    printcolumn(name = "By", type_ = "string", json_path = ".spec.approvedBy"),
    printcolumn(name = "Until", type_ = "date", json_path = ".spec.notAfter"),
    printcolumn(
        name = "Counts",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessGrantSpec {
    /// Request that this grant answers.
    pub request_ref: RequestReference,
    /// Name of the FluxAccessTarget: the name of the AccessProvider, a hyphen, and the number of the project or group at the host.
    #[schemars(length(min = 3, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?-[0-9]+$"))]
    pub target: String,
    /// Hash of the request's spec, as the approver read it.
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub spec_hash: String,
    /// Requester, as in the request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub requested_by: String,
    /// Decision: `Approved` or `Denied`.
    #[schemars(extend("enum" = ["Approved", "Denied"]))]
    pub decision: String,
    /// Approver: the user that writes the grant. A holder of the verb `vouch` may write `gitlab:<id>` instead, for a person whose identity GitLab confirmed.
    #[schemars(length(min = 1, max = 512))]
    pub approved_by: String,
    /// Reason for the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// Time until which the grant counts. Default: without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub not_after: Option<Time>,
    /// Longest allowed time between two replacements of the credential, such as `90d`. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rotate: Option<String>,
}

/// Reference to a FluxAccessRequest in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RequestReference {
    /// Name of the FluxAccessRequest.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// UID of the FluxAccessRequest. A new request with the same name has another UID.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
}

/// Whether the grant counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessGrantStatus {
    /// Conditions: Ready. True if the grant counts; otherwise the message has the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
