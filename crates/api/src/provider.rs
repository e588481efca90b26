//! `Provider` (notification.toolkit.fluxcd.io/v1beta3) with all of Flux's fields. The planner decides which of them are implemented. The status is
//! Tenure's: Flux's definition has none in this version, and where it is installed nothing is written there.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::duration::DurationText;
use crate::kustomization::is_false;
use crate::reference::LocalObjectReference;

/// Receiver of events, and the form of the messages.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "notification.toolkit.fluxcd.io",
    version = "v1beta3",
    kind = "Provider",
    plural = "providers",
    namespaced,
    status = "ProviderStatus",
    derive = "PartialEq",
    doc = "Provider is a destination for the events of Alerts, and sets their format.",
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
pub struct ProviderSpec {
    /// HTTP or HTTPS address that the events are sent to; for a Git host, the address of the repository. The key `address` of the Secret wins over this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub address: Option<String>,
    /// Secret with TLS data. `ca.crt` is trusted besides the system's authorities. `tls.crt` and `tls.key` are the client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Channel of the receiver for the messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub channel: Option<String>,
    /// CEL expression for the name of a commit's status, with the variables `event`, `alert` and `provider`. For the types `github`, `gitlab` and `gitea` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_status_expr: Option<String>,
    /// Deprecated: no effect, as in Flux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<DurationText>,
    /// Address of a proxy. Deprecated: use `proxySecretRef`. The two fields together are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = r"^(http|https)://.*$"))]
    pub proxy: Option<String>,
    /// Secret with the `address` of a proxy, and its `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Secret with the keys that the type needs: `address`, `token`, `username`, `password`, `headers` and `proxy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount for credentials of a cloud provider. Not supported yet: a Provider with this field is Stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Sends no messages while true. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Time limit of one attempt to send, at most 2m. Default: 15s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$"))]
    pub timeout: Option<DurationText>,
    /// Type of the receiver, which decides the form of the messages. Supported are `generic`, `generic-hmac`, `slack`, `msteams`, `discord`, `alertmanager`, `github`,
    /// `gitlab` and `gitea`.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = [
        "slack", "discord", "msteams", "rocket", "generic", "generic-hmac", "github", "gitlab", "gitea", "giteapullrequestcomment",
        "bitbucketserver", "bitbucket", "azuredevops", "googlechat", "googlepubsub", "webex", "sentry", "azureeventhub", "telegram", "lark",
        "matrix", "opsgenie", "alertmanager", "grafana", "githubdispatch", "githubpullrequestcomment", "gitlabmergerequestcomment", "pagerduty",
        "datadog", "nats", "zulip", "otel", "zoom", "incident.io"
    ]))]
    pub type_: String,
    /// User name that the messages are posted under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub username: Option<String>,
}

/// State of the Provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderStatus {
    /// Conditions: Ready and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
