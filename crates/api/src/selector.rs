//! Flux's selectors, patches and images, as in kustomize's own types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Objects that a patch or an ignore rule is for. An object must match every field that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Selector {
    /// Selector of annotations, in the syntax of a label selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation_selector: Option<String>,
    /// Regular expression that must match the whole API group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Regular expression that must match the whole kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Selector of labels, in the syntax of a label selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// Regular expression that must match the whole name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Regular expression that must match the whole namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Regular expression that must match the whole API version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A strategic merge patch or a list of JSON patch operations, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Patch {
    /// Text of the patch.
    pub patch: String,
    /// Objects to patch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Selector>,
}

/// A change of an image's name, tag or digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Image {
    /// New digest, which wins over `newTag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Name of the image in the files, without a tag.
    pub name: String,
    /// New name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_name: Option<String>,
    /// New tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_tag: Option<String>,
}

/// CEL expressions for the health of objects of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct CustomHealthCheck {
    /// API version of the kind. Only the group counts, as in Flux.
    pub api_version: String,
    /// CEL expression: if true, the object is as its spec wants it.
    pub current: String,
    /// CEL expression: if true, the object has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// CEL expression: if true, the object is not ready yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_progress: Option<String>,
    /// Kind of the objects. Default: all kinds of the group without an entry of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}
