//! The index over Roles, ClusterRoles and their bindings, and its decision about a request. The index is updated
//! object by object, in memory and sorted, so equal objects always give the same reason. A request that no rule
//! allows is refused.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::Value;
use tenure_checkpoint::checkpoint;

use super::rules::PolicyRule;
use super::{Attributes, Authorizer, Decision, quote};
use crate::identity::{MASTERS, UserInfo, service_account_user_name};

/// The four kinds of `rbac.authorization.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RbacKind {
    /// Rules for the whole cluster, or to be bound in namespaces.
    ClusterRole,
    /// Subjects with a ClusterRole everywhere.
    ClusterRoleBinding,
    /// Rules for one namespace.
    Role,
    /// Subjects with a Role or ClusterRole in one namespace.
    RoleBinding,
}

impl RbacKind {
    /// Returns the kind served as `resource` of `rbac.authorization.k8s.io`.
    #[must_use]
    pub fn of_resource(resource: &str) -> Option<Self> {
        match resource {
            "clusterroles" => Some(Self::ClusterRole),
            "clusterrolebindings" => Some(Self::ClusterRoleBinding),
            "roles" => Some(Self::Role),
            "rolebindings" => Some(Self::RoleBinding),
            _ => None,
        }
    }

    /// Returns the plural resource.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::ClusterRole => "clusterroles",
            Self::ClusterRoleBinding => "clusterrolebindings",
            Self::Role => "roles",
            Self::RoleBinding => "rolebindings",
        }
    }
}

/// The role that a binding refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoleRef {
    pub(super) kind: String,
    pub(super) group: String,
    pub(super) name: String,
}

impl RoleRef {
    pub(super) fn of_binding(binding: &Value) -> Self {
        let text = |key: &str| {
            binding
                .pointer("/roleRef")
                .and_then(|reference| reference.get(key))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            kind: text("kind"),
            group: text("apiGroup"),
            name: text("name"),
        }
    }
}

/// A user, group or ServiceAccount in a binding.
#[derive(Debug, Clone)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

impl Subject {
    /// Checks whether the subject is this user, or a group of the user. `scope` is the namespace of the binding.
    fn applies_to(&self, user: &UserInfo, scope: &str) -> bool {
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => user.in_group(&self.name),
            "ServiceAccount" => self.user_name(scope).is_some_and(|name| name == user.name),
            _ => false,
        }
    }

    /// Returns the namespace of a ServiceAccount: its own, or else that of the binding.
    fn namespace_in<'a>(&'a self, scope: &'a str) -> &'a str {
        if self.namespace.is_empty() {
            scope
        } else {
            &self.namespace
        }
    }

    fn user_name(&self, scope: &str) -> Option<String> {
        let home = self.namespace_in(scope);
        (!home.is_empty()).then(|| service_account_user_name(home, &self.name))
    }

    fn describe(&self, scope: &str) -> String {
        if self.kind == "ServiceAccount" {
            format!(
                "{} {}",
                self.kind,
                quote(&format!("{}/{}", self.name, self.namespace_in(scope)))
            )
        } else {
            format!("{} {}", self.kind, quote(&self.name))
        }
    }
}

/// The role of a RoleBinding or ClusterRoleBinding, and its subjects.
#[derive(Debug, Clone)]
struct Binding {
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// Index of the bindings of one namespace, or of all ClusterRoleBindings, by user and by group.
#[derive(Debug, Default, Clone)]
struct BindingIndex {
    by_name: BTreeMap<String, Binding>,
    by_user: HashMap<String, BTreeSet<String>>,
    by_group: HashMap<String, BTreeSet<String>>,
}

impl BindingIndex {
    fn insert(&mut self, scope: &str, name: &str, binding: Binding) {
        self.remove(scope, name);
        for subject in &binding.subjects {
            match subject.kind.as_str() {
                "User" => self.by_user.entry(subject.name.clone()).or_default(),
                "Group" => self.by_group.entry(subject.name.clone()).or_default(),
                "ServiceAccount" => match subject.user_name(scope) {
                    Some(user) => self.by_user.entry(user).or_default(),
                    None => continue,
                },
                _ => continue,
            }
            .insert(name.to_owned());
        }
        self.by_name.insert(name.to_owned(), binding);
    }

    fn remove(&mut self, scope: &str, name: &str) {
        let Some(binding) = self.by_name.remove(name) else {
            return;
        };
        for subject in &binding.subjects {
            let (index, key) = match subject.kind.as_str() {
                "Group" => (&mut self.by_group, Some(subject.name.clone())),
                "ServiceAccount" => (&mut self.by_user, subject.user_name(scope)),
                _ => (&mut self.by_user, Some(subject.name.clone())),
            };
            let Some(key) = key else { continue };
            if let Some(names) = index.get_mut(&key) {
                names.remove(name);
                if names.is_empty() {
                    index.remove(&key);
                }
            }
        }
    }

