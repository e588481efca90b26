//! `Bucket` (source.toolkit.fluxcd.io/v1) with all of Flux's fields. Which of them are implemented is the planner's to say.

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

/// Which objects of a store to fetch, how often, and with which credentials.
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
    /// Name of the bucket.
    pub bucket_name: String,
    /// Secret with `ca.crt`, which is believed besides the system's authorities, and `tls.crt` and `tls.key`, which are shown to the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Address of the store, `host` or `host:port`.
    pub endpoint: String,
    /// Patterns of objects to leave out, in the form of `.gitignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// The store is spoken to over plain HTTP.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
    /// How often the store is asked.
    pub interval: DurationText,
    /// What the keys of the objects begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// What kind of store it is; `generic`, which speaks the protocol of S3, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["generic", "aws", "gcp", "azure"]))]
    pub provider: Option<String>,
    /// Secret with a proxy's address and credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Region of the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Secret with the credentials: `accesskey` and `secretkey`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount that is shown to a cloud for credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// A service that gives temporary credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sts: Option<BucketTokenService>,
    /// Do nothing until this is false again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// How long a fetch may take; 60 s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
}

/// A service that gives temporary credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct BucketTokenService {
    /// Secret with what TLS believes and shows there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Its address.
    #[schemars(regex(pattern = r"^(http|https)://.*$"))]
    pub endpoint: String,
    /// What kind of service it is.
    #[schemars(extend("enum" = ["aws", "ldap"]))]
    pub provider: String,
    /// Secret with `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
}

/// What was observed and fetched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketStatus {
    /// What was fetched last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Conditions: Ready, ArtifactInStorage, FetchFailed, StorageOperationFailed, Reconciling and Stalled.
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
    /// Address that Flux served the artifact at. Tenure leaves it empty and never reads it: a forged one has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
