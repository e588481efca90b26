//! The possible readers of a Secret, by RBAC. This module converts the API server's lists for `tenancy::access::readers`, which judges them. Users write roles, so
//! the stored words have a limit. A role beyond the limit may give any right.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_tenancy::access::readers::{
    AccessPath, BindingFacts, IntendedReaders, OtherReader, RuleFacts, SubjectFacts, list_other_readers, list_takers,
};

use super::NamedObject;

/// The maximum of stored words of roles, and of bindings with their rights.
const MOST_WORDS: usize = 200_000;
/// The maximum of ServiceAccounts whose tokens and names are considered.
const MOST_ACCOUNTS: usize = 64;

/// Roles of a namespace, or ClusterRoles.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    rules: BTreeMap<String, Option<Vec<RuleFacts>>>,
    words: usize,
    is_partial: bool,
}

impl Roles {
    /// Returns roles that can't be listed: each may give any right.
    #[must_use]
    pub fn unread() -> Self {
        Self {
            is_partial: true,
            ..Self::default()
        }
    }

    /// Notes that more roles exist than were listed.
    pub fn leave_out(&mut self) {
        self.is_partial = true;
    }

    /// Adds a role.
    pub fn add(&mut self, role: &Value) {
        let view = ObjectView::of(role);
        let rules = match role.get("rules") {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(rules) => Vec::<RuleFacts>::deserialize(rules).ok(),
        };
        self.words = self.words.saturating_add(rules.as_deref().map_or(1, count_words));
        let rules = rules.filter(|_| self.words <= MOST_WORDS);
        self.rules.insert(view.read_text("/metadata/name").to_owned(), rules);
    }

    /// Returns the rules of a role. A missing role gives no rights.
    fn find(&self, name: &str) -> Option<Vec<RuleFacts>> {
        match self.rules.get(name) {
            Some(rules) => rules.clone(),
            None if self.is_partial => None,
            None => Some(Vec::new()),
        }
    }
}

fn count_words(rules: &[RuleFacts]) -> usize {
    let words = |rule: &RuleFacts| {
        let lists = [&rule.api_groups, &rule.resources, &rule.resource_names, &rule.verbs];
        lists.iter().map(|list| list.len()).sum::<usize>() + 1
    };
    rules.iter().map(words).sum()
}

/// RoleBindings of a namespace, or ClusterRoleBindings, with their rights.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    facts: Vec<BindingFacts>,
    words: usize,
    /// True if more bindings exist than are known.
    pub is_partial: bool,
}

impl Bindings {
    /// Adds a binding.
    pub fn add(&mut self, binding: &Value, roles: &Roles, cluster_roles: &Roles) {
        let view = ObjectView::of(binding);
        let subjects = match binding.get("subjects") {
            None | Some(Value::Null) => Vec::new(),
            // Unreadable subjects get nothing, because the API server reads the same list.
            Some(subjects) => Vec::<SubjectFacts>::deserialize(subjects).unwrap_or_default(),
        };
        if subjects.is_empty() {
            return;
        }
        let role = view.read_text("/roleRef/name");
        let given = match view.read_text("/roleRef/kind") {
            "Role" => roles.find(role),
            _ => cluster_roles.find(role),
        };
        let weight = subjects.len() + given.as_deref().map_or(1, count_words);
        self.words = self.words.saturating_add(weight);
        if self.words > MOST_WORDS {
            self.is_partial = true;
            return;
        }
        self.facts.push(BindingFacts {
            name: view.read_text("/metadata/name").to_owned(),
            rules: given,
            subjects,
        });
    }
}

impl Bindings {
    /// Lists the subjects that can act as a ServiceAccount by these bindings.
    #[must_use]
    pub fn list_takers(&self, namespace: &str, account: &str) -> Vec<OtherReader> {
        list_takers(namespace, account, &self.facts)
    }
}

/// The possible readers of a Secret: by rights from its namespace, and by rights from the cluster. Either part may be unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readers {
    /// Readers with RoleBindings.
    pub by_namespace: Result<Vec<OtherReader>, String>,
    /// Readers with ClusterRoleBindings.
    pub by_cluster: Result<Vec<OtherReader>, String>,
}

/// Finds the readers, and the subjects that can use the tokens or names of ServiceAccounts in the namespace that may read the Secret.
#[must_use]
pub fn find_readers(
    secret: &NamedObject,
    own: &Result<Bindings, String>,
    cluster: &Result<Bindings, String>,
) -> Readers {
    let find = |bindings: &Bindings, accounts: &[String]| {
        let meant = IntendedReaders {
            namespace: &secret.namespace,
            secret: &secret.name,
            accounts,
            others: &[],
        };
        list_other_readers(meant, &bindings.facts)
    };
    let prefix = format!("system:serviceaccount:{}:", secret.namespace);
    let mut accounts: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for bindings in [own, cluster] {
        let bindings = bindings.as_ref().map_err(Clone::clone);
        let readers = bindings.map(|bindings| (bindings, find(bindings, &[])));
        for reader in readers.iter().flat_map(|(_, readers)| readers) {
            let account = reader
                .who
                .strip_prefix(&prefix)
                .filter(|_| reader.way == AccessPath::Reads);
            if let Some(account) = account.filter(|_| accounts.len() < MOST_ACCOUNTS)
                && !accounts.iter().any(|known| known == account)
            {
                accounts.push(account.to_owned());
            }
        }
        found.push(readers);
    }
    let mut found = found.into_iter().map(|readers| {
        readers.map(|(bindings, mut readers)| {
            // This second search treats the accounts as intended, so its new results are the subjects that use these accounts.
            let others = find(bindings, &accounts).into_iter();
            readers.extend(
                others.filter(|other| matches!(other.way, AccessPath::TakesToken(_) | AccessPath::Impersonates(_))),
            );
            readers.sort_by(|one, other| (&one.way, one).cmp(&(&other.way, other)));
            readers.dedup();
            readers
        })
    });
    let nothing = || Ok(Vec::new());
    Readers {
        by_namespace: found.next().unwrap_or_else(nothing),
        by_cluster: found.next().unwrap_or_else(nothing),
    }
}

/// Finds the readers besides the intended ones: ServiceAccounts of the Secret's namespace, and other users.
#[must_use]
pub fn find_other_readers(
    secret: &NamedObject,
    (accounts, others): (&[String], &[String]),
    own: &Result<Bindings, String>,
    cluster: &Result<Bindings, String>,
) -> Readers {
    let meant = IntendedReaders {
        namespace: &secret.namespace,
        secret: &secret.name,
        accounts,
        others,
    };
    let find = |bindings: &Result<Bindings, String>| {
        let bindings = bindings.as_ref().map_err(Clone::clone);
        bindings.map(|bindings| list_other_readers(meant, &bindings.facts))
    };
    Readers {
        by_namespace: find(own),
        by_cluster: find(cluster),
    }
}
