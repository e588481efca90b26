//! The reason for which an evaluation has no value, in Kubernetes' words.

use std::fmt;

/// The reason why an evaluation has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    /// True if the evaluation must end: not even `&&` or `||` absorbs the failure.
    pub(crate) cancelled: bool,
}

impl Failure {
    /// Creates a failure of an evaluation, such as a division by zero. `&&` and `||` may absorb it.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            cancelled: false,
        }
    }

    /// Creates the failure of an evaluation that exceeds its budget.
    pub(crate) fn too_costly() -> Self {
        Self {
            message: "operation cancelled: actual cost limit exceeded".to_owned(),
            cancelled: true,
        }
    }

    /// Returns whether the evaluation was stopped because it cost too much.
    pub fn is_too_costly(&self) -> bool {
        self.cancelled
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    pub(crate) fn no_such_key(key: impl fmt::Display) -> Self {
        Self::new(format!("no such key: {key}"))
    }

    pub(crate) fn out_of_bounds(index: impl fmt::Display) -> Self {
        Self::new(format!("index out of bounds: {index}"))
    }

    pub(crate) fn overflow(what: &str) -> Self {
        Self::new(format!("{what} overflow"))
    }
}
