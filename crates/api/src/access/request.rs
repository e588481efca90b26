//! `FluxAccessRequest` (tenure.dev/v1alpha1): one entry in the form that approvers decide about, made by the controller, with the ledger of its
//! credentials, one in each namespace.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::kustomization::is_false;
use crate::time::{self, Time};

/// The most entries of a history.
pub const LONGEST_HISTORY: usize = 20;

/// Request to approve. The spec never changes: a changed entry is another request, with another hash.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "FluxAccessRequest",
    plural = "fluxaccessrequests",
    namespaced,
    status = "FluxAccessRequestStatus",
    derive = "PartialEq",
    doc = "FluxAccessRequest asks the owner of a project or group for access. The controller creates it in the platform namespace.",
    printcolumn(name = "Path", type_ = "string", json_path = ".spec.target.path"),
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.role"),
    printcolumn(name = "By", type_ = "string", json_path = ".spec.requestedBy"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
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
pub struct FluxAccessRequestSpec {
    /// Name of the AccessProvider.
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub provider: String,
    /// Project or group.
    pub target: RequestTarget,
    /// Role: `read_repository` or `read_registry`.
    #[schemars(extend("enum" = ["read_repository", "read_registry"]))]
    pub role: String,
    /// Time between two replacements of the credential, such as `90d`.
    pub rotate: String,
    /// Name of the Secret in each namespace.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
    /// Namespaces that get the Secret, 1 to 64: names, or patterns with `*`.
    #[schemars(length(min = 1, max = 64))]
    pub namespaces: Vec<String>,
    /// The only ServiceAccounts of each namespace that get the right to read the Secret. Default: any account with that right by RBAC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub service_accounts: Vec<String>,
    /// Delivers nothing while a RoleBinding of the namespace gives any other account a way to the Secret.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strict: bool,
    /// Adds the Secret to the `imagePullSecrets` of `serviceAccounts`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub image_pull_secrets: bool,
    /// Place of the entry: an agent's configuration, or a FluxAccess.
    pub asked_in: AskedIn,
    /// Requester: the user that wrote the FluxAccess, or `agent:<provider>/<name>`.
    #[schemars(length(min = 1, max = 512))]
    pub requested_by: String,
    /// Cluster of the request, by the UID of its namespace `kube-system`.
    #[schemars(length(min = 8, max = 64))]
    pub cluster_uid: String,
    /// Hash of all other fields of this spec, except `target.path`.
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub spec_hash: String,
}

/// A project or group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RequestTarget {
    /// Scope: `project` or `group`.
    #[schemars(extend("enum" = ["project", "group"]))]
    pub scope: String,
    /// Number of the project or group at the host. Only this number identifies the target.
    #[schemars(with = "i64", range(min = 1))]
    pub id: u64,
    /// Path of the project or group at the time of the request.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
}

/// Place of an entry: an agent's configuration, or a FluxAccess.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AskedIn {
    /// Kind of the place: `Agent` or `FluxAccess`.
    #[schemars(extend("enum" = ["Agent", "FluxAccess"]))]
    pub kind: String,
    /// Namespace of the FluxAccess.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the agent, or of the FluxAccess.
    pub name: String,
    /// Tenant of this namespace. Absent if the namespace has no tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// State of the request and of its credentials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessRequestStatus {
    /// Conditions: Ready, Approved, Announced, Verified, Expiring and LivesOn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Kind of the credentials: `deploy-token`, `deploy-key` or `installation-token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Ledger of the credentials, one entry for each namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub credentials: Vec<CredentialLedger>,
    /// Last changes, oldest first, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub history: Vec<HistoryEntry>,
    /// Issue that shows the request to the owner of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<RequestNotice>,
    /// Current path of the project or group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Namespaces that would have the Secret after an approval, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub receivers: Vec<String>,
    /// Number of further namespaces that would have the Secret.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_receivers: u32,
    /// State of the request: `Pending`, `Approved`, `Denied` or `Revoked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// Issue that shows the request to the owner of the project. The controllers record it before they open it, and keep the record until it is closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RequestNotice {
    /// Title of the issue, by which the controllers find it again.
    pub title: String,
    /// Number of the issue in the project, once the issue is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub number: Option<u64>,
    /// Address of the issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Last failure, while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<LedgerTrouble>,
    /// Number of failures in a row.
    #[serde(default)]
    pub failures: u32,
    /// Time before which the controllers try nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub retry_at: Option<Time>,
}

