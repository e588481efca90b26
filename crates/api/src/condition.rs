//! Conditions in Kubernetes' shape, and the one rule about them: the transition time changes only with the status.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text;
use crate::time::{self, Time};

/// The longest message that is written into a condition, in bytes (Flux's `MaxConditionMessageLength`).
pub const MAX_MESSAGE_LENGTH: usize = 20_000;

/// Whether the object matches its spec.
pub const READY: &str = "Ready";
/// Work is under way. Removed when it ends.
pub const RECONCILING: &str = "Reconciling";
/// The controller does nothing until a user changes the object.
pub const STALLED: &str = "Stalled";
/// Whether the health checks of a Kustomization passed.
pub const HEALTHY: &str = "Healthy";
/// Another writer keeps reverting what is applied.
pub const CONTESTED: &str = "Contested";
/// The objects of Flux's installation that are left as they are, since Tenure replaces them.
/// Tenure's own.
pub const FLUX_REPLACED: &str = "FluxReplaced";
/// The other cluster of the inventory. Tenure's own.
pub const APPLIED_ELSEWHERE: &str = "AppliedElsewhere";
/// Whether all namespaces that claim to be a Tenant's are recorded. Tenure's own: with this condition, a Tenant's status counts as a record.
pub const NAMESPACES_RECORDED: &str = "NamespacesRecorded";
/// Whether the ServiceAccounts that a Tenant names as owners exist. Tenure's own.
pub const OWNERS_FOUND: &str = "OwnersFound";
/// Whether no other user is known to use a Tenant's GitOps account. Tenure's own.
pub const ACCOUNT_EXCLUSIVE: &str = "AccountExclusive";
/// No known component protects the fields of a platform's chart from a Surface that may write Packages. Tenure's
/// own.
pub const OWNERSHIP_NOT_ENFORCED: &str = "OwnershipNotEnforced";
/// Whether the artifact of a source is stored.
pub const ARTIFACT_IN_STORAGE: &str = "ArtifactInStorage";
/// The upstream of a source has changed since the stored artifact.
pub const ARTIFACT_OUTDATED: &str = "ArtifactOutdated";
/// Fetching from the upstream of a source failed.
pub const FETCH_FAILED: &str = "FetchFailed";
/// Making the artifact of a HelmChart failed, after its chart was found.
pub const BUILD_FAILED: &str = "BuildFailed";
/// Storing the artifact of a source failed.
pub const STORAGE_OPERATION_FAILED: &str = "StorageOperationFailed";
/// An included source is unavailable.
pub const INCLUDE_UNAVAILABLE: &str = "IncludeUnavailable";
/// The signature of the upstream's content was verified.
pub const SOURCE_VERIFIED: &str = "SourceVerified";

/// HelmReleases that a Package no longer plans are still in the cluster. Tenure's own.
pub const REMOVAL_PENDING: &str = "RemovalPending";

/// Whether a PackageValues is valid, and its Package and components exist.
pub const ACCEPTED: &str = "Accepted";
/// Whether the HelmReleases have the changes of a PackageValues.
pub const MERGED: &str = "Merged";
/// Whether the policies of an Enforcement are in force. Tenure's own.
pub const POLICIES_IN_FORCE: &str = "PoliciesInForce";
/// Whether the webhook configurations of an Enforcement have the required form. Tenure's own.
pub const WEBHOOKS_IN_FORCE: &str = "WebhooksInForce";
/// Whether no lane of several namespaces may request an administrator's token. Tenure's own.
pub const LANES_SEPARATED: &str = "LanesSeparated";

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The controller does not know whether the condition holds.
    Unknown,
}

impl ConditionStatus {
    /// Returns the status as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// One aspect of an object's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Condition {
    /// Time of the last change of `status`.
    #[schemars(schema_with = "time::describe")]
    pub last_transition_time: Time,
    /// Message for people, may be empty.
    #[serde(default)]
    #[schemars(length(max = 32768), required)]
    pub message: String,
    /// The `metadata.generation` that this condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Cause of the status as one word in CamelCase. Programs may rely on this word.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    )]
    pub reason: String,
    /// Whether the condition holds: `True`, `False` or `Unknown`.
    pub status: ConditionStatus,
    /// Type of the condition, in CamelCase.
    #[serde(rename = "type")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub type_: String,
}

/// Returns the condition of that type, if it exists.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Checks whether the condition of that type has the status True.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == ConditionStatus::True)
}

/// Sets a condition: replaces the one of its type in place or appends it. The transition time of the old one is kept if the
/// status is the same. The message gets its invisible characters escaped, and is cut to [`MAX_MESSAGE_LENGTH`].
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition) {
    if let Cow::Owned(visible) = text::visible(&new.message) {
        new.message = visible;
    }
    if new.message.len() > MAX_MESSAGE_LENGTH {
        let mut end = MAX_MESSAGE_LENGTH - 3;
        while !new.message.is_char_boundary(end) {
            end -= 1;
        }
        new.message.truncate(end);
        new.message.push_str("...");
    }
    match conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

/// Removes the condition of that type.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}
