//! `Provider` (notification.toolkit.fluxcd.io/v1beta3) with all of Flux's fields. Which of them are implemented is the planner's to say. The status is
//! ours: Flux's definition has none in this version, and where it is installed nothing is written there.

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

/// Who is told of events, and how.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "notification.toolkit.fluxcd.io",
    version = "v1beta3",
    kind = "Provider",
    plural = "providers",
    namespaced,
    status = "ProviderStatus",
    derive = "PartialEq",
    doc = "Provider says where Alerts send events, and in which form.",
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
    /// Where events are sent: an HTTP or HTTPS address, for a Git host that of the repository. The key `address` of the Secret goes before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub address: Option<String>,
    /// Secret whose `ca.crt` is believed, and whose `tls.crt` and `tls.key` are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Where in the receiver's world an event goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub channel: Option<String>,
    /// An expression in CEL whose value names a commit's status; `event`, `alert` and `provider` are its variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_status_expr: Option<String>,
    /// Not used any more, in Flux either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<DurationText>,
    /// Address of a proxy; `proxySecretRef` takes its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = r"^(http|https)://.*$"))]
    pub proxy: Option<String>,
    /// Secret with the `address` of a proxy, its `username` and its `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Secret with `address`, `token`, `username`, `password`, `headers` and `proxy`, as far as the type wants them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount by which a cloud is asked for credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Send nothing until this is false again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// How long one attempt to send may take; 15 s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$"))]
    pub timeout: Option<DurationText>,
    /// Who is told: how an event is written.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = [
        "slack", "discord", "msteams", "rocket", "generic", "generic-hmac", "github", "gitlab", "gitea", "giteapullrequestcomment",
        "bitbucketserver", "bitbucket", "azuredevops", "googlechat", "googlepubsub", "webex", "sentry", "azureeventhub", "telegram", "lark",
        "matrix", "opsgenie", "alertmanager", "grafana", "githubdispatch", "githubpullrequestcomment", "gitlabmergerequestcomment", "pagerduty",
        "datadog", "nats", "zulip", "otel", "zoom", "incident.io"
    ]))]
    pub type_: String,
    /// The name that events are posted under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub username: Option<String>,
}

/// Whether events can be sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderStatus {
    /// Conditions: Ready and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Generation that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