    /// Returns the bindings that name the user or one of its groups, with duplicates.
    fn list_bindings_naming<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = &'a str> {
        let groups = user.groups.iter().filter_map(|group| self.by_group.get(group));
        let by_user = self.by_user.get(&user.name).into_iter();
        by_user.chain(groups).flatten().map(String::as_str)
    }

    /// Returns the bindings that name the user or one of its groups, without duplicates and sorted.
    fn bindings_of<'a>(&'a self, user: &'a UserInfo) -> BTreeSet<&'a str> {
        self.list_bindings_naming(user).collect()
    }
}

/// The reason why a rule applies to a user: a binding, and the subject in it that is the user or one of its groups.
struct Source<'a> {
    name: &'a str,
    scope: &'a str,
    binding: &'a Binding,
    subject: &'a Subject,
}

impl Source<'_> {
    fn describe(&self) -> String {
        let role = format!("{} {}", self.binding.role.kind, quote(&self.binding.role.name));
        let subject = self.subject.describe(self.scope);
        if self.scope.is_empty() {
            format!("ClusterRoleBinding {} of {role} to {subject}", quote(self.name))
        } else {
            let name = quote(&format!("{}/{}", self.name, self.scope));
            format!("RoleBinding {name} of {role} to {subject}")
        }
    }
}

/// The rules of one role, with the number of their strings.
#[derive(Debug)]
struct RoleRules {
    list: Vec<PolicyRule>,
    /// The number of strings in the rules, which determines the time of a search.
    strings: usize,
}

impl RoleRules {
    fn of_role(role: &Value) -> Arc<Self> {
        let list = PolicyRule::of_role(role);
        let strings = list.iter().map(PolicyRule::count_strings).sum();
        Arc::new(Self { list, strings })
    }
}

/// The rules of one role, shared by copies of the index.
type Rules = Arc<RoleRules>;

/// All roles and bindings of a cluster. A copy shares all unchanged parts.
#[derive(Debug, Default, Clone)]
pub struct Rbac {
    cluster_roles: imbl::HashMap<String, Rules>,
    roles: imbl::HashMap<String, Arc<HashMap<String, Rules>>>,
    cluster_bindings: Arc<BindingIndex>,
    bindings: imbl::HashMap<String, Arc<BindingIndex>>,
}

