//! The reason why a budget refuses bytes, in words that name the setting and never the holders.

use crate::limits::describe_bytes;

/// Why a [`ByteBudget`](super::ByteBudget) refuses a request for bytes: they can never fit, or don't fit now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OverBudget {
    /// The bytes can never fit: they exceed the limit of one lane, or of all lanes.
    #[error("{what} take {} or more, and at most {}", describe_bytes(*.needed), describe_part(.setting, *.allowed, *.is_half))]
    TooLarge {
        /// What the bytes are.
        what: &'static str,
        /// The requested bytes.
        needed: u64,
        /// The allowed bytes.
        allowed: u64,
        /// The setting with the exceeded limit.
        setting: &'static str,
        /// Whether `allowed` is half of the setting's value, because several lanes share it.
        is_half: bool,
    },
    /// The bytes don't fit now, because other requests hold bytes.
    #[error("{what}: another {} don't fit now ({})", describe_bytes(*.needed), describe_allowance(.setting, *.allowed, *.is_half))]
    Full {
        /// What the bytes are.
        what: &'static str,
        /// The requested bytes.
        needed: u64,
        /// The allowed bytes.
        allowed: u64,
        /// The setting with the exceeded limit.
        setting: &'static str,
        /// Whether `allowed` is half of the setting's value, because several lanes share it.
        is_half: bool,
        /// Whether only the share is too small: the bytes would fit into the whole budget.
        is_share: bool,
    },
}

/// Describes a limit that a single request exceeds.
fn describe_part(setting: &str, allowed: u64, is_half: bool) -> String {
    let allowed = describe_bytes(allowed);
    if is_half {
        format!("{allowed} fit: half of {setting}, since namespaces without a tenant share it")
    } else {
        format!("{allowed} fit: {setting}")
    }
}

/// Describes a limit that a request exceeds together with the held bytes.
fn describe_allowance(setting: &str, allowed: u64, is_half: bool) -> String {
    if is_half {
        describe_part(setting, allowed, is_half)
    } else {
        format!("{setting} allows {}", describe_bytes(allowed))
    }
}

impl OverBudget {
    /// Checks whether the same bytes may fit later, after others are released.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}
