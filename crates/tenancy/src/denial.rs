//! Denials, with a message for the affected person.

use serde::{Deserialize, Serialize};
use tenure_api::reason;

/// The denial of an action or a field, with a message for the affected person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Denial {
    /// The kind of denial.
    pub reason: DenialReason,
    /// The denied thing, the reason, and the condition under which it would be allowed.
    pub message: String,
}

/// The kind of a denial. It becomes the reason of a condition or an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DenialReason {
    /// The action is not allowed in this place or on this object.
    AccessDenied,
    /// No account is known that may act there.
    IdentityMissing,
    /// A Surface is in a namespace where none may live.
    WrongNamespace,
    /// The object is not named precisely enough for a decision.
    ReconciliationFailed,
    /// A field has an invalid value.
    InvalidSpec,
}

impl DenialReason {
    /// Returns the reason in conditions and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AccessDenied => reason::ACCESS_DENIED,
            Self::IdentityMissing => reason::IDENTITY_MISSING,
            Self::WrongNamespace => reason::WRONG_NAMESPACE,
            Self::ReconciliationFailed => reason::RECONCILIATION_FAILED,
            Self::InvalidSpec => reason::INVALID_SPEC,
        }
    }
}

impl Denial {
    /// Returns a denial with Flux's reason `AccessDenied`.
    #[must_use]
    pub fn access(message: impl Into<String>) -> Self {
        Self::because(DenialReason::AccessDenied, message)
    }

    /// Returns a denial with another reason.
    #[must_use]
    pub fn because(reason: DenialReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}
