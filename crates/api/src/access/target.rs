//! `FluxAccessTarget` (tenure.dev/v1alpha1): a project or group of a host, by its number. It is there so that who may approve for it can be said in
//! RBAC, by its name: the verb `approve` on `fluxaccesstargets/<provider>-<number>`.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which project or group it is.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "FluxAccessTarget",
    plural = "fluxaccesstargets",
    status = "FluxAccessTargetStatus",
    derive = "PartialEq",
    doc = "FluxAccessTarget is a project or group of a host. Who holds the verb approve on it answers requests for it.",
    printcolumn(name = "Scope", type_ = "string", json_path = ".spec.scope"),
    printcolumn(name = "Path", type_ = "string", json_path = ".status.path"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessTargetSpec {
    /// Name of the AccessProvider.
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub provider: String,
    /// `project` or `group`.
    #[schemars(extend("enum" = ["project", "group"]))]
    pub scope: String,
    /// The host's number of it.
    #[schemars(with = "i64", range(min = 1))]
    pub id: u64,
}

/// What was seen of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessTargetStatus {
    /// Its path when it was last seen. Nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Where one clones it by HTTP, as the host says: what is asked for at this address gets the Secret of its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub http_url: Option<String>,
    /// The same over ssh, for those whose credentials are keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub ssh_url: Option<String>,
}
