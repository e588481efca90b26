//! The reason for a failed apply, with the messages and causes that Kubernetes gives.
//!
//! The server builds the Status, from [`ApplyError::http_status`] and [`ApplyError::reason`].

use std::fmt::Write as _;

use go_words::quote::quote;

use crate::managed::{ManagerId, Operation};
use crate::path::FieldPath;

/// The reason why an apply failed. The object is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own fields that the configuration changes, and it wasn't forced.
    #[error("{message}")]
    Conflicts {
        /// The message for the Status.
        message: String,
        /// A cause for each pair of field and manager, for `details.causes`.
        causes: Vec<Cause>,
    },
    /// The request itself is wrong: another version or kind than the endpoint's, or managedFields.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration doesn't fit the kind's schema: unknown or wrongly typed fields, duplicate
    /// items of a list map or set, items without keys. Kubernetes answers 500 without a reason.
    #[error("{0}")]
    InvalidConfig(String),
    /// The live object's managedFields can't be read, it doesn't fit the schema, or a conversion
    /// failed. Kubernetes answers 500 without a reason.
    #[error("{0}")]
    Internal(String),
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `conflict with "manager" using v1`.
    pub message: String,
    /// The field, `.spec.replicas`.
    pub field: String,
}

impl Cause {
    /// The type of every cause.
    pub const TYPE: &'static str = "FieldManagerConflict";
}

impl ApplyError {
    /// Returns the HTTP status code that Kubernetes answers.
    #[must_use]
    pub const fn http_status(&self) -> u16 {
        match self {
            Self::Conflicts { .. } => 409,
            Self::BadRequest(_) => 400,
            Self::InvalidConfig(_) | Self::Internal(_) => 500,
        }
    }

    /// Returns the reason in Kubernetes' Status; empty if Kubernetes gives no reason.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Conflicts { .. } => "Conflict",
            Self::BadRequest(_) => "BadRequest",
            Self::InvalidConfig(_) | Self::Internal(_) => "",
        }
    }
}

/// A field that `manager` owns and the configuration would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) manager: ManagerId,
    pub(crate) path: FieldPath,
}

/// Returns the error for at least one conflict, ordered by manager, then as a set lists its fields.
pub(crate) fn to_error(mut conflicts: Vec<Conflict>) -> ApplyError {
    conflicts.sort_by_cached_key(|conflict| conflict.manager.sort_key());
    let causes = conflicts
        .iter()
        .map(|conflict| Cause {
            message: format!("conflict with {}", describe_manager(&conflict.manager)),
            field: conflict.path.to_string(),
        })
        .collect();
    let message = if let [only] = conflicts.as_slice() {
        format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            describe_manager(&only.manager),
            only.path
        )
    } else {
        let mut message = format!("Apply failed with {} conflicts: ", conflicts.len());
        let mut previous = None;
        for conflict in &conflicts {
            if previous != Some(&conflict.manager) {
                if previous.is_some() {
                    message.push('\n');
                }
                let _ = write!(message, "conflicts with {}:", describe_manager(&conflict.manager));
                previous = Some(&conflict.manager);
            }
            let _ = write!(message, "\n- {}", conflict.path);
        }
        message
    };
    ApplyError::Conflicts { message, causes }
}

fn describe_manager(manager: &ManagerId) -> String {
    let mut text = quote(&manager.manager);
    if !manager.subresource.is_empty() {
        let _ = write!(text, " with subresource {}", quote(&manager.subresource));
    }
    if manager.operation == Operation::Update {
        let _ = write!(text, " using {}", manager.api_version);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_are_listed_as_kubernetes_sorts_them() {
        let conflict = |manager: &str, operation, subresource: &str| Conflict {
            manager: ManagerId::new(manager, operation, "v1", subresource),
            path: FieldPath::of_fields(&["a"]),
        };
        let error = to_error(vec![
            conflict("m", Operation::Update, ""),
            conflict("m", Operation::Apply, ""),
            conflict("m", Operation::Apply, "status"),
            conflict("b\"", Operation::Update, "status"),
        ]);
        let wanted = [
            "Apply failed with 4 conflicts: conflicts with \"b\\\"\" with subresource \"status\" using v1:",
            "- .a",
            "conflicts with \"m\" with subresource \"status\":",
            "- .a",
            "conflicts with \"m\":",
            "- .a",
            "conflicts with \"m\" using v1:",
            "- .a",
        ];
        assert_eq!(error.to_string(), wanted.join("\n"));
    }
}
