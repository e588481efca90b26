//! `OCIRepository` (source.toolkit.fluxcd.io/v1) with all of Flux's fields. The planner decides which of them are implemented.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::condition::Condition;
use crate::duration::DurationText;
use crate::kustomization::is_false;
use crate::reference::LocalObjectReference;
use crate::source_url::SourceUrl;

/// Artifact of a container registry to fetch, with the interval, the credentials and the required signature.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "OCIRepository",
    root = "OciRepository",
    plural = "ocirepositories",
    shortname = "ocirepo",
    namespaced,
    status = "OciRepositoryStatus",
    derive = "PartialEq",
    doc = "OCIRepository fetches an artifact of a container registry.",
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
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
pub struct OciRepositorySpec {
    /// Secret with TLS data. `ca.crt` is trusted besides the system's authorities. `tls.crt` and `tls.key` are the client certificate for the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Patterns of files to leave out, in the format of `.gitignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Connects to the registry over plain HTTP. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
    /// Time between two checks of the registry, such as `5m`.
    pub interval: DurationText,
    /// Layer of the artifact to fetch, and its handling. Default: the first layer, extracted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_selector: Option<OciLayerSelector>,
    /// Type of the credentials. Default: `generic`. `aws`, `azure` and `gcp` are not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["generic", "aws", "azure", "gcp"]))]
    pub provider: Option<String>,
    /// Secret with the `address` of a proxy, and its `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Artifact to fetch. Default: the tag `latest`.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<OciRepositoryRef>,
    /// Secret of type `kubernetes.io/dockerconfigjson` with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount whose `imagePullSecrets` are used besides `secretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Stops fetching while true. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Time limit of one fetch, at most 1h. Default: 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
    /// Address of the repository in the registry, without a tag: `oci://host/path`.
    #[schemars(with = "String", regex(pattern = r"^oci://.*$"))]
    pub url: SourceUrl,
    /// Verification of signatures. Default: signatures are not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<OciRepositoryVerification>,
}

/// Artifact to fetch. If several fields are set, the first of these counts: `digest`, `semver`, `tag`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct OciRepositoryRef {
    /// Digest of the manifest: `sha256:<hex>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Range of semantic versions. The tag with the highest version in this range is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<String>,
    /// Go regular expression. With `semver`, only matching tags count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver_filter: Option<String>,
    /// Tag to fetch. Default if no field is set: `latest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Layer of an artifact, and its handling.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct OciLayerSelector {
    /// Media type of the layer; the first layer of this type is fetched. Default: the first layer of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// `extract` (default): the files of the layer become the artifact. `copy`: the layer itself is the artifact, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["extract", "copy"]))]
    pub operation: Option<String>,
}

/// Verification of signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct OciRepositoryVerification {
    /// Identities of keyless signers. Not supported yet: an OCIRepository with this field is Stalled.
    #[serde(rename = "matchOIDCIdentity", default, skip_serializing_if = "Vec::is_empty")]
    pub match_oidc_identity: Vec<OidcIdentityMatch>,
    /// Tool that made the signatures. Only `cosign` is supported: `notation` is not supported yet.
    #[schemars(extend("enum" = ["cosign", "notation"]))]
    pub provider: String,
    /// Secret with the public keys of the trusted authors: entries with names that end in `.pub`. Required, since keyless signatures are not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Secret with the trusted root for keyless signers. Not supported yet: an OCIRepository with this field is Stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_root_secret_ref: Option<LocalObjectReference>,
}

/// Identity of a keyless signer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct OidcIdentityMatch {
    /// Regular expression for the issuer of the identity.
    pub issuer: String,
    /// Regular expression for the identity.
    pub subject: String,
}

/// State of the OCIRepository and of its artifact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciRepositoryStatus {
    /// Artifact that was fetched last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Conditions: Ready, ArtifactInStorage, FetchFailed, StorageOperationFailed, SourceVerified, Reconciling and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Last value of the annotation `reconcile.fluxcd.io/requestedAt` that the controller handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Value of `spec.ignore` when the artifact was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// Value of `spec.layerSelector` when the artifact was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_layer_selector: Option<OciLayerSelector>,
    /// Address at which Flux served the artifact. Tenure leaves this field empty and never reads it, so a forged address has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
