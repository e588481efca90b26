//! Conditions in Kubernetes' shape, and the one rule about them: the transition time changes only with the status.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text;
use crate::time::{self, Time};

/// The longest message that is written into a condition, in bytes (Flux's `MaxConditionMessageLength`).
pub const MAX_MESSAGE_LENGTH: usize = 20_000;

/// Whether the object is as its spec wants it.
pub const READY: &str = "Ready";
/// Work is under way; removed when it ends.
pub const RECONCILING: &str = "Reconciling";
/// Nothing will happen until somebody changes the object.
pub const STALLED: &str = "Stalled";
/// Whether the health checks of a Kustomization passed.
pub const HEALTHY: &str = "Healthy";
/// Another writer keeps reverting what is applied.
pub const CONTESTED: &str = "Contested";
/// What of Flux's installation is left as it is, since Tenure does it in its place. Tenure's own.
pub const FLUX_REPLACED: &str = "FluxReplaced";
/// Which other cluster the inventory is of. Tenure's own.
pub const APPLIED_ELSEWHERE: &str = "AppliedElsewhere";
/// Whether all namespaces that say they are a Tenant's are recorded as its. Tenure's own: that a Tenant's status has it is what makes the rest of that a record.
pub const NAMESPACES_RECORDED: &str = "NamespacesRecorded";
/// Whether the ServiceAccounts that a Tenant names as owners are there. Tenure's own.
pub const OWNERS_FOUND: &str = "OwnersFound";
/// Whether nobody else is the account that a Tenant's surfaces act as, as far as can be seen. Tenure's own.
pub const ACCOUNT_EXCLUSIVE: &str = "AccountExclusive";
/// Nothing is known to keep the fields of a platform's chart from a surface that may write Packages. Tenure's own.
pub const OWNERSHIP_NOT_ENFORCED: &str = "OwnershipNotEnforced";
/// Whether the artifact of a source is in the store.
pub const ARTIFACT_IN_STORAGE: &str = "ArtifactInStorage";
/// The upstream of a source has changed since the stored artifact.
pub const ARTIFACT_OUTDATED: &str = "ArtifactOutdated";
/// Fetching from the upstream of a source failed.
pub const FETCH_FAILED: &str = "FetchFailed";
/// Storing the artifact of a source failed.
pub const STORAGE_OPERATION_FAILED: &str = "StorageOperationFailed";
/// Something that a source is to include is not there.
pub const INCLUDE_UNAVAILABLE: &str = "IncludeUnavailable";
/// The signature of what the upstream has was verified.
pub const SOURCE_VERIFIED: &str = "SourceVerified";

/// Whether the policies of an Enforcement are in force. Tenure's own.
pub const POLICIES_IN_FORCE: &str = "PoliciesInForce";
/// Whether the webhook configurations of an Enforcement are as they have to be. Tenure's own.
pub const WEBHOOKS_IN_FORCE: &str = "WebhooksInForce";
/// Whether no lane of several namespaces may request an administrator's token. Tenure's own.
pub const LANES_SEPARATED: &str = "LanesSeparated";

/// The three values of a condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl ConditionStatus {
    /// The word as it stands in the object.
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
    /// When the status last changed from one value to another.
    #[schemars(schema_with = "time::describe")]
    pub last_transition_time: Time,
    /// A message for people; may be empty.
    #[serde(default)]
    #[schemars(length(max = 32768), required)]
    pub message: String,
    /// The generation of the object that the condition was set from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// A word in CamelCase that programs may rely on.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    )]
    pub reason: String,
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// The type of the condition, in CamelCase.
    #[serde(rename = "type")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub type_: String,
}

/// The condition of that type, if there is one.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of that type has the status True.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == ConditionStatus::True)
}

/// Sets a condition: replaces the one of its type in place or appends it; the transition time of the old one is kept when the
/// status is the same. In the message, what can't be seen is shown as what it is; it is cut to [`MAX_MESSAGE_LENGTH`].
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
