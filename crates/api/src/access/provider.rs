//! `AccessProvider` (tenure.dev/v1alpha1): a host of repositories, as an administrator configures it in the platform namespace.

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

/// A host, who speaks to it, and what it may be asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "AccessProvider",
    plural = "accessproviders",
    namespaced,
    status = "AccessProviderStatus",
    derive = "PartialEq",
    doc = "AccessProvider is a host of repositories, and who makes credentials there. It counts in the platform namespace alone.",
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
    /// Which API it speaks; `static` for none: somebody writes the Secrets by hand, and their age is watched.
    #[schemars(extend("enum" = ["gitlab", "github", "gitea", "static"]))]
    pub kind: String,
    /// Where it is, such as `https://gitlab.example.org`.
    #[schemars(length(max = 2048), regex(pattern = r"^https?://[^/@\s]+(/[^@\s]*)?$"))]
    pub address: String,
    /// Who makes credentials there. Not for `static`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authoriser: Option<Authoriser>,
    /// The ServiceAccount, in the platform namespace, that writes the Secrets, `tenure-secret-writer` when absent. An administrator binds it where it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub writer_service_account_name: Option<String>,
    /// Where its container registry is, such as `registry.example.org`; as the host says when absent, which it does of projects alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-zA-Z0-9][-a-zA-Z0-9.]*(:[0-9]{1,5})?$")
    )]
    pub registry: Option<String>,
    /// What opens repositories there: `deploy-token` (GitLab), `installation-token` (a GitHub App), or `deploy-key`, with which they are fetched over ssh. When
    /// absent, the first of these that the host has. What was made of another kind before stays of that kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["deploy-token", "deploy-key", "installation-token"]))]
    pub repository_credential: Option<String>,
    /// Host keys in the form of `known_hosts`, where it gives out ssh keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub known_hosts: Option<String>,
    /// How the owner of a project is told of a request that waits for an answer: by a confidential `Issue` there, which is closed once it is answered, or by
    /// `None`. `Issue` when absent; only GitLab's projects have such issues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Issue", "None"]))]
    pub notice: Option<String>,
    /// How people who have no account here show who they are, so that an account that may vouch for it lets a request through. Nobody does when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_flow: Option<DeviceFlow>,
    /// The agent whose configuration asks for access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
    /// The group below which everything is that may be asked for; of GitHub and Gitea the owner.
    #[schemars(length(min = 1, max = 255))]
    pub top_level_group: String,
    /// Namespaces that the agent's entries, and those of the platform namespace, may reach: names, or patterns with `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub namespaces: Vec<String>,
    /// Namespaces, by name, that may receive a group's credential without a label of the target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub group_namespaces: Vec<String>,
    /// Tenants that may ask for their own namespaces; `*` for all. None when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub tenants: Vec<String>,
    /// Make and replace nothing until this is false again. What is revoked is revoked.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
}

impl AccessProviderSpec {
    /// Whether owners of projects are told of requests there.
    #[must_use]
    pub fn gives_notice(&self) -> bool {
        self.notice.as_deref() != Some("None")
    }

    /// The account that writes the Secrets, whether it is named or not.
    #[must_use]
    pub fn name_writer(&self) -> &str {
        self.writer_service_account_name.as_deref().unwrap_or(SECRET_WRITER)
    }
}

/// Who makes credentials at the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Authoriser {
    /// The ServiceAccount, in the platform namespace, as which its Secret is read and the staging Secret written.
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: String,
    /// The Secret with its credential, in the platform namespace.
    pub secret_ref: LocalObjectReference,
}

/// The device flow of a GitLab (RFC 8628).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DeviceFlow {
    /// The id of an application that was registered there for it, with the scope `read_api`. It is no secret.
    #[schemars(length(min = 1, max = 255), regex(pattern = "^[!-~]+$"))]
    pub client_id: String,
}

/// An agent, and where its configuration is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Agent {
    /// Its name: `.gitlab/agents/<name>/config.yaml` is read, and `.gitlab/agents/<name>/flux-access.yaml`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The source, in the platform namespace, whose artifact holds these files.
    pub source_ref: AgentSource,
}

/// A source of the platform namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AgentSource {
    /// Its kind.
    #[schemars(extend("enum" = ["GitRepository", "OCIRepository", "Bucket"]))]
    pub kind: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What was observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessProviderStatus {
    /// When the authoriser's credential ends, where the host says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::describe")]
    pub authoriser_expires_at: Option<Time>,
    /// Conditions: Ready, ConfigurationRead, AuthoriserWorks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The revision of the configuration that is acted on: the last one that could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_revision: Option<String>,
    /// Generation that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is wrong with single entries, the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub problems: Vec<EntryProblem>,
}

/// What is wrong with an entry, and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct EntryProblem {
    /// The file, or the object.
    pub file: String,
    /// The line; absent where it isn't a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The entry, such as `projects[3]`.
    pub entry: String,
    /// What is wrong, and what to do.
    pub message: String,
}
