//! The Snapshot of a Kustomization: everything that its plan may depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_api::metadata::{ALLOW_DELETION, APPLY_MODE};
use tenure_api::{Condition, Kustomization, ObjectId, ObjectMeta};
use tenure_tenancy::{Ending, Placement, ReferenceGrant, TokenOrder};

use super::dependency_facts::DependencyFacts;
use super::expression_memory::ExpressionMemory;
use super::guard::{Allowed, Guards};
use super::kube_config::TokenAnswer;
use super::settings::ApplySettings;
use super::siblings::{Rival, Survey, Turnover};
use crate::answer::{ClaimsAnswer, DeleteAnswer, KindAnswer, Live, WriteAnswer};
use crate::artifact::ArtifactFacts;
use crate::inputs::InputsDigest;
use crate::object::RenderedObject;
use crate::overlay::Overlay;
use crate::plan::{KindReference, Watched};

/// What is known when a plan is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The Kustomization as last read, status included.
    pub kustomization: Kustomization,
    /// Whose its namespace is.
    pub placement: Placement,
    /// The source that it names. Looked up in another namespace only where its reference may lead; `NotFound` also otherwise.
    pub source: SourceFacts,
    /// References to other namespaces that an administrator allows besides those within a tenant.
    #[serde(default)]
    pub grants: Vec<ReferenceGrant>,
    /// The Kustomizations that it depends on, by name, those of other namespaces as `namespace/name`.
    #[serde(default)]
    pub dependencies: BTreeMap<String, DependencyFacts>,
    /// A way from dependency to dependency that ends where it began: the names, this Kustomization first and last.
    #[serde(default)]
    pub cycle: Option<Vec<String>>,
    /// Whether the ServiceAccount that it acts as exists.
    #[serde(default)]
    pub service_account: ServiceAccountFacts,
    /// What is ending around it; looked at only when it is being deleted.
    #[serde(default)]
    pub endings: Endings,
    /// Which kinds the cluster serves: answers to [`crate::plan::Request::ResolveKinds`]. Those `Unknown` are to be forgotten between attempts.
    #[serde(default, with = "kinds_as_list")]
    pub kinds: BTreeMap<KindReference, KindAnswer>,
    /// Objects as they are, from watches with the identity and from [`crate::plan::Request::Read`]. What is neither watched nor read in
    /// this attempt must not be here.
    #[serde(default)]
    pub live: BTreeMap<ObjectId, Live>,
    /// Objects of this cluster, when it applies to another one: its kubeconfig, and what it is rendered with.
    #[serde(default)]
    pub here: BTreeMap<ObjectId, Live>,
    /// What is not deleted unasked.
    #[serde(default)]
    pub guards: Guards,
    /// What an administrator decides about every apply.
    #[serde(default)]
    pub settings: ApplySettings,
    /// Whether an encrypted file that was changed afterwards is refused.
    #[serde(default)]
    pub strict_sops: bool,
    /// The shortest interval that counts here; a second at least, whatever this is.
    #[serde(default)]
    pub least_interval: Duration,
    /// The objects of `live` whose labels name another Kustomization that has them in its inventory: by whom, a key of `rivals`.
    #[serde(default)]
    pub owners: BTreeMap<ObjectId, String>,
    /// Those Kustomizations.
    #[serde(default)]
    pub rivals: BTreeMap<String, Rival>,
    /// The answer to [`super::Step::Survey`], kept up to date in this attempt.
    #[serde(default)]
    pub survey: Option<Survey>,
    /// This attempt, and the answers to its steps.
    pub attempt: Attempt,
    /// What the last plan left.
    #[serde(default)]
    pub memory: Memory,
}

