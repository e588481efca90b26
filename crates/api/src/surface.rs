//! `Surface` (tenure.dev/v1alpha1): sources, how each is rendered, and one identity that applies them.
//!
//! The tier is not a field. It follows from the namespace that the Surface lives in, so it cannot be claimed.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::duration::DurationText;
use crate::git_repository::GitRepositoryRef;
use crate::kustomization::is_false;
use crate::reference::LocalObjectReference;
use crate::selector::Patch;
use crate::source_url::SourceUrl;

/// The sources of a surface.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "Surface",
    plural = "surfaces",
    namespaced,
    status = "SurfaceStatus",
    derive = "PartialEq",
    doc = "Surface reconciles Git repositories as one identity: of the platform, or of one tenant, by the namespace that it lives in.",
    printcolumn(name = "Tier", type_ = "string", json_path = ".status.tier"),
    printcolumn(name = "Identity", type_ = "string", json_path = ".status.identity"),
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
pub struct SurfaceSpec {
    /// What is reconciled. Each becomes a GitRepository and one Kustomization a path.
    #[schemars(length(min = 1, max = 64))]
    pub sources: Vec<SurfaceSource>,
    /// The ServiceAccount to act as, in the platform namespace. Platform tier only: a tenant's identity can't be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Do nothing until this is false again; suspends what the surface generated.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
}

/// One repository, and the folders of it that are applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SurfaceSource {
    /// Name, unique within the surface: what it generates is called `<surface>-<name>`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Address of the repository: http, https or ssh.
    #[schemars(with = "String", regex(pattern = r"^(http|https|ssh)://.*$"))]
    pub url: SourceUrl,
    /// Which revision; branch `main` when absent.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRepositoryRef>,
    /// Secret with the credentials, in the surface's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// A key that is made for this source, for a repository that is reached over ssh. Not together with `secretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_key: Option<SurfaceDeployKey>,
    /// How often the repository is asked and everything is looked at again; 1m when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<DurationText>,
    /// Patterns of files to leave out, in the form of `.gitignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Folder that is applied; the root when neither this nor `paths` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Several folders, each applied by a Kustomization of its own. Not together with `path`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub paths: Vec<SurfacePath>,
    /// Delete what was applied earlier and is no longer in the repository; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<bool>,
    /// Wait until every object is healthy.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wait: bool,
    /// How long an attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
    /// How soon a failure is tried again; the interval when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<DurationText>,
    /// Sources of the same surface that must be ready first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<SurfaceDependency>,
    /// Namespace set on every namespaced object; in the tenant tier one of the tenant's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,
    /// What happens to the objects when the surface, or this source of it, is removed. In the tenant tier `Orphan` when absent,
    /// in the platform tier `MirrorPrune`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["MirrorPrune", "Delete", "WaitForTermination", "Orphan"]))]
    pub deletion_policy: Option<String>,
    /// How much of what the repository says is applied: `All` of a stage or nothing (when absent), `Partial`, what is accepted of it,
    /// `DetectOnly`, nothing, and the condition says what would be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["All", "Partial", "DetectOnly"]))]
    pub apply: Option<String>,
    /// Recreate objects whose change is refused because a field is immutable.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// Inline patches of what is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub patches: Vec<Patch>,
    /// How encrypted files of the repository are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decryption: Option<SurfaceDecryption>,
}

/// The keys for the encrypted files of a source. They are read as the account of the surface, so that account needs the right to read the Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SurfaceDecryption {
    /// The program that encrypted them.
    #[schemars(extend("enum" = ["sops"]))]
    pub provider: String,
    /// Secret with the keys, in the surface's namespace: entries that end with `.agekey` or `.asc`.
    pub secret_ref: LocalObjectReference,
}

/// An ed25519 key that Tenure makes. Its private half is written into a Secret beside the surface and nowhere else; its public half stands in the
/// surface's status, to be added to the repository as a deploy key that may only read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SurfaceDeployKey {
    /// The host keys of the server, as `ssh-keyscan` writes them: no other server is believed, and none on first use.
    #[schemars(length(min = 1, max = 16384))]
    pub known_hosts: String,
}

/// One folder of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SurfacePath {
    /// Name, unique within the source: the Kustomization is called `<surface>-<source>-<name>`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The folder.
    pub path: String,
    /// Namespace set on every namespaced object; the source's `targetNamespace` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,
}

/// Another source of the same surface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SurfaceDependency {
    /// Name of the source.
    pub name: String,
}

/// What was observed and generated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SurfaceStatus {
    /// Conditions: Ready, Reconciling and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The keys that were made for sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deploy_keys: Vec<SurfaceDeployKeyStatus>,
    /// Who the surface acts as: `system:serviceaccount:<namespace>:<name>`. Absent when nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The last value of the annotation `reconcile.fluxcd.io/requestedAt` that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Generation that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Every source's state, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SurfaceSourceStatus>,
    /// The tenant, in the tenant tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `Platform` or `Tenant`; absent when the surface lives where none may live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
}

/// State of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SurfaceSourceStatus {
    /// Name of the source.
    pub name: String,
    /// Whether it is fetched and everything of it is applied.
    pub ready: bool,
    /// Revision that was fetched last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_revision: Option<String>,
    /// Revision that all of its Kustomizations have applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_revision: Option<String>,
    /// What there is to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A key that was made for a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SurfaceDeployKeyStatus {
    /// Name of the source.
    pub source: String,
    /// The public half, as one line of `authorized_keys`.
    pub public_key: String,
    /// Fingerprint of the public half, as `ssh-keygen -l` writes it: `SHA256:…`.
    pub fingerprint: String,
    /// The Secret that holds the private half, beside the surface.
    pub secret_name: String,
}
