//! `FluxAccessTarget` (tenure.dev/v1alpha1): a project or group of a host, by its number. It exists so that RBAC can name the approvers by its
//! name: the verb `approve` on `fluxaccesstargets/<provider>-<number>`.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A project or group of a host.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "FluxAccessTarget",
    plural = "fluxaccesstargets",
    status = "FluxAccessTargetStatus",
    derive = "PartialEq",
    doc = "FluxAccessTarget is a project or group of a host. An account with the verb approve on it answers the requests for it.",
    printcolumn(name = "Scope", type_ = "string", json_path = ".spec.scope"),
    printcolumn(name = "Path", type_ = "string", json_path = ".status.path"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessTargetSpec {
    /// Name of the AccessProvider.
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub provider: String,
    /// Scope: `project` or `group`.
    #[schemars(extend("enum" = ["project", "group"]))]
    pub scope: String,
    /// Number of the project or group at the host.
    #[schemars(with = "i64", range(min = 1))]
    pub id: u64,
}

/// State of the project or group at the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessTargetStatus {
    /// Last known path. No decision depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Address for clones over HTTP, as the host reports it. A source of a Surface with this address and without a Secret uses the Secret of its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub http_url: Option<String>,
    /// Address for clones over ssh. If the credential is a deploy key, this address counts in place of `httpUrl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub ssh_url: Option<String>,
}
