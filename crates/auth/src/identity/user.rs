//! The sender of a request: [`UserInfo`], the groups that Kubernetes itself assigns, and the form of a
//! ServiceAccount's user name.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The group whose members may do everything, without a check by RBAC.
pub const MASTERS: &str = "system:masters";
/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of unauthenticated users.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user name of unauthenticated users.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of every ServiceAccount of every namespace.
pub const ALL_SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// The group of all nodes.
pub const NODES: &str = "system:nodes";
/// The extra key with the id of the used credential (KEP-4193).
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The prefix of every ServiceAccount's user name.
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
const NODE_PREFIX: &str = "system:node:";

/// The sender of a request, as authorization, admission and audit see it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct UserInfo {
    /// The user's name: a certificate's common name, or `system:serviceaccount:NAMESPACE:NAME`.
    pub name: String,
    /// The identity behind the name, as names can be reused; empty if unknown.
    pub uid: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Further facts about the user; keys are lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Returns the user without credentials.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Returns the server itself, for its own controllers.
    #[must_use]
    pub fn loopback() -> Self {
        Self {
            name: "system:apiserver".to_owned(),
            groups: vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Returns the ServiceAccount `namespace`/`name` with its fixed groups.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let mut groups = service_account_groups(namespace);
        groups.push(AUTHENTICATED.to_owned());
        Self {
            name: service_account_user_name(namespace, name),
            uid: uid.to_owned(),
            groups,
            extra: BTreeMap::new(),
        }
    }

    /// Checks whether the user is in `group`.
    #[must_use]
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|held| held == group)
    }

    /// Adds `group` unless the user is in it.
    pub fn ensure_group(&mut self, group: &str) {
        if !self.in_group(group) {
            self.groups.push(group.to_owned());
        }
    }

    /// Returns the `userInfo` of the authentication and admission APIs.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut out = Map::new();
        if !self.name.is_empty() {
            out.insert("username".to_owned(), json!(self.name));
        }
        if !self.uid.is_empty() {
            out.insert("uid".to_owned(), json!(self.uid));
        }
        if !self.groups.is_empty() {
            out.insert("groups".to_owned(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            out.insert("extra".to_owned(), json!(self.extra));
        }
        Value::Object(out)
    }
}

/// Returns the user name of the ServiceAccount `namespace`/`name`.
#[must_use]
pub fn service_account_user_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// Returns the groups of every ServiceAccount in `namespace`.
#[must_use]
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![
        ALL_SERVICE_ACCOUNTS.to_owned(),
        format!("{ALL_SERVICE_ACCOUNTS}:{namespace}"),
    ]
}

/// Returns namespace and name of the ServiceAccount in `user_name`, if it is a ServiceAccount's.
///
/// Both parts must be valid names, as kube-apiserver demands: any other name is an ordinary user.
#[must_use]
pub fn split_service_account(user_name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user_name.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    (is_dns_label(namespace) && is_dns_subdomain(name)).then_some((namespace, name))
}

/// Returns the name of the node in `user_name`, if it is a node's.
#[must_use]
pub fn split_node(user_name: &str) -> Option<&str> {
    user_name
        .strip_prefix(NODE_PREFIX)
        .filter(|name| is_dns_subdomain(name))
}

/// Checks whether `name` is an RFC 1123 label: the form of a namespace's name.
#[must_use]
pub fn is_dns_label(name: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|byte| edge(byte) || byte == b'-')
        && name.bytes().next().is_some_and(edge)
        && name.bytes().last().is_some_and(edge)
}

/// Checks whether `name` is an RFC 1123 subdomain: the form of most objects' names.
#[must_use]
pub fn is_dns_subdomain(name: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|label| {
            label.bytes().all(|byte| edge(byte) || byte == b'-')
                && label.bytes().next().is_some_and(edge)
                && label.bytes().last().is_some_and(edge)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_service_account_names_are_split() {
        for (name, want) in [
            ("system:serviceaccount:shop:deployer", Some(("shop", "deployer"))),
            ("system:serviceaccount:shop:a.b-c", Some(("shop", "a.b-c"))),
            ("system:serviceaccount:shop:a:b", None),
            ("system:serviceaccount:Shop:a", None),
            ("system:serviceaccount::a", None),
            ("system:serviceaccount:shop:", None),
            ("system:serviceaccount:a.b:c", None),
            ("deployer", None),
        ] {
            assert_eq!(split_service_account(name), want, "{name}");
        }
    }
}
