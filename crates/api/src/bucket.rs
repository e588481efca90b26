//! `Bucket` (source.toolkit.fluxcd.io/v1) with all of Flux's fields. The planner decides which of them are implemented.

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

/// Bucket to fetch, with the interval and the credentials.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "Bucket",
    plural = "buckets",
    namespaced,
    status = "BucketStatus",
    derive = "PartialEq",
    doc = "Bucket fetches the objects of a bucket in an object store.",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.endpoint"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BucketSpec {
    /// Name of the bucket: 3 to 63 letters, digits, dots, dashes and underscores, with a letter or digit at both ends.
    pub bucket_name: String,
    /// Secret with TLS data. `ca.crt` is trusted besides the system's authorities. `tls.crt` and `tls.key` are the client certificate for the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Address of the object store: `host` or `host:port`, without a scheme.
    pub endpoint: String,
    /// Patterns of objects to leave out, in the format of `.gitignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Connects to the store over plain HTTP. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
    /// Time between two checks of the bucket, such as `5m`.
    pub interval: DurationText,
    /// Prefix of the keys of the objects to fetch, at most 1024 bytes. Default: all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Type of the store: `generic` (default) for any store with S3's protocol, or `aws` with a `secretRef`. `azure` and `gcp` are not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["generic", "aws", "gcp", "azure"]))]
    pub provider: Option<String>,
    /// Secret with the `address` of a proxy, and its `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Region of the bucket, such as `eu-west-1`. Default: the region that the store names, else `us-east-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Secret with the credentials `accesskey` and `secretkey`. Without it, requests are not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount for credentials of a cloud provider. Not supported yet: a Bucket with this field is Stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Security token service for temporary credentials. Not supported yet: a Bucket with this field is Stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sts: Option<BucketTokenService>,
    /// Stops fetching while true. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Time limit of one fetch, at most 1h. Default: 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
}

/// Security token service for temporary credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct BucketTokenService {
    /// Secret with TLS data for the service: trusted authorities, and a client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Address of the service: `http://` or `https://`.
    #[schemars(regex(pattern = r"^(http|https)://.*$"))]
    pub endpoint: String,
    /// Type of the service: `aws` or `ldap`.
    #[schemars(extend("enum" = ["aws", "ldap"]))]
    pub provider: String,
    /// Secret with `username` and `password` for the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
}

/// State of the Bucket and of its artifact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketStatus {
    /// Artifact that was fetched last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Conditions: Ready, ArtifactInStorage, FetchFailed, StorageOperationFailed, Reconciling and Stalled.
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
    /// Address at which Flux served the artifact. Tenure leaves this field empty and never reads it, so a forged address has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
