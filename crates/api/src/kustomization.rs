//! `Kustomization` (kustomize.toolkit.fluxcd.io/v1) with all of Flux's fields. The planner decides which of them are implemented.

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
use crate::inventory::{AllowedDeletion, ResourceInventory};
use crate::reference::{
    CrossNamespaceSourceReference, DependencyReference, LocalObjectReference, NamespacedObjectKindReference,
    SecretKeyReference,
};
use crate::selector::{CustomHealthCheck, Image, Patch, Selector};
use crate::time::{self, Time};

/// Objects to apply, their source, and the way to apply them.
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
    doc = "Kustomization renders the files of a source, and applies the objects as one ServiceAccount.",
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
    /// Annotations about the build that kustomize keeps on the objects: `originAnnotations`, `transformerAnnotations`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("items" = { "type": "string", "enum": ["originAnnotations", "transformerAnnotations"] }))]
    pub build_metadata: Vec<String>,
    /// Labels and annotations that are set on every object, at most 100 each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// Kustomize components, as paths relative to `path`, at most 500. Remote and absolute paths are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
    /// Decryption of encrypted files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decryption: Option<Decryption>,
    /// Handling of the applied objects when the Kustomization is deleted. `MirrorPrune` (default): deletes them if `prune` is true. `Delete`: deletes them.
    /// `WaitForTermination`: deletes them and waits until they are gone. `Orphan`: leaves them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["MirrorPrune", "Delete", "WaitForTermination", "Orphan"]))]
    pub deletion_policy: Option<String>,
    /// Kustomizations that must be ready before this one is applied, at most 500.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependencyReference>,
    /// Recreates an object if the API server refuses to change an immutable field.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// CEL expressions for the health of objects, one entry for each kind, at most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_check_exprs: Vec<CustomHealthCheck>,
    /// Objects that must be healthy before the Kustomization is ready, at most 1,000. With `wait`, this field has no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_checks: Vec<NamespacedObjectKindReference>,
    /// Fields of objects that the Kustomization leaves to others: a changed value stays and is no drift. At most 50 rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<IgnoreRule>,
    /// Leaves out components that don't exist. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ignore_missing_components: bool,
    /// Changes of image names, tags and digests, at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Time between two full reconciliations, such as `10m`.
    pub interval: DurationText,
    /// Other cluster to apply to. Default: the cluster of the Kustomization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigReference>,
    /// Prefix for the names of all objects, 1 to 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub name_prefix: Option<String>,
    /// Suffix for the names of all objects, 1 to 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub name_suffix: Option<String>,
    /// Inline patches, at most 500.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
    /// Folder within the source. Default: the root of the source. A path that leads out of the source is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Substitution of variables after the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_build: Option<PostBuild>,
    /// Deletes applied objects that the source no longer contains.
    pub prune: bool,
    /// Time until a failed reconciliation is tried again. Default: the value of `interval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<DurationText>,
    /// ServiceAccount that applies the objects, in the same namespace. Default: the account that an administrator set for the namespace, else `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Source of the files.
    pub source_ref: CrossNamespaceSourceReference,
    /// Stops the reconciliation while true. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Namespace that is set on every namespaced object. For a tenant's Kustomization, it must be a namespace of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,
    /// Time limit of one attempt, at least 30s. Default: the value of `interval` less 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
    /// Waits until every applied object is healthy. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wait: bool,
}

/// Labels and annotations that are set on every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CommonMetadata {
    /// Annotations for every object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels for every object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// Decryption of encrypted files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Decryption {
    /// Tool that encrypted the files. Only `sops` is supported.
    #[schemars(extend("enum" = ["sops"]))]
    pub provider: String,
    /// Secret with the keys: entries with names that end in `.agekey` or `.asc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount for a key service. Not supported yet: a Kustomization with this field is Stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
}

/// Fields of objects that the Kustomization leaves to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct IgnoreRule {
    /// JSON pointers (RFC 6901) to the fields, such as `/spec/replicas`.
    pub paths: Vec<String>,
    /// Objects that the rule is for. Default: all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Selector>,
}

/// Cluster to apply to. Exactly one of the two fields must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct KubeConfigReference {
    /// ConfigMap with the address of the API server and a provider that authenticates. Only the provider `generic` is supported.
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
    /// Variables and their values. They win over variables of `substituteFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substitute: Option<BTreeMap<String, String>>,
    /// ConfigMaps and Secrets with variables, at most 100. A later entry wins over an earlier one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub substitute_from: Vec<SubstituteReference>,
    /// `WithVariables` (default) substitutes only if at least one variable is set. `Always` substitutes in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["WithVariables", "Always"]))]
    pub substitute_strategy: Option<String>,
}

/// A ConfigMap or Secret with variables, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SubstituteReference {
    /// Kind: `ConfigMap` or `Secret`.
    #[schemars(extend("enum" = ["Secret", "ConfigMap"]))]
    pub kind: String,
    /// Name of the ConfigMap or Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The ConfigMap or Secret may be missing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
}

/// State of the Kustomization and of the applied objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KustomizationStatus {
    /// Objects whose deletion the annotation `tenure.dev/allow-deletion` has allowed, while a part of them is left. After a restart, the deletion continues with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_deletions: Vec<AllowedDeletion>,
    /// Conditions: Ready, Reconciling, Healthy, Stalled, Contested, AppliedElsewhere and FluxReplaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Last reconciliations, grouped by build and outcome: at most five entries, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Snapshot>,
    /// Objects that were applied and that the Kustomization still tracks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// Origin revision of the artifact that was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_origin_revision: Option<String>,
    /// Revision that was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_revision: Option<String>,
    /// Revision of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,
    /// Last value of the annotation `reconcile.fluxcd.io/requestedAt` that the controller handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// An entry of the history: one build, and one outcome of its reconciliations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Snapshot {
    /// Digest of the build.
    pub digest: String,
    /// Time of the first reconciliation.
    #[schemars(schema_with = "time::describe")]
    pub first_reconciled: Time,
    /// Time of the last reconciliation.
    #[schemars(schema_with = "time::describe")]
    pub last_reconciled: Time,
    /// Duration of the last reconciliation, such as `1m0s`.
    pub last_reconciled_duration: String,
    /// Reason of the Ready condition after the last reconciliation.
    pub last_reconciled_status: String,
    /// The `revision` of the source, and its `originRevision` if the artifact names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Number of reconciliations that this entry counts.
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
    /// Returns the deletion policy: `MirrorPrune` if the field is absent, none if its text is
    /// unknown.
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