/// A change of the request or of a credential, without secret values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct HistoryEntry {
    /// Time of the change.
    #[schemars(schema_with = "time::describe")]
    pub at: Time,
    /// Author of the change: a user, or `tenure`.
    pub actor: String,
    /// Kind of the change, such as `Minted` or `Revoked`.
    pub action: String,
    /// Namespace of the change, if it concerns a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Number of the credential at the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub id: Option<u64>,
    /// Generation of the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub generation: Option<u64>,
    /// Reason for the change.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
}

/// Ledger of one namespace's credentials. With it, the controllers find each credential at the host after any interruption.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct CredentialLedger {
    /// Name of the namespace.
    pub namespace: String,
    /// Generation of the last credential that was begun.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub generation: u64,
    /// Credential that is being made or delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextCredential>,
    /// Credential in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<HeldCredential>,
    /// Earlier credentials that still work, at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub retiring: Vec<HeldCredential>,
    /// Last failure, while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<LedgerTrouble>,
    /// Last known path of the project or group, if it differs from the path of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Id of the last order for a replacement that was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_order: Option<String>,
    /// UID of the Secret that was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_uid: Option<String>,
    /// The Secret is among the `imagePullSecrets` of ServiceAccounts, or is about to be. The controllers remove it from them before the ledger ends.
    #[serde(default, skip_serializing_if = "is_false")]
    pub image_pull_secrets: bool,
    /// Number of failures in a row.
    #[serde(default)]
    pub failures: u32,
    /// Last time that a credential was begun before its due time: after a change of the Secret, a revocation at the host, or an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub unplanned_at: Option<Time>,
    /// Number of new credentials in a row that the host refused after it had made them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refusals: u32,
    /// Time before which the controllers try nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub retry_at: Option<Time>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    clippy::allow_attributes,
    reason = "serde passes it so"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct LedgerTrouble {
    /// Reason in one word.
    pub reason: String,
    /// Message for people, without secret values.
    pub message: String,
}

/// Progress of a new credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum CredentialPhase {
    /// The name is recorded. Whether the host made the credential is unknown until the controllers ask the host.
    #[default]
    Intent,
    /// The host made the credential, but its value is lost. The controllers revoke it and make another one.
    Minted,
    /// The value is in the staging Secret.
    Staged,
    /// The value is in the Secret of the namespace.
    Distributed,
}

/// A credential that is being made or delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct NextCredential {
    /// Progress of the credential.
    pub phase: CredentialPhase,
    /// Generation of the credential.
    #[schemars(with = "i64")]
    pub generation: u64,
    /// Random part that makes the name unique.
    pub nonce: String,
    /// Name of the credential at the host.
    pub name: String,
    /// Reason for the new credential.
    pub cause: String,
    /// Time when the credential was begun.
    #[schemars(schema_with = "time::describe")]
    pub begun_at: Time,
    /// Number of the credential at the host, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub id: Option<u64>,
    /// SHA-256 of the value in hex; of a deploy key, of its public half.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
    /// Time when the credential ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub expires_at: Option<Time>,
    /// Time since when the Secret has the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub distributed_at: Option<Time>,
    /// Id of the order that the credential is made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
}

/// A credential that was delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct HeldCredential {
    /// Generation of the credential.
    #[schemars(with = "i64")]
    pub generation: u64,
    /// Number of the credential at the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub id: Option<u64>,
    /// Name of the credential at the host.
    pub name: String,
    /// SHA-256 of the value in hex; of a deploy key, of its public half.
    pub fingerprint: String,
    /// Time when the credential was begun.
    #[schemars(schema_with = "time::describe")]
    pub begun_at: Time,
    /// Time when the credential ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub expires_at: Option<Time>,
    /// Time when the credential was seen in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub verified_at: Option<Time>,
    /// Time when the controllers revoke the credential, once it is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub retire_at: Option<Time>,
}
