//! `Alert` (notification.toolkit.fluxcd.io/v1beta3) with all of Flux's fields. The status is Tenure's: Flux's definition has none in this version, and
//! where it is installed nothing is written there.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::kustomization::is_false;
use crate::reference::LocalObjectReference;

/// Events to send, and the Provider that receives them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "notification.toolkit.fluxcd.io",
    version = "v1beta3",
    kind = "Alert",
    plural = "alerts",
    namespaced,
    status = "AlertStatus",
    derive = "PartialEq",
    doc = "Alert selects the events that a Provider sends.",
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
pub struct AlertSpec {
    /// Metadata that is added to each event, at most 50 entries and 16 KiB.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub event_metadata: BTreeMap<String, String>,
    /// Lowest severity of the events to send: `info` (default) for all events, `error` for failures only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["info", "error"]))]
    pub event_severity: Option<String>,
    /// Objects whose events the Alert sends, at most 100 entries.
    pub event_sources: Vec<EventSource>,
    /// Go regular expressions, at most 20. The Alert does not send an event if one of them matches the message. An exclusion wins over an inclusion.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusion_list: Vec<String>,
    /// Go regular expressions, at most 20. If the list is not empty, the Alert sends an event only if one of them matches the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inclusion_list: Vec<String>,
    /// Provider that receives the events, in the namespace of the Alert.
    pub provider_ref: LocalObjectReference,
    /// Value of `summary` in the metadata of each event, at most 255 characters. It wins over the key `summary` of `eventMetadata`, the newer place for a summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub summary: Option<String>,
    /// Sends no events while true. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
}

/// Objects of one kind whose events the Alert sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct EventSource {
    /// API version of the objects. The group must be the group of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the objects. Kinds that Tenure does not reconcile have no events, except HelmRelease; the Ready condition names them.
    #[schemars(extend("enum" = [
        "Bucket", "GitRepository", "Kustomization", "HelmRelease", "HelmChart", "HelmRepository", "ImageRepository", "ImagePolicy",
        "ImageUpdateAutomation", "OCIRepository", "ArtifactGenerator", "ExternalArtifact"
    ]))]
    pub kind: String,
    /// Labels that the objects must have, at most 100.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Name of the object, or `*` for all objects of the kind.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the objects. Default: the namespace of the Alert. Another namespace must belong to the same tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,
}

/// State of the Alert.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertStatus {
    /// Conditions: Ready and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
