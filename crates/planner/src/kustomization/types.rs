//! The Snapshot of a Kustomization: everything that its plan may depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_api::metadata::{ALLOW_DELETION, APPLY_MODE};
use tenure_api::{Condition, Kustomization, ObjectId, ObjectMeta};
use tenure_tenancy::{Placement, ReferenceGrant, Termination, TokenOrder};

use super::dependency_facts::DependencyFacts;
use super::expression_memory::ExpressionMemory;
use super::guard::{Allowed, Guards};
use super::kube_config::TokenAnswer;
use super::settings::ApplySettings;
use super::siblings::{ObjectTurnover, OtherOwner, Survey};
use crate::answer::{ClaimsAnswer, DeleteAnswer, KindAnswer, Live, WriteAnswer};
use crate::object::RenderedObject;
use crate::overlay::Overlay;
use crate::plan::{KindReference, Watched};
use crate::render_inputs::InputsDigest;
use tenure_remote_requests::artifact::ArtifactFacts;

/// The known facts when a plan is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The Kustomization as last read, status included.
    pub kustomization: Kustomization,
    /// The owner of the Kustomization's namespace: a tenant or the platform, for example.
    pub placement: Placement,
    /// The source that the Kustomization names. A source in another namespace is looked up only if `tenancy` allows the reference; otherwise this is `NotFound`.
    pub source: SourceFacts,
    /// References to other namespaces that an administrator allows besides those within a tenant.
    #[serde(default)]
    pub grants: Vec<ReferenceGrant>,
    /// The Kustomizations that this one depends on, by name. Those of other namespaces have the form `namespace/name`.
    #[serde(default)]
    pub dependencies: BTreeMap<String, DependencyFacts>,
    /// A cycle of dependencies: the names, with this Kustomization first and last.
    #[serde(default)]
    pub cycle: Option<Vec<String>>,
    /// Whether the ServiceAccount exists that the Kustomization acts as.
    #[serde(default)]
    pub service_account: ServiceAccountFacts,
    /// Deletions around the Kustomization. They are looked up only while the Kustomization is being deleted.
    #[serde(default)]
    pub endings: OngoingDeletions,
    /// The kinds that the cluster serves: answers to [`crate::plan::Request::ResolveKinds`]. `Unknown` answers are dropped between attempts.
    #[serde(default, with = "kinds_as_list")]
    pub kinds: BTreeMap<KindReference, KindAnswer>,
    /// Live objects, from watches with the identity and from [`crate::plan::Request::Read`]. Objects that are neither watched nor read in this attempt must not be in
    /// this map.
    #[serde(default)]
    pub live: BTreeMap<ObjectId, Live>,
    /// Objects of this cluster, if the Kustomization applies to another one: its kubeconfig, and the inputs of its rendering.
    #[serde(default)]
    pub here: BTreeMap<ObjectId, Live>,
    /// The objects that need an explicit permission before they are deleted.
    #[serde(default)]
    pub guards: Guards,
    /// An administrator's settings for every apply.
    #[serde(default)]
    pub settings: ApplySettings,
    /// Whether an encrypted file is refused if it was changed after encryption.
    #[serde(default)]
    pub strict_sops: bool,
    /// The shortest effective interval. It is at least one second, even if this value is shorter.
    #[serde(default)]
    pub least_interval: Duration,
    /// The objects of `live` whose labels name another Kustomization, if that one has them in its inventory. The value is a key of `rivals`.
    #[serde(default)]
    pub owners: BTreeMap<ObjectId, String>,
    /// The Kustomizations that `owners` names.
    #[serde(default)]
    pub rivals: BTreeMap<String, OtherOwner>,
    /// The answer to [`super::Step::Survey`], kept up to date in this attempt.
    #[serde(default)]
    pub survey: Option<Survey>,
    /// The current attempt, and the answers to its steps.
    pub attempt: Attempt,
    /// The state that the last plan left.
    #[serde(default)]
    pub memory: Memory,
}

