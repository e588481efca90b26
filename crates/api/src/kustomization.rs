//! `Kustomization` (kustomize.toolkit.fluxcd.io/v1) with all of Flux's fields. Which of them are implemented is the planner's to say.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::duration::{DurationError, DurationText};
use crate::inventory::ResourceInventory;
use crate::reference::{
    CrossNamespaceSourceReference, DependencyReference, LocalObjectReference, NamespacedObjectKindReference,
    SecretKeyReference,
};
use crate::selector::{CustomHealthCheck, Image, Patch, Selector};
use crate::time::{self, Time};

/// What to apply, from which source, and how.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kustomize.toolkit.fluxcd.io",
    version = "v1",
    kind = "Kustomization",
    plural = "kustomizations",
    shortname = "ks",
    namespaced,
    status = "KustomizationStatus",
    derive = "PartialEq",
    doc = "Kustomization applies what a source's files render to, as one ServiceAccount.",
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
pub struct KustomizationSpec {
    /// Which annotations kustomize leaves on what it builds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("items" = { "type": "string", "enum": ["originAnnotations", "transformerAnnotations"] }))]
    pub build_metadata: Vec<String>,
    /// Labels and annotations put on every object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// Relative paths of kustomize components.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
    /// How encrypted files are decrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decryption: Option<Decryption>,
    /// What happens to the objects when the Kustomization is deleted; `MirrorPrune` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["MirrorPrune", "Delete", "WaitForTermination", "Orphan"]))]
    pub deletion_policy: Option<String>,
    /// Kustomizations that must be ready first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependencyReference>,
    /// Recreate objects whose change is refused because a field is immutable.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// Health expressions in CEL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_check_exprs: Vec<CustomHealthCheck>,
    /// Objects to be healthy before the Kustomization is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_checks: Vec<NamespacedObjectKindReference>,
    /// Fields that are left to others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<IgnoreRule>,
    /// Skip components that are not there.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ignore_missing_components: bool,
    /// Changes of images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// How often everything is looked at again.
    pub interval: DurationText,
    /// The cluster to apply to, when it is not this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigReference>,
    /// Put before every object's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub name_prefix: Option<String>,
    /// Put after every object's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub name_suffix: Option<String>,
    /// Inline patches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
    /// Folder within the source; its root when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Substitution of variables after the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_build: Option<PostBuild>,
    /// Delete what was applied earlier and is no longer in the source.
    pub prune: bool,
    /// How soon a failure is tried again; the interval when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<DurationText>,
    /// The ServiceAccount to act as, in the same namespace; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The source of the files.
    pub source_ref: CrossNamespaceSourceReference,
    /// Do nothing until this is false again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Namespace set on every namespaced object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,
    /// How long an attempt may take; the interval less 30 s when absent, never under 30 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
    /// Wait until every object is healthy.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wait: bool,
}

/// Labels and annotations put on every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CommonMetadata {
    /// Annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// How encrypted files are decrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Decryption {
    /// The engine.
    #[schemars(extend("enum" = ["sops"]))]
    pub provider: String,
    /// Secret with the keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount that authenticates to a key service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
}

/// Paths that are left out of drift detection and apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct IgnoreRule {
    /// JSON pointers (RFC 6901).
    pub paths: Vec<String>,
    /// Which objects; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Selector>,
}

/// The cluster to apply to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct KubeConfigReference {
    /// ConfigMap with an address and a cloud provider's way to authenticate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalObjectReference>,
    /// Secret with a kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyReference>,
}

/// Substitution of variables after the build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PostBuild {
    /// Variables and their values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substitute: Option<BTreeMap<String, String>>,
    /// ConfigMaps and Secrets with variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub substitute_from: Vec<SubstituteReference>,
    /// Whether to substitute when there is no variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["WithVariables", "Always"]))]
    pub substitute_strategy: Option<String>,
}

/// A ConfigMap or Secret with variables, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SubstituteReference {
    /// Kind.
    #[schemars(extend("enum" = ["Secret", "ConfigMap"]))]
    pub kind: String,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Whether it may be absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
}

/// What was observed and done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KustomizationStatus {
    /// Conditions: Ready, Reconciling, Healthy, Stalled and Contested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The last attempts, newest first, at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Snapshot>,
    /// The objects that were applied and are still accounted for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// Origin revision of the artifact that was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_origin_revision: Option<String>,
    /// Revision that was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_revision: Option<String>,
    /// Revision that was tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,
    /// The last value of the annotation `reconcile.fluxcd.io/requestedAt` that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Generation that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// One entry of the history: a build and how its reconciliations ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Snapshot {
    /// Digest of what was built.
    pub digest: String,
    /// When it was first reconciled.
    #[schemars(schema_with = "time::describe")]
    pub first_reconciled: Time,
    /// When it was last reconciled.
    #[schemars(schema_with = "time::describe")]
    pub last_reconciled: Time,
    /// How long the last reconciliation took.
    pub last_reconciled_duration: String,
    /// Reason of the Ready condition that the last reconciliation ended with.
    pub last_reconciled_status: String,
    /// What the source said of the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// How many reconciliations this entry stands for.
    pub total_reconciliations: i64,
}

/// What happens to the objects when the Kustomization is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionPolicy {
    /// Deleted if `prune` is set, else left.
    MirrorPrune,
    /// Deleted.
    Delete,
    /// Deleted, and waited for.
    WaitForTermination,
    /// Left.
    Orphan,
}

impl KustomizationSpec {
    /// The deletion policy; `MirrorPrune` when absent, nothing when the text is not one.
    #[must_use]
    pub fn deletion_policy(&self) -> Option<DeletionPolicy> {
        match self.deletion_policy.as_deref() {
            None | Some("" | "MirrorPrune") => Some(DeletionPolicy::MirrorPrune),
            Some("Delete") => Some(DeletionPolicy::Delete),
            Some("WaitForTermination") => Some(DeletionPolicy::WaitForTermination),
            Some("Orphan") => Some(DeletionPolicy::Orphan),
            Some(_) => None,
        }
    }

    /// How long an attempt may take: `timeout`, else the interval less 30 s; never under 30 s (Flux's rule).
    ///
    /// # Errors
    /// When the text is not a duration.
    pub fn effective_timeout(&self) -> Result<Duration, DurationError> {
        let timeout = match &self.timeout {
            Some(timeout) => timeout.parse()?,
            None => self.interval.parse()?.saturating_sub(Duration::from_secs(30)),
        };
        Ok(timeout.max(Duration::from_secs(30)))
    }

    /// How soon a failure is tried again: `retryInterval`, else the interval.
    ///
    /// # Errors
    /// When the text is not a duration.
    pub fn effective_retry_interval(&self) -> Result<Duration, DurationError> {
        self.retry_interval.as_ref().unwrap_or(&self.interval).parse()
    }
}

pub(crate) fn is_false(value: &bool) -> bool {
    !*value
}
