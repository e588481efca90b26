//! Why something is not allowed, in words for the person whom it concerns.

use serde::{Deserialize, Serialize};
use tenure_api::reason;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Denial {
    /// What kind of refusal it is.
    pub reason: DenialReason,
    /// What is refused, why, and what would have to be so for it to be allowed.
    pub message: String,
}

/// What kind of refusal it is. All that occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DenialReason {
    /// It may not be done there, or not to that.
    AccessDenied,
    /// Nobody is known who may act there.
    IdentityMissing,
    /// A surface does not live where one may live.
    WrongNamespace,
    /// What it is about is not named well enough to decide.
    ReconciliationFailed,
    /// A field can't be what it is.
    InvalidSpec,
}

impl DenialReason {
    /// The word as it stands in conditions and events.
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
    /// A refusal with Flux's reason `AccessDenied`.
    #[must_use]
    pub fn access(message: impl Into<String>) -> Self {
        Self::because(DenialReason::AccessDenied, message)
    }

    /// A refusal with another reason.
    #[must_use]
    pub fn because(reason: DenialReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}
