//! `FluxAccessGrant` (tenure.dev/v1alpha1): the answer of somebody who may approve for a project or group.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::time::{self, Time};

/// Value of [`FluxAccessGrantSpec::decision`] that lets a request through.
pub const APPROVED: &str = "Approved";
/// Value of [`FluxAccessGrantSpec::decision`] that refuses it.
pub const DENIED: &str = "Denied";

/// An answer to one request, which repeats what was answered. It is never changed: another answer is another object, and who deletes this one revokes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "FluxAccessGrant",
    plural = "fluxaccessgrants",
    namespaced,
    status = "FluxAccessGrantStatus",
    derive = "PartialEq",
    doc = "FluxAccessGrant answers a FluxAccessRequest. Who makes it holds the verb approve on the target; who deletes it revokes.",
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
    /// The request that is answered.
    pub request_ref: RequestReference,
    /// Name of the FluxAccessTarget: the provider's name, a hyphen, and the host's number.
    #[schemars(length(min = 3, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?-[0-9]+$"))]
    pub target: String,
    /// Hash of the request's spec, as it was read.
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub spec_hash: String,
    /// Who asks, as the request says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub requested_by: String,
    /// `Approved` or `Denied`.
    #[schemars(extend("enum" = ["Approved", "Denied"]))]
    pub decision: String,
    /// The user who answers: the one who writes this, or a person whom the account for that has seen to be one at the host.
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
    /// The longest period that it allows between replacements, as in `90d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rotate: Option<String>,
}

/// One FluxAccessRequest, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RequestReference {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its uid: one that is made again under the name is another one.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
}

/// Whether it counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessGrantStatus {
    /// Conditions: Ready, which says whether it counts, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