impl Rbac {
    /// Records a new or changed object.
    pub fn apply(&mut self, kind: RbacKind, object: &Value) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let name = text("/metadata/name");
        let namespace = text("/metadata/namespace");
        match kind {
            RbacKind::ClusterRole => {
                let rules = RoleRules::of_role(object);
                self.cluster_roles.insert(name.to_owned(), rules);
            }
            RbacKind::Role => {
                let roles = self.roles.entry(namespace.to_owned()).or_default();
                Arc::make_mut(roles).insert(name.to_owned(), RoleRules::of_role(object));
            }
            RbacKind::ClusterRoleBinding => {
                Arc::make_mut(&mut self.cluster_bindings).insert("", name, binding_of(object));
            }
            RbacKind::RoleBinding => {
                let bindings = self.bindings.entry(namespace.to_owned()).or_default();
                Arc::make_mut(bindings).insert(namespace, name, binding_of(object));
            }
        }
    }

    /// Removes an object; `namespace` is empty for cluster-scoped kinds.
    pub fn remove(&mut self, kind: RbacKind, namespace: &str, name: &str) {
        match kind {
            RbacKind::ClusterRole => {
                self.cluster_roles.remove(name);
            }
            RbacKind::Role => {
                if let Some(roles) = self.roles.get_mut(namespace) {
                    let roles = Arc::make_mut(roles);
                    roles.remove(name);
                    if roles.is_empty() {
                        self.roles.remove(namespace);
                    }
                }
            }
            RbacKind::ClusterRoleBinding => Arc::make_mut(&mut self.cluster_bindings).remove("", name),
            RbacKind::RoleBinding => {
                if let Some(bindings) = self.bindings.get_mut(namespace) {
                    let bindings = Arc::make_mut(bindings);
                    bindings.remove(namespace, name);
                    if bindings.by_name.is_empty() {
                        self.bindings.remove(namespace);
                    }
                }
            }
        }
    }

    /// Returns all rules for `user` in `namespace` (empty: in the cluster), and the references that could not be
    /// resolved.
    #[must_use]
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRule>, Vec<String>) {
        let mut rules = Vec::new();
        let mut errors = Distinct::default();
        let _ = self.visit(user, namespace, |found| {
            match found {
                Ok((_, rule)) => rules.push(rule.clone()),
                Err(role) => errors.push(role_not_found(role)),
            }
            ControlFlow::<()>::Continue(())
        });
        (rules, errors.list)
    }

    /// Returns the rules as [`Self::rules_for`] does, with the names of roles that bindings name and that don't
    /// exist.
    pub(super) fn rules_and_missing_roles(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRule>, Vec<String>) {
        let mut rules = Vec::new();
        let mut missing = Distinct::default();
        let _ = self.visit(user, namespace, |found| {
            match found {
                Ok((_, rule)) => rules.push(rule.clone()),
                Err(role) => missing.push(role.name.clone()),
            }
            ControlFlow::<()>::Continue(())
        });
        (rules, missing.list)
    }

    /// Returns the rules of the role to which a binding in `namespace` (empty: a ClusterRoleBinding) refers.
    pub(super) fn role_rules(&self, role: &RoleRef, namespace: &str) -> Option<&[PolicyRule]> {
        self.rules_of(role, namespace).map(|rules| rules.list.as_slice())
    }

    fn rules_of(&self, role: &RoleRef, namespace: &str) -> Option<&Rules> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(&role.name),
            "Role" => self.roles.get(namespace).and_then(|roles| roles.get(&role.name)),
            _ => None,
        }
    }

    /// Returns the bindings that apply in `namespace` (empty: in the cluster), with their namespaces.
    fn bindings_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a str, &'a BindingIndex)> {
        let local = (!namespace.is_empty())
            .then(|| self.bindings.get(namespace))
            .flatten()
            .map(|bindings| (namespace, bindings));
        std::iter::once(("", &self.cluster_bindings))
            .chain(local)
            .map(|(scope, bindings)| (scope, bindings.as_ref()))
    }

    /// Checks whether a request of `user` in `namespace` has to search more than `limit` bindings, subjects and
    /// strings of rules. Any user with the right to write roles can cause that. The check itself reads at most as
    /// many bindings.
    #[must_use]
    pub fn outweighs(&self, user: &UserInfo, namespace: &str, limit: usize) -> bool {
        let mut weight = 0_usize;
        for (scope, bindings) in self.bindings_in(namespace) {
            for name in bindings.list_bindings_naming(user) {
                let binding = bindings.by_name.get(name);
                let subjects = binding.map_or(0, |binding| binding.subjects.len());
                let rules = binding.and_then(|binding| self.rules_of(&binding.role, scope));
                let strings = rules.map_or(0, |rules| rules.strings);
                weight = weight.saturating_add(1 + subjects).saturating_add(strings);
                if weight > limit {
                    return true;
                }
            }
        }
        false
    }

    /// Passes `visitor` every rule for `user` in `namespace`, and every missing role of the user's bindings, until
    /// `visitor` breaks.
    fn visit<'a, B>(
        &'a self,
        user: &'a UserInfo,
        namespace: &'a str,
        mut visitor: impl FnMut(Result<(&Source<'a>, &'a PolicyRule), &'a RoleRef>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for (scope, bindings) in self.bindings_in(namespace) {
            for name in bindings.bindings_of(user) {
                checkpoint();
                let Some((name, binding)) = bindings.by_name.get_key_value(name) else {
                    continue;
                };
                let Some(subject) = binding.subjects.iter().find(|subject| subject.applies_to(user, scope)) else {
                    continue;
                };
                let Some(rules) = self.role_rules(&binding.role, scope) else {
                    visitor(Err(&binding.role))?;
                    continue;
                };
                let source = Source {
                    name,
                    scope,
                    binding,
                    subject,
                };
                for rule in rules {
                    visitor(Ok((&source, rule)))?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        if user.in_group(MASTERS) {
            return Decision {
                allowed: true,
                reason: String::new(),
            };
        }
        let combined = attributes.combined_resource();
        let namespace = if attributes.path.is_some() {
            ""
        } else {
            attributes.namespace.as_str()
        };
        let mut errors = Distinct::default();
        let found = self.visit(user, namespace, |found| match found {
            Ok((source, rule)) if rule.allows(attributes, &combined) => ControlFlow::Break(source.describe()),
            Ok(_) => ControlFlow::Continue(()),
            Err(role) => {
                errors.push(role_not_found(role));
                ControlFlow::Continue(())
            }
        });
        match found {
            ControlFlow::Break(source) => Decision {
                allowed: true,
                reason: format!("RBAC: allowed by {source}"),
            },
            ControlFlow::Continue(()) => Decision {
                allowed: false,
                reason: match errors.list.as_slice() {
                    [] => String::new(),
                    [only] => format!("RBAC: {only}"),
                    many => format!("RBAC: [{}]", many.join(", ")),
                },
            },
        }
    }
}

/// A list without duplicates: a role that several bindings miss is named once, at its first position.
#[derive(Default)]
struct Distinct {
    list: Vec<String>,
    seen: HashSet<String>,
}

impl Distinct {
    fn push(&mut self, item: String) {
        if self.seen.insert(item.clone()) {
            self.list.push(item);
        }
    }
}

/// Returns kube-apiserver's message for a missing role of a binding.
fn role_not_found(role: &RoleRef) -> String {
    format!(
        "{}.rbac.authorization.k8s.io {} not found",
        role.kind.to_lowercase(),
        quote(&role.name)
    )
}

fn binding_of(object: &Value) -> Binding {
    let subjects = object
        .get("subjects")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|subject| {
            let text = |key: &str| subject.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            Subject {
                kind: text("kind"),
                name: text("name"),
                namespace: text("namespace"),
            }
        })
        .collect();
    Binding {
        role: RoleRef::of_binding(object),
        subjects,
    }
}
