//! `Receiver` (notification.toolkit.fluxcd.io/v1) with all of Flux's fields. The planner decides which of them are implemented.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::duration::DurationText;
use crate::kustomization::is_false;
use crate::reference::LocalObjectReference;

/// Sender of webhook requests, and the objects that a request reconciles.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "notification.toolkit.fluxcd.io",
    version = "v1",
    kind = "Receiver",
    plural = "receivers",
    namespaced,
    status = "ReceiverStatus",
    derive = "PartialEq",
    doc = "Receiver accepts the requests with which a Git host or a registry reports a change.",
    annotation("kustomize.toolkit.fluxcd.io/substitute", "disabled"),
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
pub struct ReceiverSpec {
    /// Events that the Receiver accepts, such as `push` of GitHub or `Push Hook` of GitLab, at most 100. Default: all events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// Time between two checks of the Secret. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<DurationText>,
    /// Trusted issuers of tokens, for the type `generic-oidc`. Not supported yet: a Receiver with this field is Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["issuerURL"]))]
    pub oidc_providers: Vec<OidcProvider>,
    /// CEL expression that decides for each object whether a request reconciles it. `res` has the `apiVersion`, `kind` and `metadata` of the object; `req` is the body of
    /// the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_filter: Option<String>,
    /// Objects that a request reconciles, at most 100 entries.
    pub resources: Vec<ReceiverResource>,
    /// Secret with the key `token`, which the sender must know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Refuses requests while true. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Type of the sender, which decides how a request is verified and read. `generic-oidc`, `gcr`, `acr` and `cdevents` are not supported yet.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = [
        "generic", "generic-hmac", "generic-oidc", "github", "gitlab", "bitbucket", "harbor", "dockerhub", "quay", "gcr", "nexus", "acr",
        "cdevents"
    ]))]
    pub type_: String,
}

/// Objects of one kind that a request reconciles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ReceiverResource {
    /// API version of the objects. The group must be the group of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// CEL expression for the objects of this entry. An object is reconciled only if `resourceFilter` is true, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Kind of the objects: GitRepository, OCIRepository, Bucket or Kustomization. Other kinds are not supported yet.
    #[schemars(extend("enum" = [
        "Bucket", "GitRepository", "Kustomization", "HelmRelease", "HelmChart", "HelmRepository", "ImageRepository", "ImagePolicy",
        "ImageUpdateAutomation", "OCIRepository", "ArtifactGenerator", "ExternalArtifact"
    ]))]
    pub kind: String,
    /// Labels that the objects must have, at most 100. Required if `name` is `*`, without effect otherwise.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Name of the object, or `*` for all objects with the labels of `matchLabels`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the objects. Default: the namespace of the Receiver. Another namespace must belong to the same tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,
}

/// A trusted issuer of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct OidcProvider {
    /// Audience that the tokens must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Address of the issuer.
    #[serde(rename = "issuerURL")]
    #[schemars(regex(pattern = r"^https?://"))]
    pub issuer_url: String,
    /// Checks of a token's claims. All of them must be true.
    #[schemars(length(min = 1))]
    pub validations: Vec<OidcValidation>,
    /// Named expressions that the validations may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<OidcVariable>,
}

/// A check of a token's claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct OidcValidation {
    /// Expression that must be true.
    pub expression: String,
    /// Answer to the sender if the expression is false.
    pub message: String,
}

/// A named expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct OidcVariable {
    /// The expression.
    pub expression: String,
    /// Name of the variable.
    pub name: String,
}

/// State of the Receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverStatus {
    /// Conditions: Ready, Reconciling and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Last value of the annotation `reconcile.fluxcd.io/requestedAt` that the controller handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Path for the requests: `/hook/` and the SHA-256 of the token, the name and the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_path: Option<String>,
}
