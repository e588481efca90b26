//! `Surface` (tenure.dev/v1alpha1): sources, their renderings, and one identity that applies them.
//!
//! The tier is not a field. It follows from the namespace of the Surface, so it cannot be claimed.

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

/// Git repositories to apply, and the account that applies them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "Surface",
    plural = "surfaces",
    namespaced,
    status = "SurfaceStatus",
    derive = "PartialEq",
    doc = "Surface reconciles Git repositories as one identity. Its namespace decides whether that is the platform's or a tenant's.",
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
    /// Git repositories to apply, 1 to 64. Each becomes a GitRepository, and a Kustomization for each path.
    #[schemars(length(min = 1, max = 64))]
    pub sources: Vec<SurfaceSource>,
    /// ServiceAccount in the platform namespace that applies the objects. Required in the platform tier. Refused in the tenant tier, where the tenant's GitOps account
    /// applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Stops the reconciliation while true, also of the generated GitRepositories and Kustomizations. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
}

/// A Git repository, and the folders of it that are applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SurfaceSource {
    /// Name of the source, unique in the Surface: at most 63 lower-case letters, digits and `-`. The GitRepository, and without `paths` the Kustomization, is named
    /// `<surface>-<name>`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Address of the repository: `http://`, `https://` or `ssh://`.
    #[schemars(with = "String", regex(pattern = r"^(http|https|ssh)://.*$"))]
    pub url: SourceUrl,
    /// Revision to fetch. Default: the branch `main`.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRepositoryRef>,
    /// Secret with the credentials, in the namespace of the Surface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Deploy key that Tenure makes for this source. `url` must begin with `ssh://`. Not together with `secretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_key: Option<SurfaceDeployKey>,
    /// Time between two checks of the repository, and between two full reconciliations. Default: 1m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<DurationText>,
    /// Patterns of files to leave out, in the format of `.gitignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Folder to apply. Default without `paths`: the root of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Folders to apply, each by its own Kustomization, at most 64. Not together with `path`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub paths: Vec<SurfacePath>,
    /// Deletes applied objects that the repository no longer contains. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<bool>,
    /// Waits until every applied object is healthy. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wait: bool,
    /// Time limit of one attempt to apply, at least 30s. Default: the value of `interval` less 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
    /// Time until a failed reconciliation is tried again. Default: the value of `interval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<DurationText>,
    /// Sources of the same Surface that must be ready first, at most 500.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<SurfaceDependency>,
    /// Namespace that is set on every namespaced object. In the tenant tier, it must be a namespace of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,
    /// Handling of the applied objects when the Surface, or this source of it, is removed. Default: `Orphan` in the tenant tier, `MirrorPrune` in the platform tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["MirrorPrune", "Delete", "WaitForTermination", "Orphan"]))]
    pub deletion_policy: Option<String>,
    /// `All` (default) applies a stage only if all of its objects are accepted. `Partial` applies the accepted objects. `DetectOnly` applies nothing; the condition lists
    /// the changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["All", "Partial", "DetectOnly"]))]
    pub apply: Option<String>,
    /// Recreates an object if the API server refuses to change an immutable field. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// Inline patches of the objects, at most 500.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub patches: Vec<Patch>,
    /// Decryption of encrypted files in the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decryption: Option<SurfaceDecryption>,
}

/// Keys for the encrypted files of a source. The account of the Surface reads them, so it needs the right to read the Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SurfaceDecryption {
    /// Tool that encrypted the files. Only `sops` is supported.
    #[schemars(extend("enum" = ["sops"]))]
    pub provider: String,
    /// Secret with the keys, in the namespace of the Surface: entries with names that end in `.agekey` or `.asc`.
    pub secret_ref: LocalObjectReference,
}

/// An ed25519 key that Tenure makes. The private half is only in a Secret beside the Surface. The public half is in the status of the Surface; add it to the repository
/// as a read-only deploy key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SurfaceDeployKey {
    /// Host keys of the server, as `ssh-keyscan` writes them, at most 16 KiB. A server without a matching key is refused, also at the first connection.
    #[schemars(length(min = 1, max = 16384))]
    pub known_hosts: String,
}

/// A folder of the repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SurfacePath {
    /// Name of the path, unique in the source. The Kustomization is named `<surface>-<source>-<name>`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Folder to apply.
    pub path: String,
    /// Namespace that is set on every namespaced object. Default: the `targetNamespace` of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,
}

/// Another source of the same Surface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SurfaceDependency {
    /// Name of the source.
    pub name: String,
}

/// State of the Surface and of the objects that it generates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SurfaceStatus {
    /// Conditions: Ready, Reconciling, Stalled and OwnershipNotEnforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Deploy keys that Tenure made for sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deploy_keys: Vec<SurfaceDeployKeyStatus>,
    /// Account that applies the objects: `system:serviceaccount:<namespace>:<name>`. Absent if no account applies them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Last value of the annotation `reconcile.fluxcd.io/requestedAt` that the controller handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// State of each source, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SurfaceSourceStatus>,
    /// Name of the tenant, in the tenant tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Tier of the Surface: `Platform` or `Tenant`. Absent if no Surface is allowed in this namespace.
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
    /// The repository is fetched, and everything of it is applied.
    pub ready: bool,
    /// Revision that was fetched last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_revision: Option<String>,
    /// Revision that all Kustomizations of the source have applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_revision: Option<String>,
    /// Progress or problem of the source, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Deploy key that Tenure made for a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SurfaceDeployKeyStatus {
    /// Name of the source.
    pub source: String,
    /// Public half of the key, as one line of `authorized_keys`.
    pub public_key: String,
    /// Fingerprint of the public half, as `ssh-keygen -l` writes it: `SHA256:…`.
    pub fingerprint: String,
    /// Name of the Secret with the private half, in the namespace of the Surface.
    pub secret_name: String,
}
