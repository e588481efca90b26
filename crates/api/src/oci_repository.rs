//! `OCIRepository` (source.toolkit.fluxcd.io/v1) with all of Flux's fields. Which of them are implemented is the planner's to say.

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

/// Which artifact of a container registry to fetch, how often, with which credentials, and whose signature it must bear.
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
    /// Secret with `ca.crt`, which is believed besides the system's authorities, and `tls.crt` and `tls.key`, which are shown to the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Patterns of files to leave out, in the form of `.gitignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// The registry is spoken to over plain HTTP.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
    /// How often the registry is asked.
    pub interval: DurationText,
    /// Which layer is taken, and what is done with it; the first, which is extracted, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_selector: Option<OciLayerSelector>,
    /// How to authenticate; `generic` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["generic", "aws", "azure", "gcp"]))]
    pub provider: Option<String>,
    /// Secret with a proxy's address and credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Which artifact; tag `latest` when absent.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<OciRepositoryRef>,
    /// Secret of type `kubernetes.io/dockerconfigjson` with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount whose `imagePullSecrets` are used besides `secretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Do nothing until this is false again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// How long a fetch may take; 60 s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
    /// Address of the repository in the registry, without tag: `oci://host/path`.
    #[schemars(with = "String", regex(pattern = r"^oci://.*$"))]
    pub url: SourceUrl,
    /// Verification of signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<OciRepositoryVerification>,
}

/// Which artifact. Precedence: digest, semver, tag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct OciRepositoryRef {
    /// Digest of the manifest, `sha256:<hex>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Range of versions; the newest tag within it is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<String>,
    /// Regular expression that a tag must match to be looked at for `semver`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver_filter: Option<String>,
    /// Tag; `latest` when nothing is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Which layer of an artifact is taken, and what is done with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct OciLayerSelector {
    /// Media type of the layer: the first that has it is taken; the first of all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Whether its files become the artifact, or it is the artifact as it stands; `extract` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["extract", "copy"]))]
    pub operation: Option<String>,
}

/// Verification of signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct OciRepositoryVerification {
    /// Identities of signers without keys.
    #[serde(rename = "matchOIDCIdentity", default, skip_serializing_if = "Vec::is_empty")]
    pub match_oidc_identity: Vec<OidcIdentityMatch>,
    /// Whose signatures they are: `cosign` or `notation`.
    #[schemars(extend("enum" = ["cosign", "notation"]))]
    pub provider: String,
    /// Secret with the public keys of trusted authors: the keys of its data that end in `.pub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Secret with the authorities for signers without keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_root_secret_ref: Option<LocalObjectReference>,
}

/// The identity of a signer without a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct OidcIdentityMatch {
    /// Regular expression for the issuer of the identity.
    pub issuer: String,
    /// Regular expression for the identity.
    pub subject: String,
}

/// What was observed and fetched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciRepositoryStatus {
    /// What was fetched last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Conditions: Ready, ArtifactInStorage, FetchFailed, SourceVerified, Reconciling and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The last value of the annotation `reconcile.fluxcd.io/requestedAt` that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Generation that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `ignore` as it was when the artifact was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// `layerSelector` as it was when the artifact was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_layer_selector: Option<OciLayerSelector>,
    /// Address that Flux served the artifact at. Tenure leaves it empty and never reads it: a forged one has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
