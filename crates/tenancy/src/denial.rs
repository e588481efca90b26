//! Why something is not allowed, in words for the person whom it concerns.

use serde::{Deserialize, Serialize};

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Denial {
    /// A word in CamelCase for conditions and events.
    pub reason: String,
    /// What is refused, why, and what would have to be so for it to be allowed.
    pub message: String,
}

impl Denial {
    /// A refusal with Flux's reason `AccessDenied`.
    #[must_use]
    pub fn access(message: impl Into<String>) -> Self {
        Self {
            reason: tenure_api::reason::ACCESS_DENIED.to_owned(),
            message: message.into(),
        }
    }

    /// A refusal with another reason.
    #[must_use]
    pub fn because(reason: &str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}