/// One attempt: from a trigger until [`crate::Next::Done`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The start of the attempt.
    pub started: Timestamp,
    /// Generation of the Kustomization at the start.
    #[serde(default)]
    pub generation: Option<i64>,
    /// Value of the annotation `reconcile.fluxcd.io/requestedAt` at the start.
    #[serde(default)]
    pub requested_at: Option<String>,
    /// Value of the annotation `tenure.dev/allow-deletion` at the start.
    #[serde(default)]
    pub allowed: Option<String>,
    /// Value of the annotation `tenure.dev/apply` at the start.
    #[serde(default)]
    pub apply: Option<String>,
    /// The answer to a request for a token.
    #[serde(skip)]
    pub token: Option<(TokenOrder, TokenAnswer)>,
    /// The result of the rendering.
    #[serde(default)]
    pub rendered: Option<Rendered>,
    /// When the rendering was done: `spec.timeout` counts from this time. Renderings of one tenant wait for each other, and this wait doesn't count.
    #[serde(default)]
    pub rendered_at: Option<Timestamp>,
    /// Answers to dry-runs.
    #[serde(default)]
    pub dry_runs: BTreeMap<ObjectId, WriteAnswer>,
    /// The objects whose last dry-run was made before they were read.
    #[serde(default)]
    pub unseen: BTreeSet<ObjectId>,
    /// Answers to trials of a creation, by the object that is to be re-created.
    #[serde(default)]
    pub tried: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to dry-runs of deletions that a recreation needs.
    #[serde(default)]
    pub tried_deletes: BTreeMap<ObjectId, DeleteAnswer>,
    /// The owners of claims, by namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, ClaimsAnswer>,
    /// Answers to creations of namespaces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub created: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to applies.
    #[serde(default)]
    pub applied: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to take-overs.
    #[serde(default)]
    pub taken_over: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to deletions, including those for a recreation.
    #[serde(default)]
    pub deleted: BTreeMap<ObjectId, DeleteAnswer>,
}

impl Attempt {
    /// Starts a new attempt for a Kustomization.
    #[must_use]
    pub fn new(now: Timestamp, kustomization: &Kustomization) -> Self {
        Self {
            started: now,
            generation: kustomization.metadata.generation,
            requested_at: crate::read_requested_at(&kustomization.metadata),
            allowed: read_allowed_deletion(&kustomization.metadata),
            apply: read_apply_mode(&kustomization.metadata),
            token: None,
            rendered: None,
            rendered_at: None,
            dry_runs: BTreeMap::new(),
            unseen: BTreeSet::new(),
            tried: BTreeMap::new(),
            tried_deletes: BTreeMap::new(),
            claims: BTreeMap::new(),
            created: BTreeMap::new(),
            applied: BTreeMap::new(),
            taken_over: BTreeMap::new(),
            deleted: BTreeMap::new(),
        }
    }
}

/// Reads the value of the annotation `tenure.dev/allow-deletion`.
#[must_use]
pub fn read_allowed_deletion(metadata: &ObjectMeta) -> Option<String> {
    metadata.annotations.as_ref()?.get(ALLOW_DELETION).cloned()
}

/// Reads the value of the annotation `tenure.dev/apply`.
pub(super) fn read_apply_mode(metadata: &ObjectMeta) -> Option<String> {
    metadata.annotations.as_ref()?.get(APPLY_MODE).cloned()
}

/// The known facts about the source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SourceFacts {
    /// No source has this name, or the Kustomization may not read it.
    #[default]
    NotFound,
    /// The source belongs to a lane in another process, and nothing is known of it. The text is the reason.
    Unknown(String),
    /// The source exists.
    Found {
        /// The fetched artifact in the artifact store. This never comes from the source's status, because a status can be forged.
        #[serde(default)]
        artifact: Option<ArtifactFacts>,
        /// Conditions of the source's status.
        #[serde(default)]
        conditions: Vec<Condition>,
    },
}

/// The known facts about the ServiceAccount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceAccountFacts {
    /// Not looked up yet; the request for a token will tell.
    #[default]
    NotLooked,
    /// The ServiceAccount exists, and the API server gave a token.
    Usable,
    /// The API server answered that the ServiceAccount does not exist.
    NotFound,
    /// The API server gives no more tokens, because the namespace is being deleted. This is final.
    NamespaceEnds(String),
    /// The API server refused a token; a user may still allow it.
    Forbidden(String),
    /// Unknown: no answer, overload, or an answer that says nothing about the ServiceAccount.
    Unanswered(String),
}

