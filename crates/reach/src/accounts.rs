//! The edges to ServiceAccounts: by tokens, Secrets, Pods, and names of accounts that do not exist
//! yet.

use std::collections::BTreeSet;

use crate::admission::Verdict;
use crate::attack_writes;
use crate::cluster::Binding;
use crate::node::{Identity, Node, Scope, list_in_scope};
use crate::powers::Granted;
use crate::rules::Names;
use crate::search::{Edge, Search};

impl Search<'_> {
    /// Adds edges by TokenRequest. If admission checks token requests, evaluates them for each account. Returns
    /// whether all are admitted, so the edges are the same for every holder.
    pub(crate) fn expand_tokens(
        &mut self,
        holder: &Identity,
        groups: &[String],
        binding: &Binding,
        granted: &Granted,
    ) -> bool {
        let edge = || Edge::new("create-token", granted.right.clone(), binding.label.clone());
        let is_judged = self.cluster.admission.checks_resource("", "serviceaccounts/token");
        if !is_judged {
            match &granted.names {
                Names::All => self.add_edge(Node::Tokens(binding.scope.clone()), edge()),
                Names::Some(names) => {
                    for (namespace, name) in self.list_named_accounts(&binding.scope, names) {
                        self.add_edge(Node::account(&namespace, &name), edge());
                    }
                }
            }
            return true;
        }
        let accounts = match &granted.names {
            Names::All => self.list_accounts(&binding.scope),
            Names::Some(names) => self.list_named_accounts(&binding.scope, names),
        };
        let mut is_open = true;
        for (namespace, name) in accounts {
            let node = Node::account(&namespace, &name);
            if self.is_done(&node) {
                continue;
            }
            let verdict = self.decide_admission(&attack_writes::make_token_request(&namespace, &name), holder, groups);
            is_open &= verdict == Verdict::Admitted;
            self.add_edge(node, edge().with_verdict(verdict));
        }
        if is_open && granted.names == Names::All {
            // All existing accounts are admitted, so missing accounts are not evaluated one by one: the node of
            // all tokens covers them.
            self.add_edge(Node::Tokens(binding.scope.clone()), edge());
        }
        is_open
    }

    /// Adds edges from the values of Secrets to the accounts of token Secrets, stored ones and new ones.
    pub(crate) fn expand_secrets(&mut self, scope: &Scope) {
        let cluster = self.cluster;
        for (namespace, secrets) in list_in_scope(&cluster.token_secrets, scope) {
            for (name, account) in secrets {
                let edge = Edge::new("token-secret", "get secrets", format!("Secret/{namespace}/{name}"));
                self.add_edge(Node::account(namespace, account), edge);
            }
        }
        for (meet, other) in self.combine_scopes("secrets", scope, "new-secrets") {
            self.reach_by_new_secret(&meet, Node::NewSecrets(other));
        }
    }

    /// Adds the accounts of new token Secrets. A Secret of this type gets a token of the account in
    /// its annotation.
    pub(crate) fn reach_by_new_secret(&mut self, scope: &Scope, with: Node) {
        self.reach_accounts_by(
            scope,
            &Edge::new("new-token-secret", "create secrets", "").with_node(with),
        );
    }

    /// Adds edges from a new namespace to the accounts and the group that already have rights by its name.
    pub(crate) fn expand_new_namespace(&mut self, name: &str) {
        let cluster = self.cluster;
        for (account, by) in cluster.missing_accounts.get(name).into_iter().flatten() {
            self.add_edge(
                Node::account(name, account),
                Edge::new("named-account", "create serviceaccounts", by.clone()),
            );
        }
        let group = format!("{}{name}", crate::node::ACCOUNTS_PREFIX);
        if cluster.bindings.contains_key(&Identity::Group(group.clone())) {
            self.add_edge(
                Node::Identity(Identity::Group(group)),
                Edge::new("member-of", "create serviceaccounts", ""),
            );
        }
    }

    /// Lists the Secrets with tokens that `names` allow, by namespace and name.
    pub(crate) fn list_token_secrets(&self, scope: &Scope, names: &Names) -> Vec<(String, String)> {
        list_in_scope(&self.cluster.token_secrets, scope)
            .into_iter()
            .flat_map(|(namespace, secrets)| secrets.keys().map(move |name| (namespace, name)))
            .filter(|(_, name)| names.includes_name(name))
            .map(|(namespace, name)| (namespace.clone(), name.clone()))
            .collect()
    }

    pub(crate) fn list_accounts(&self, scope: &Scope) -> Vec<(String, String)> {
        list_in_scope(&self.cluster.accounts, scope)
            .into_iter()
            .flat_map(|(namespace, names)| names.iter().map(|name| (namespace.clone(), name.clone())))
            .collect()
    }

    pub(crate) fn list_named_accounts(&self, scope: &Scope, names: &BTreeSet<String>) -> Vec<(String, String)> {
        list_in_scope(&self.cluster.accounts, scope)
            .into_iter()
            .flat_map(|(namespace, known)| {
                known
                    .intersection(names)
                    .map(move |name| (namespace.clone(), name.clone()))
            })
            .collect()
    }

    pub(crate) fn reach_accounts(&mut self, scope: &Scope, name: &'static str, right: &str) {
        self.reach_accounts_by(scope, &Edge::new(name, right, ""));
    }

    pub(crate) fn reach_accounts_by(&mut self, scope: &Scope, edge: &Edge) {
        for (namespace, name) in self.list_accounts(scope) {
            self.add_edge(Node::account(&namespace, &name), edge.clone());
        }
    }

    /// Adds accounts that a binding names and that do not exist, if the subject can make ServiceAccounts and use
    /// them.
    pub(crate) fn reach_missing_accounts(&mut self, sort: &'static str, scope: &Scope) {
        for (meet, other) in self.combine_scopes(sort, scope, "new-accounts") {
            self.become_missing(&meet, Node::NewAccounts(other));
        }
    }

    /// Adds edges to the missing accounts in existing namespaces of a scope. `with` is the right to create
    /// ServiceAccounts.
    pub(crate) fn become_missing(&mut self, scope: &Scope, with: Node) {
        let cluster = self.cluster;
        let missing = list_in_scope(&cluster.missing_accounts, scope);
        let missing = missing
            .into_iter()
            .filter(|(namespace, _)| cluster.namespaces.contains_key(*namespace));
        for (namespace, names) in missing {
            for (name, by) in names {
                let edge = Edge::new("named-account", "create serviceaccounts", by.clone()).with_node(with.clone());
                self.add_edge(Node::account(namespace, name), edge);
            }
        }
    }
}
