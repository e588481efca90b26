//! References from one object to another, as Flux writes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reference to an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct LocalObjectReference {
    /// Name of the referent.
    pub name: String,
}

/// Reference to a key of a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SecretKeyReference {
    /// Key of the Secret. Default: `value`, else `value.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Name of the Secret.
    pub name: String,
}

/// Reference to an object of any kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct NamespacedObjectKindReference {
    /// API version of the referent. Default: `apps/v1`, as in Flux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the referent.
    pub kind: String,
    /// Name of the referent.
    pub name: String,
    /// Namespace of the referent. Default: none, for a cluster-scoped object. A tenant's Kustomization must name a namespace of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Reference to a Kustomization that must be ready first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DependencyReference {
    /// Name of the referent.
    pub name: String,
    /// Namespace of the referent. Default: the namespace of this object. Another namespace must belong to the same tenant, or an administrator must grant the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// CEL expression that decides whether the dependency is ready, in place of the built-in check. Its variables are `self` and `dep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_expr: Option<String>,
}

/// Reference to a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct CrossNamespaceSourceReference {
    /// API version of the referent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the referent.
    #[schemars(extend("enum" = ["OCIRepository", "GitRepository", "Bucket", "ExternalArtifact"]))]
    pub kind: String,
    /// Name of the referent.
    pub name: String,
    /// Namespace of the referent. Default: the namespace of this object. Another namespace must belong to the same tenant, or an administrator must grant the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}
