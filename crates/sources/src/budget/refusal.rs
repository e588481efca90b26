//! Why there is no room, in words that name the setting. Refuses to say who has it.

use crate::limits::describe_bytes;

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OverBudget {
    /// There never will be: it is more than one lane, or all of them, may hold.
    #[error("{what} take {} or more, and {}", describe_bytes(*.needed), describe_part(.setting, *.allowed, *.is_half))]
    TooLarge {
        /// What the bytes are.
        what: &'static str,
        /// Bytes asked for.
        needed: u64,
        /// Bytes allowed.
        allowed: u64,
        /// The setting that allows no more.
        setting: &'static str,
        /// Whether `allowed` is half of that, as several share it.
        is_half: bool,
    },
    /// Not now: others hold it.
    #[error("no room for {} of {what} beside what is held already ({})", describe_bytes(*.needed), describe_allowance(.setting, *.allowed, *.is_half))]
    Full {
        /// What the bytes are.
        what: &'static str,
        /// Bytes asked for.
        needed: u64,
        /// Bytes allowed.
        allowed: u64,
        /// The setting that allows no more.
        setting: &'static str,
        /// Whether `allowed` is half of that, as several share it.
        is_half: bool,
        /// Whether it is the share alone that has too little: there would be room in the whole.
        is_share: bool,
    },
}

fn describe_part(setting: &str, allowed: u64, is_half: bool) -> String {
    let allowed = describe_bytes(allowed);
    if is_half {
        format!("{allowed} is half of what {setting} allows, which namespaces of no tenant share")
    } else {
        format!("{allowed} is what {setting} allows")
    }
}

fn describe_allowance(setting: &str, allowed: u64, is_half: bool) -> String {
    if is_half {
        describe_part(setting, allowed, is_half)
    } else {
        format!("{setting} allows {}", describe_bytes(allowed))
    }
}

impl OverBudget {
    /// Whether waiting may help.
    pub fn transient(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}