/// The known deletions around a Kustomization that is being deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OngoingDeletions {
    /// The deletion of the Kustomization's own namespace, or of its Tenant.
    pub own: Option<Termination>,
    /// The namespaces in the inventory that are being deleted: Kubernetes deletes their objects without the Kustomization.
    pub namespaces: BTreeSet<String>,
    /// The Kustomizations that apply each other in a cycle with this one: see [`super::find_owner_cycle`].
    pub cycle: BTreeSet<ObjectId>,
}

/// The state of an object that gives inputs to a rendering. It is never printed, since short values could be guessed with the digest.
#[derive(Clone, PartialEq, Eq)]
pub struct InputState {
    /// SHA-256 of the data; nothing for an absent object.
    pub(super) digest: Option<[u8; 32]>,
    /// Whether a change of the object starts an attempt by its label.
    pub(super) is_labelled: bool,
}

impl std::fmt::Debug for InputState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("InputState(hidden)")
    }
}

/// The result of a rendering.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rendered {
    /// Digest of the rendered artifact.
    pub artifact_digest: String,
    /// The rendered folder.
    pub path: String,
    /// The overlay that was laid over the folder.
    #[serde(flatten)]
    pub overlay: Overlay,
    /// Digest of the inputs that were read in the cluster.
    #[serde(skip)]
    pub inputs: InputsDigest,
    /// Paths of encrypted files that were changed after encryption, or have no MAC that could show it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_files: Vec<String>,
    /// The objects in kustomize's order, or the reason for their absence.
    pub outcome: Result<Vec<RenderedObject>, RenderFailure>,
}

/// The reason for a failed rendering.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RenderFailure {
    /// The message, with file and line if they are known.
    pub message: String,
    /// Whether the artifact itself was missing. Then the source is the cause, and not the files.
    pub artifact_missing: bool,
}

/// The state that the shell hands from plan to plan. If it is lost, dry-runs are repeated, and an object that is being recreated loses its precedence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Objects that matched their desired state, with digests of both.
    pub settled: BTreeMap<ObjectId, MatchedDigests>,
    /// Fields that were put back lately, by object and path.
    pub reversals: BTreeMap<String, Vec<DriftCorrection>>,
    /// Objects that are left alone for a while, because others keep changing them.
    pub backed_off: BTreeMap<ObjectId, BackOff>,
    /// Objects that were deleted for a recreation and don't exist again yet. They are applied before all others, also in later attempts.
    pub recreating: BTreeSet<ObjectId>,
    /// Namespaces that were created lately, and when: their Tenant may not have recorded them yet, or not have bound its accounts there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub created_namespaces: BTreeMap<String, Timestamp>,
    /// The changes of the attempt that began at [`Memory::attempt`], one line an object.
    pub changes: BTreeMap<ObjectId, String>,
    /// The revision that these changes applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
    /// Changes that have no event yet, by revision, the oldest first.
    #[serde(rename = "untold", skip_serializing_if = "Vec::is_empty")]
    pub unreported: Vec<UnreportedChanges>,
    /// Fields that were found changed in that attempt. They are recorded before a take-over, since afterwards the writer can't be found out.
    pub drift: BTreeMap<ObjectId, Vec<DriftedField>>,
    /// The entries of managedFields that were taken over in that attempt: afterwards the object doesn't name their previous managers.
    pub taken: BTreeMap<ObjectId, Vec<serde_json::Value>>,
    /// Objects with a second dry-run after a take-over, which shows the fields that the apply will remove.
    pub looked_again: BTreeSet<ObjectId>,
    /// Objects that a read didn't find but a dry-run reported as existing, and that were therefore read again.
    pub read_after_all: BTreeSet<ObjectId>,
    /// Objects that the Kustomization was about to give up because of their owner labels, and that were read again before.
    pub confirmed: BTreeSet<ObjectId>,
    /// The start of the attempt that [`Memory::changes`] is about.
    pub attempt: Option<Timestamp>,
    /// The start of the wait for these objects; a restart of the attempt does not restart the clock.
    pub waiting: Option<HealthWait>,
    /// The deletion that was allowed last, so that an attempt that failed half-way can continue.
    pub allowed: Option<Allowed>,
    /// The start of a prune's wait for other Kustomizations of the same source.
    pub prune_waiting: Option<HealthWait>,
    /// The time since which a prune is put off for dependent Kustomizations: an attempt has ended since then, so they can begin.
    #[serde(default)]
    pub prune_put_off: Option<HealthWait>,
    /// The objects that the Kustomization gains and drops with the current revision. Other Kustomizations use this, this one does not.
    #[serde(skip)]
    pub turnover: Option<Arc<ObjectTurnover>>,
    /// The objects from which the last requested rendering has its inputs.
    #[serde(skip)]
    pub render_inputs: BTreeMap<ObjectId, InputState>,
    /// The number of attempts in a row that ended because an answer was missing.
    pub transient_failures: u32,
    /// The time of the next attempt after a failed one, and the input of the failed one.
    pub retry: Option<Retry>,
    /// The start of the current attempt: an attempt that was found to be due goes on to its end.
    pub trying: Option<Timestamp>,
    /// Results and costs of the Kustomization's expressions.
    pub expressions: ExpressionMemory,
    /// The other cluster that the rest of this memory is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

