//! The subject of a search.

use std::str::FromStr;

use crate::node::{Identity, Node};

/// The user, group, ServiceAccount or tenant whose authority is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An identity, with groups beyond those that the API server adds.
    Identity(Identity, Vec<String>),
    /// A tenant: its owners, and the ServiceAccounts of its namespaces.
    Tenant(String),
}

impl Subject {
    /// Adds groups to a user. Other subjects have none of their own.
    #[must_use]
    pub fn with_groups(self, more: &[String]) -> Self {
        match self {
            Self::Identity(identity, mut groups) => {
                groups.extend(more.iter().cloned());
                Self::Identity(identity, groups)
            }
            Self::Tenant(name) => Self::Tenant(name),
        }
    }

    pub(crate) fn start(&self) -> (Node, Vec<String>) {
        match self {
            Self::Identity(identity, groups) => (Node::Identity(identity.clone()), groups.clone()),
            Self::Tenant(name) => (Node::Tenant(name.clone()), Vec::new()),
        }
    }
}

impl FromStr for Subject {
    type Err = String;

    /// Reads `tenant/NAME`, `user/NAME`, `group/NAME`, `serviceaccount/NAMESPACE/NAME` or `serviceaccount/NAMESPACE:NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a subject. Write user/NAME, group/NAME, serviceaccount/NAMESPACE/NAME or tenant/NAME."
            )
        };
        if let identity @ Identity::Account { .. } = Identity::from_user_name(text) {
            return Ok(Self::Identity(identity, Vec::new()));
        }
        let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
        if name.is_empty() {
            return Err(wrong());
        }
        let identity = match kind.to_ascii_lowercase().as_str() {
            "tenant" | "tenants" | "tnt" => return Ok(Self::Tenant(name.to_owned())),
            "user" | "users" => Identity::from_user_name(name),
            "group" | "groups" => Identity::Group(name.to_owned()),
            "serviceaccount" | "serviceaccounts" | "sa" => {
                let (namespace, name) = name.split_once(['/', ':']).ok_or_else(wrong)?;
                Identity::Account {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                }
            }
            _ => return Err(wrong()),
        };
        Ok(Self::Identity(identity, Vec::new()))
    }
}