/// One attempt: from a trigger until [`crate::Next::Done`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// When it began.
    pub started: Timestamp,
    /// Generation of the Kustomization when it began.
    #[serde(default)]
    pub generation: Option<i64>,
    /// Value of the annotation `reconcile.fluxcd.io/requestedAt` when it began.
    #[serde(default)]
    pub requested_at: Option<String>,
    /// Value of the annotation `tenure.dev/allow-deletion` when it began.
    #[serde(default)]
    pub allowed: Option<String>,
    /// Value of the annotation `tenure.dev/apply` when it began.
    #[serde(default)]
    pub apply: Option<String>,
    /// The answer to an order of a token.
    #[serde(skip)]
    pub token: Option<(TokenOrder, TokenAnswer)>,
    /// What was rendered.
    #[serde(default)]
    pub rendered: Option<Rendered>,
    /// When that was there: `spec.timeout` counts from then. Renderings of one tenant wait for each other, which is nobody's fault.
    #[serde(default)]
    pub rendered_at: Option<Timestamp>,
    /// Answers to dry-runs.
    #[serde(default)]
    pub dry_runs: BTreeMap<ObjectId, WriteAnswer>,
    /// The objects whose last dry-run was made before they were looked at.
    #[serde(default)]
    pub unseen: BTreeSet<ObjectId>,
    /// Answers to trials of a creation, by the object that is to be made anew.
    #[serde(default)]
    pub tried: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to dry-runs of deletions that a recreation needs.
    #[serde(default)]
    pub tried_deletes: BTreeMap<ObjectId, DeleteAnswer>,
    /// The owners of claims, by namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, ClaimsAnswer>,
    /// Answers to applies.
    #[serde(default)]
    pub applied: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to take-overs.
    #[serde(default)]
    pub taken_over: BTreeMap<ObjectId, WriteAnswer>,
    /// Answers to deletes, those for a recreation included.
    #[serde(default)]
    pub deleted: BTreeMap<ObjectId, DeleteAnswer>,
}

impl Attempt {
    /// A new attempt for a Kustomization.
    #[must_use]
    pub fn begin(now: Timestamp, kustomization: &Kustomization) -> Self {
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
            applied: BTreeMap::new(),
            taken_over: BTreeMap::new(),
            deleted: BTreeMap::new(),
        }
    }
}

/// The value of the annotation `tenure.dev/allow-deletion`.
#[must_use]
pub fn read_allowed_deletion(metadata: &ObjectMeta) -> Option<String> {
    metadata.annotations.as_ref()?.get(ALLOW_DELETION).cloned()
}

/// The value of the annotation `tenure.dev/apply`.
pub(super) fn read_apply_mode(metadata: &ObjectMeta) -> Option<String> {
    metadata.annotations.as_ref()?.get(APPLY_MODE).cloned()
}

/// What is known of the source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SourceFacts {
    /// There is none of that name, or it may not be read.
    #[default]
    NotFound,
    /// It is another lane's, which is in another process, and nothing is known of it: why.
    Unknown(String),
    /// It exists.
    Found {
        /// What it has fetched and what is in the artifact store: never taken from its status, which can be forged.
        #[serde(default)]
        artifact: Option<ArtifactFacts>,
        /// Conditions of its status.
        #[serde(default)]
        conditions: Vec<Condition>,
    },
}

/// What is known of the ServiceAccount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceAccountFacts {
    /// Not looked up; found out when a token is asked for.
    #[default]
    NotLooked,
    /// It exists and a token was given.
    Usable,
    /// The API server said that it does not exist.
    NotFound,
    /// No token is given any more, as its namespace is being deleted: that is not taken back.
    NamespaceEnds(String),
    /// A token was refused; somebody may allow it again.
    Forbidden(String),
    /// It isn't known: no answer, overload, or an answer that says nothing about it.
    Unanswered(String),
}

/// What is known to be ending around a Kustomization that is being deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endings {
    /// Its own namespace, or the Tenant that it belongs to.
    pub own: Option<Ending>,
    /// The namespaces named in its inventory that are being deleted: what is in them goes without it.
    pub namespaces: BTreeSet<String>,
}

/// What was rendered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rendered {
    /// Digest of the artifact that it was rendered from.
    pub artifact_digest: String,
    /// Folder that was rendered.
    pub path: String,
    /// What was laid over it.
    #[serde(flatten)]
    pub overlay: Overlay,
    /// What was read in the cluster for it.
    #[serde(skip)]
    pub inputs: InputsDigest,
    /// Encrypted files that were changed after that, or have no MAC that would say so: their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_files: Vec<String>,
    /// The objects in kustomize's order, or why there are none.
    pub outcome: Result<Vec<RenderedObject>, RenderFailure>,
}

/// Why nothing was rendered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RenderFailure {
    /// The message, with file and line where there is one.
    pub message: String,
    /// Whether the artifact itself was not there (then the source is to blame, not the files).
    pub artifact_missing: bool,
}