/// A failed attempt, and the time of the next one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// The start of the attempt.
    pub attempt: Timestamp,
    /// The input of the attempt: once it changes, the next attempt is due at once.
    pub asked: AttemptInput,
    /// Digest of the attempt's surroundings, except objects.
    pub surroundings: String,
    /// The state of every object that the attempt looked at.
    pub live: BTreeMap<ObjectId, String>,
    /// The objects that are watched meanwhile.
    pub watch: Vec<Watched>,
    /// The time of the next attempt if something in `surroundings` or `live` has changed.
    pub soon: Timestamp,
    /// The time of the next attempt otherwise.
    pub until: Timestamp,
    /// The number of failures in a row with the same input.
    pub times: u32,
}

/// The input of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttemptInput {
    /// Uid of the Kustomization: a new one with the same name inherits nothing.
    pub uid: Option<String>,
    /// Generation of the Kustomization.
    pub generation: Option<i64>,
    /// Value of the annotation `reconcile.fluxcd.io/requestedAt`.
    pub requested_at: Option<String>,
    /// Value of the annotation `tenure.dev/allow-deletion`.
    pub allowed: Option<String>,
    /// Value of the annotation `tenure.dev/apply`.
    pub apply: Option<String>,
    /// Whether the Kustomization is being deleted.
    pub deleting: bool,
    /// The artifact of the source.
    pub artifact: Option<ArtifactFacts>,
}

/// A field that another writer changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftedField {
    /// Path, for people.
    pub path: String,
    /// The field manager that changed the field, if it is known.
    pub manager: Option<String>,
}

/// Changes without an event yet. One event reports them together with their outcome, if the outcome follows at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreportedChanges {
    /// The applied revision.
    pub revision: Option<String>,
    /// The changes, one line an object.
    pub lines: Vec<String>,
}

/// A wait for health: since when, and for which revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthWait {
    /// Revision.
    pub revision: String,
    /// Generation of the Kustomization.
    pub generation: Option<i64>,
    /// The start of the wait.
    pub since: Timestamp,
    /// The start of the attempt that waits now and has applied everything.
    pub attempt: Timestamp,
    /// The time until which the wait is not reported, if the status already says that the revision is being applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_until: Option<Timestamp>,
}

/// A pair of digests: this live object was found to match this desired one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchedDigests {
    /// Digest of the desired object.
    pub desired: String,
    /// Digest of the live object without status and bookkeeping.
    pub live: String,
}

/// One restoration of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftCorrection {
    /// The time.
    pub at: Timestamp,
    /// The field manager that had changed the field.
    pub manager: String,
}

/// An object that is left alone for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackOff {
    /// The end of the pause.
    pub until: Timestamp,
    /// The number of times in a row.
    pub times: u32,
    /// The other managers.
    pub managers: Vec<String>,
    /// The fields.
    pub paths: Vec<String>,
}

/// Maps with a structured key as lists, for formats whose keys are strings.
mod kinds_as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::answer::KindAnswer;
    use crate::plan::KindReference;

    pub(super) fn serialize<S: Serializer>(
        kinds: &BTreeMap<KindReference, KindAnswer>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        kinds.iter().collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<KindReference, KindAnswer>, D::Error> {
        Ok(Vec::<(KindReference, KindAnswer)>::deserialize(deserializer)?
            .into_iter()
            .collect())
    }
}
