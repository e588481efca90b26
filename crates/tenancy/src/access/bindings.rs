//! Bindings with their rights, from the API server's lists. [`readers`](super::readers) judges them. Users write roles, so the stored words have a limit. A role beyond
//! the limit may give any right.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tenure_api::ObjectView;

use super::readers::{
    BindingFacts, IntendedReaders, OtherReader, RuleFacts, SubjectFacts, list_other_readers, list_takers,
};

/// The maximum number of stored words (API groups, resources, names, verbs) of roles, and of bindings with their
/// rights.
const MOST_WORDS: usize = 200_000;
/// The rules of the Roles of a namespace, or of the ClusterRoles, by name. A role beyond the limit of stored words may
/// give any right.
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
        let view = ObjectView::new(role);
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

/// Counts the words of rules, and one more for each rule.
fn count_words(rules: &[RuleFacts]) -> usize {
    let words = |rule: &RuleFacts| {
        let lists = [&rule.api_groups, &rule.resources, &rule.resource_names, &rule.verbs];
        lists.iter().map(|list| list.len()).sum::<usize>() + 1
    };
    rules.iter().map(words).sum()
}

/// RoleBindings of a namespace, or ClusterRoleBindings, each with the rules of its role.
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
        let view = ObjectView::new(binding);
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
    /// Lists the readers of a Secret by these bindings, besides the intended ones.
    #[must_use]
    pub fn list_other_readers(&self, meant: IntendedReaders<'_>) -> Vec<OtherReader> {
        list_other_readers(meant, &self.facts)
    }

    /// Lists the subjects that can act as a ServiceAccount by these bindings.
    #[must_use]
    pub fn list_takers(&self, namespace: &str, account: &str) -> Vec<OtherReader> {
        list_takers(namespace, account, &self.facts)
    }
}
