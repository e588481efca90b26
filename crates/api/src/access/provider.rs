//! `AccessProvider` (tenure.dev/v1alpha1): a Git host, as an administrator configures it in the platform namespace.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::kustomization::is_false;
use crate::metadata::SECRET_WRITER;
use crate::reference::LocalObjectReference;
use crate::time::{self, Time};

/// A Git host, the accounts that make and write credentials for it, and the requests that are allowed.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "AccessProvider",
    plural = "accessproviders",
    namespaced,
    status = "AccessProviderStatus",
    derive = "PartialEq",
    doc = "AccessProvider describes a host of repositories, and the account that makes credentials there. It takes effect only in the platform namespace.",
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.kind"),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Agent", type_ = "string", json_path = ".spec.agent.name"),
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
pub struct AccessProviderSpec {
    /// API of the host. `static` has no API: an administrator writes the Secrets by hand, and the controllers watch their age.
    #[schemars(extend("enum" = ["gitlab", "github", "gitea", "static"]))]
    pub kind: String,
    /// Address of the host, such as `https://gitlab.example.org`.
    #[schemars(length(max = 2048), regex(pattern = r"^https?://[^/@\s]+(/[^@\s]*)?$"))]
    pub address: String,
    /// Account that makes credentials at the host. Required, except for `static`, where this field is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authoriser: Option<Authoriser>,
    /// ServiceAccount in the platform namespace that writes the Secrets. An administrator binds it in the namespaces. Default: `tenure-secret-writer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub writer_service_account_name: Option<String>,
    /// Address of the host's container registry, such as `registry.example.org`. Default: the address that the host reports; hosts report one for projects only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-zA-Z0-9][-a-zA-Z0-9.]*(:[0-9]{1,5})?$")
    )]
    pub registry: Option<String>,
    /// Credential for repositories: `deploy-token` (GitLab), `installation-token` (a GitHub App), or `deploy-key`, for fetches over ssh. Default: the first of these that
    /// the host has. Existing credentials keep their kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["deploy-token", "deploy-key", "installation-token"]))]
    pub repository_credential: Option<String>,
    /// Host keys in the format of `known_hosts`, at most 16 KiB. Required for deploy keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub known_hosts: Option<String>,
    /// Notification of a project's owner about a request that waits. `Issue` (default): a confidential issue of the project, closed after the answer. `None`: no
    /// notification. Only projects of GitLab have such issues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Issue", "None"]))]
    pub notice: Option<String>,
    /// Proof of identity at GitLab for approvers without an account in the cluster. A holder of the verb `vouch` writes the grant for them. Default: no such approvals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_flow: Option<DeviceFlow>,
    /// GitLab agent whose configuration requests access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
    /// Group above all projects and groups that may be requested; at GitHub and Gitea, their owner.
    #[schemars(length(min = 1, max = 255))]
    pub top_level_group: String,
    /// Namespaces that may get Secrets for entries of the agent, and of FluxAccesses in the platform namespace or in a namespace without a tenant: names, or patterns
    /// with `*`; at most 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub namespaces: Vec<String>,
    /// Names of namespaces that may get the credential of a group without the label of the target, at most 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub group_namespaces: Vec<String>,
    /// Tenants that may request access for their own namespaces, at most 256; `*` for all. Patterns of `namespaces` match only namespaces of tenants that are listed by
    /// name, and namespaces without a tenant. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub tenants: Vec<String>,
    /// Makes and replaces no credentials while true; revoked access still ends. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
}

impl AccessProviderSpec {
    /// Checks whether owners of projects are notified of requests there.
    #[must_use]
    pub fn gives_notice(&self) -> bool {
        self.notice.as_deref() != Some("None")
    }

    /// Returns the account that writes the Secrets: the named or the default one.
    #[must_use]
    pub fn name_writer(&self) -> &str {
        self.writer_service_account_name.as_deref().unwrap_or(SECRET_WRITER)
    }
}

/// Account that makes credentials at the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Authoriser {
    /// ServiceAccount in the platform namespace that reads the Secret of the authoriser and writes the staging Secret.
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: String,
    /// Secret with the authoriser's credential, in the platform namespace.
    pub secret_ref: LocalObjectReference,
}

/// Device flow of a GitLab (RFC 8628).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DeviceFlow {
    /// Id of an application that is registered at the host, with the scope `read_api`. The id is not a secret.
    #[schemars(length(min = 1, max = 255), regex(pattern = "^[!-~]+$"))]
    pub client_id: String,
}

/// A GitLab agent, and the source of its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Agent {
    /// Name of the agent. The controllers read `.gitlab/agents/<name>/config.yaml` and `.gitlab/agents/<name>/flux-access.yaml`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Source in the platform namespace whose artifact contains these files.
    pub source_ref: AgentSource,
}

/// A source in the platform namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AgentSource {
    /// Kind of the source.
    #[schemars(extend("enum" = ["GitRepository", "OCIRepository", "Bucket"]))]
    pub kind: String,
    /// Name of the source.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// State of the AccessProvider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessProviderStatus {
    /// Time when the authoriser's credential ends, if the host reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub authoriser_expires_at: Option<Time>,
    /// Conditions: Ready, ConfigurationRead, AuthoriserWorks and Swept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Revision of the agent's configuration that is in effect: the last one that could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_revision: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Problems of single entries: the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub problems: Vec<EntryProblem>,
}

/// A problem of an entry, and the place of the entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct EntryProblem {
    /// The file, or the FluxAccess.
    pub file: String,
    /// Line in the file. Absent for a FluxAccess.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The entry, such as `projects[3]`.
    pub entry: String,
    /// The problem, and its solution.
    pub message: String,
}
