//! Names that have been checked. A value of one of these types holds a valid name, so its users don't check it again. Empty
//! names, `..`, `/`, `:`, line breaks and everything else that Kubernetes' own rules forbid are refused.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a valid {what}: {rule}")]
pub struct NameError {
    /// The name as given.
    pub name: String,
    /// The kind of name that it should have been.
    pub what: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// The most bytes in the value of a label, which are fewer than in most names.
pub const LONGEST_LABEL_VALUE: usize = 63;

const LABEL_RULE: &str =
    "lower-case letters, digits and '-', starting and ending with a letter or digit, at most 63 characters";
const SUBDOMAIN_RULE: &str = "lower-case letters, digits, '-' and '.', each part starting and ending with a letter or digit, at most 253 characters";

/// Checks whether the text is an RFC 1123 label: the form of a namespace's name.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !bytes.is_empty()
        && bytes.len() <= 63
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
}

/// Checks whether the text is an RFC 1123 subdomain: the form of most objects' names.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|part| {
            let bytes = part.as_bytes();
            let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
                && bytes.first().is_some_and(alphanumeric)
                && bytes.last().is_some_and(alphanumeric)
        })
}

macro_rules! checked_name {
    ($(#[$meta:meta])* $type:ident, $what:literal, $check:ident, $rule:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks a text and wraps it.
            ///
            /// # Errors
            /// [`NameError`] when the text breaks the rule for such names.
            pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
                let name = name.into();
                if $check(&name) { Ok(Self(name)) } else { Err(NameError { name, what: $what, rule: $rule }) }
            }

            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;

            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

checked_name!(
    /// The name of a namespace.
    NamespaceName, "namespace name", is_dns_label, LABEL_RULE
);
checked_name!(
    /// The name of a ServiceAccount.
    ServiceAccountName, "ServiceAccount name", is_dns_subdomain, SUBDOMAIN_RULE
);
checked_name!(
    /// The name of a Tenant. It becomes a label value and part of namespaces' names, so it is a label.
    TenantName, "tenant name", is_dns_label, LABEL_RULE
);
checked_name!(
    /// The name of any other object.
    ObjectName, "object name", is_dns_subdomain, SUBDOMAIN_RULE
);