/// The state that the shell hands from plan to plan. If it is lost, dry-runs are repeated, and an object that is being recreated has no precedence any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Objects that were found to be as desired, and what they looked like.
    pub settled: BTreeMap<ObjectId, Settled>,
    /// Fields that were put back lately: by object and path.
    pub reversals: BTreeMap<String, Vec<Reversal>>,
    /// Until when an object that others keep changing is left alone.
    pub backed_off: BTreeMap<ObjectId, BackOff>,
    /// Objects that were deleted for a recreation and don't exist again yet. They are applied before all others, in later attempts too.
    pub recreating: BTreeSet<ObjectId>,
    /// What was changed in the attempt that began at [`Memory::attempt`], one line an object.
    pub changes: BTreeMap<ObjectId, String>,
    /// The revision that was applied by these changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
    /// Changes that have no event yet, by revision, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<Untold>,
    /// Fields that were found changed in that attempt, before a take-over made it impossible to tell by whom.
    pub drift: BTreeMap<ObjectId, Vec<DriftedField>>,
    /// The entries of managedFields that were taken over in that attempt: afterwards the object no longer tells whose they were.
    pub taken: BTreeMap<ObjectId, Vec<serde_json::Value>>,
    /// Objects that were dry-run once more after a take-over, to see what the apply will take away.
    pub looked_again: BTreeSet<ObjectId>,
    /// Objects that were looked at and not there, of which the dry-run said that they are, and that were read for it.
    pub read_after_all: BTreeSet<ObjectId>,
    /// What was to be given up for its owner labels, and was read once more before that.
    pub confirmed: BTreeSet<ObjectId>,
    /// When the attempt began that [`Memory::changes`] is about.
    pub attempt: Option<Timestamp>,
    /// Since when these objects are waited for; a restart of the attempt does not restart the clock.
    pub waiting: Option<Waiting>,
    /// What was last allowed to be deleted, so that an attempt that fails half-way goes on.
    pub allowed: Option<Allowed>,
    /// Since when a prune waits for other Kustomizations of the same source.
    pub prune_waiting: Option<Waiting>,
    /// Since when a prune is put off for those that depend on this one: an attempt has ended since, and they can begin.
    #[serde(default)]
    pub prune_put_off: Option<Waiting>,
    /// What it gains and drops with the revision at hand: for others to know, not for itself.
    #[serde(skip)]
    pub turnover: Option<Arc<Turnover>>,
    /// How many attempts in a row ended for want of an answer.
    pub transient_failures: u32,
    /// The last attempt failed: when it is tried again, and what for.
    pub retry: Option<Retry>,
    /// When the attempt began that is under way: one that was found to be due goes on to its end.
    pub trying: Option<Timestamp>,
    /// What its expressions said, and what they spent.
    pub expressions: ExpressionMemory,
    /// The other cluster that the rest of this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

/// A failed attempt, and when the next one is due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// When it began.
    pub attempt: Timestamp,
    /// What it was made for: once that changes, the next is due at once.
    pub asked: Asked,
    /// Digest of what it met besides objects.
    pub surroundings: String,
    /// The state of every object that it looked at.
    pub live: BTreeMap<ObjectId, String>,
    /// What is watched meanwhile.
    pub watch: Vec<Watched>,
    /// When the next is due if something that it met has changed.
    pub soon: Timestamp,
    /// When the next is due otherwise.
    pub until: Timestamp,
    /// How many in a row have failed that were made for the same.
    pub times: u32,
}

/// What an attempt is made for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Asked {
    /// Uid of the Kustomization: a namesake owes nothing to the one before.
    pub uid: Option<String>,
    /// Generation of the Kustomization.
    pub generation: Option<i64>,
    /// Value of the annotation `reconcile.fluxcd.io/requestedAt`.
    pub requested_at: Option<String>,
    /// Value of the annotation `tenure.dev/allow-deletion`.
    pub allowed: Option<String>,
    /// Value of the annotation `tenure.dev/apply`.
    pub apply: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What the source holds.
    pub artifact: Option<ArtifactFacts>,
}

/// A field that somebody else changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftedField {
    /// Path for people.
    pub path: String,
    /// Field manager that changed it, if that can be told.
    pub manager: Option<String>,
}

/// Changes that no event has told of yet, since it is told together with what comes of them if that comes at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Untold {
    /// The revision that was applied.
    pub revision: Option<String>,
    /// One line an object.
    pub lines: Vec<String>,
}

/// Since when health is waited for, and of what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// Revision.
    pub revision: String,
    /// Generation of the Kustomization.
    pub generation: Option<i64>,
    /// Since when.
    pub since: Timestamp,
    /// When the attempt began that waits now: everything was applied in it.
    pub attempt: Timestamp,
    /// Until when it is waited without a word, if the status says already that the revision is being applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_until: Option<Timestamp>,
}

/// A pair of digests: this live object was found to be as this desired one wants it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Digest of the desired object.
    pub desired: String,
    /// Digest of the live object without status and bookkeeping.
    pub live: String,
}

/// One time that a field was put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reversal {
    /// When.
    pub at: Timestamp,
    /// Who had changed it: field manager.
    pub manager: String,
}

/// An object that is left alone for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackOff {
    /// Until when.
    pub until: Timestamp,
    /// How many times in a row.
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
