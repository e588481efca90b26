//! Who a request is made as. Owns nothing but the two possibilities; which one is right is decided in tenancy.

use std::fmt;

use tenure_api::names::{NameError, NamespaceName, ServiceAccountName};

/// Who a request is made as. There is no third possibility, and no default.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// A ServiceAccount, by a token that TokenRequest gave for it.
    ServiceAccount {
        /// Its namespace.
        namespace: NamespaceName,
        /// Its name.
        name: ServiceAccountName,
    },
    /// The controller itself: for its own kinds, their status, events and tokens. Nothing that comes out of a repository.
    Controller,
}

impl Identity {
    /// The ServiceAccount of that name in that namespace.
    ///
    /// # Errors
    /// [`NameError`] when one of them is no name: empty, or with `:`, `/`, `..` or a line break in it.
    pub fn service_account(namespace: &str, name: &str) -> Result<Self, NameError> {
        Ok(Self::ServiceAccount {
            namespace: NamespaceName::new(namespace)?,
            name: ServiceAccountName::new(name)?,
        })
    }
}

impl fmt::Display for Identity {
    /// As the API server names it, `system:serviceaccount:<namespace>:<name>`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceAccount { namespace, name } => write!(formatter, "system:serviceaccount:{namespace}:{name}"),
            Self::Controller => formatter.write_str("the controller itself"),
        }
    }
}
