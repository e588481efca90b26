//! `FluxAccessRequest` (tenure.dev/v1alpha1): one entry as it is to be approved, made by the controller; and the ledger of the credentials that were
//! made for it, one in each namespace.

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

/// What is to be approved. It is never changed: whatever is asked differently is another request, with another hash.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "FluxAccessRequest",
    plural = "fluxaccessrequests",
    namespaced,
    status = "FluxAccessRequestStatus",
    derive = "PartialEq",
    doc = "FluxAccessRequest is what somebody asks of the owner of a project or group. The controller makes it, in the platform namespace.",
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
    /// The project or group.
    pub target: RequestTarget,
    /// `read_repository` or `read_registry`.
    #[schemars(extend("enum" = ["read_repository", "read_registry"]))]
    pub role: String,
    /// How often the credential is replaced, as in `90d`.
    pub rotate: String,
    /// Name of the Secret in each namespace.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
    /// Namespaces: names, or patterns with `*`.
    #[schemars(length(min = 1, max = 64))]
    pub namespaces: Vec<String>,
    /// The ServiceAccounts that may read the Secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub service_accounts: Vec<String>,
    /// Whether nothing is delivered where anybody else has a way to the Secret by a RoleBinding of the namespace.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strict: bool,
    /// Whether the Secret is put among the `imagePullSecrets` of these ServiceAccounts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub image_pull_secrets: bool,
    /// Where it is asked for.
    pub asked_in: AskedIn,
    /// Who asks: the user who wrote the FluxAccess, or `agent:<provider>/<name>`.
    #[schemars(length(min = 1, max = 512))]
    pub requested_by: String,
    /// The cluster that it is asked for: the uid of its namespace `kube-system`.
    #[schemars(length(min = 8, max = 64))]
    pub cluster_uid: String,
    /// Hash of all fields above.
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub spec_hash: String,
}

/// A project or group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RequestTarget {
    /// `project` or `group`.
    #[schemars(extend("enum" = ["project", "group"]))]
    pub scope: String,
    /// The host's number of it, which alone counts.
    #[schemars(with = "i64", range(min = 1))]
    pub id: u64,
    /// Its path when it was asked for.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
}

/// An agent's configuration, or a FluxAccess.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AskedIn {
    /// `Agent` or `FluxAccess`.
    #[schemars(extend("enum" = ["Agent", "FluxAccess"]))]
    pub kind: String,
    /// Namespace of a FluxAccess.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the agent, or of the FluxAccess.
    pub name: String,
    /// The Tenant whose namespace that is; absent where it is no tenant's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxAccessRequestStatus {
    /// Conditions: Ready, Approved, and what else there is to say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Of which kind its credentials are: `deploy-token`, `deploy-key` or `installation-token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The ledger: what was made, in each namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub credentials: Vec<CredentialLedger>,
    /// What happened last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub history: Vec<HistoryEntry>,
    /// The issue by which the owner of the project is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<RequestNotice>,
    /// The path that the target has now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The namespaces that would have the Secret if the request was approved, a hundred at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub receivers: Vec<String>,
    /// How many more of these there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_receivers: u32,
    /// `Pending`, `Approved`, `Denied` or `Revoked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// An issue at the project that shows a request to who may answer it: recorded before it is opened, until it is closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RequestNotice {
    /// Its title, by which it is found again.
    pub title: String,
    /// Its number in the project, once it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub number: Option<u64>,
    /// Where people read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What went wrong last, and is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<LedgerTrouble>,
    /// How often in a row something went wrong.
    #[serde(default)]
    pub failures: u32,
    /// Nothing is tried before then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub retry_at: Option<Time>,
}

/// What happened, without values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct HistoryEntry {
    /// When.
    #[schemars(schema_with = "time::describe")]
    pub at: Time,
    /// Who: a user, or `tenure`.
    pub actor: String,
    /// What was done, such as `Minted` or `Revoked`.
    pub action: String,
    /// The namespace, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The host's number of the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub id: Option<u64>,
    /// The generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub generation: Option<u64>,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
}

/// What was made for one namespace: enough to find it again at the host after any interruption.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct CredentialLedger {
    /// The namespace.
    pub namespace: String,
    /// The number of the last credential that was begun.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub generation: u64,
    /// The one that is being made or spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextCredential>,
    /// The one that is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<HeldCredential>,
    /// Those that were in use and still work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub retiring: Vec<HeldCredential>,
    /// What went wrong last, and is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<LedgerTrouble>,
    /// The path that the target was seen to have last, where that isn't the request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The last order to replace it that was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_order: Option<String>,
    /// Uid of the Secret that was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_uid: Option<String>,
    /// The Secret was put among the `imagePullSecrets` of accounts, or is about to be: it is taken out of them before all is over.
    #[serde(default, skip_serializing_if = "is_false")]
    pub image_pull_secrets: bool,
    /// How often in a row something went wrong.
    #[serde(default)]
    pub failures: u32,
    /// The last time that a credential was begun before it was due: somebody changed the Secret, or ordered another credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub unplanned_at: Option<Time>,
    /// How many new credentials in a row the host refused after it had made them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refusals: u32,
    /// Nothing is tried before then.
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

/// Something that went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct LedgerTrouble {
    /// In one word.
    pub reason: String,
    /// In a sentence, without values.
    pub message: String,
}

/// How far a new credential has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum CredentialPhase {
    /// It is to be made under the recorded name. Whether it was is known once the host has been asked.
    #[default]
    Intent,
    /// It was made, and its value is lost: it is revoked, and another one is made.
    Minted,
    /// Its value is in the staging Secret.
    Staged,
    /// Its value is in the Secret of the namespace.
    Distributed,
}

/// A credential that is being made or spread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct NextCredential {
    /// How far it has come.
    pub phase: CredentialPhase,
    /// Which it is.
    #[schemars(with = "i64")]
    pub generation: u64,
    /// What makes its name unique.
    pub nonce: String,
    /// Its name at the host.
    pub name: String,
    /// Why it is made.
    pub cause: String,
    /// When it was begun.
    #[schemars(schema_with = "time::describe")]
    pub begun_at: Time,
    /// The host's number of it, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub id: Option<u64>,
    /// SHA-256 of its value, as hex.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub expires_at: Option<Time>,
    /// Since when the Secret holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub distributed_at: Option<Time>,
    /// The order that it is made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
}

/// A credential that was spread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct HeldCredential {
    /// Which it is.
    #[schemars(with = "i64")]
    pub generation: u64,
    /// The host's number of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub id: Option<u64>,
    /// Its name at the host.
    pub name: String,
    /// SHA-256 of its value, as hex.
    pub fingerprint: String,
    /// When it was begun.
    #[schemars(schema_with = "time::describe")]
    pub begun_at: Time,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub expires_at: Option<Time>,
    /// When all sources were seen to use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub verified_at: Option<Time>,
    /// When it is revoked, of one that retires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub retire_at: Option<Time>,
}
