//! Edges of owners and approvers: namespaces with existing rights on their names, and credentials.

use serde_json::Value;

use crate::admission::{FailurePolicy, Requester, Verdict, Write, WriteCheck};
use crate::attack_writes;
use crate::cluster::Binding;
use crate::kinds::{RBAC, SECRET_WRITER};
use crate::node::{Identity, Node, Scope};
use crate::powers::Power;
use crate::rules::{Names, RequestedRight};
use crate::search::{Edge, Search};

impl Search<'_> {
    /// Returns admission's decision about a write.
    pub(crate) fn decide_admission(&mut self, write: &Write, identity: &Identity, groups: &[String]) -> Verdict {
        if self.evaluations == 0 {
            self.notes
                .insert("the answers of admission to more writes: there are too many to evaluate".to_owned());
            return Verdict::Unknown(vec![WriteCheck {
                name: "admission policies".to_owned(),
                when_dead: FailurePolicy::Holds,
            }]);
        }
        self.evaluations -= 1;
        let cluster = self.cluster;
        let requester = Requester {
            identity,
            groups,
            may: &|check| cluster.answer_check(identity, groups, check),
        };
        let namespace = cluster.namespaces.get(&write.namespace);
        cluster.admission.decide_write(write, namespace, &requester)
    }

    /// Returns admission's decision about a change of a namespace. Admission limits no holder that may also update the namespace.
    pub(crate) fn decide_namespace_change(
        &mut self,
        name: &str,
        stored: &Value,
        identity: &Identity,
        groups: &[String],
    ) -> Verdict {
        let update = RequestedRight {
            verb: "update",
            group: "",
            resource: "namespaces",
            name,
        };
        let scope = Scope::of_namespace(name);
        if self.cluster.is_allowed(identity, groups, &scope, &update) {
            return Verdict::Admitted;
        }
        let write = attack_writes::make_namespace_change(name, stored);
        self.decide_admission(&write, identity, groups)
    }

    /// Adds the identity as an approver of access targets. Returns whether no other identity needs to be added: two approvers of each target are
    /// enough.
    pub(crate) fn approve_access(&mut self, holder: &Identity, names: &Names, edge: &Edge) -> bool {
        let cluster = self.cluster;
        let mut is_shared = true;
        for target in cluster.targets.iter().filter(|target| names.includes_name(target)) {
            let target = format!("FluxAccessTarget/{target}");
            if self.approvers.get(&target).is_none_or(|approvers| approvers.len() < 2) {
                is_shared = false;
                self.add_edge(Node::AccessApproval(holder.clone(), target), edge.clone());
            }
        }
        is_shared
    }

    /// Adds the edges of an owner that may create namespaces: rights that already name a namespace, and credentials for names.
    pub(crate) fn expand_ownership(&mut self, identity: &Identity, groups: &[String], bindings: &[&Binding]) {
        let cluster = self.cluster;
        let is_owner =
            |owner: &Identity| owner == identity || matches!(owner, Identity::Group(group) if groups.contains(group));
        let owned: Vec<_> = cluster
            .tenants
            .iter()
            .filter(|(_, tenant)| tenant.owners.iter().any(is_owner))
            .collect();
        if owned.is_empty() {
            return;
        }
        let creation = bindings.iter().find(|binding| {
            let role = cluster.roles.get(binding.role);
            binding.scope == Scope::Cluster
                && role.is_some_and(|role| {
                    role.powers
                        .iter()
                        .any(|granted| granted.power == Power::CreateNamespaces)
                })
        });
        for (name, tenant) in owned {
            for namespace in &tenant.namespaces {
                self.expand_credentials(identity, bindings, name, namespace, None);
            }
            let Some(creation) = creation else { continue };
            for (namespace, by) in &cluster.missing_namespaces {
                let node = Node::NewNamespace(namespace.clone());
                if self.is_done(&node) {
                    continue;
                }
                let verdict = self.decide_admission(
                    &attack_writes::make_namespace(namespace, name, &tenant.uid),
                    identity,
                    groups,
                );
                let by = format!("{}; {by} names it", creation.label);
                self.add_edge(
                    node,
                    Edge::new("create-named-namespace", "create namespaces", by).with_verdict(verdict),
                );
            }
            for provider in &cluster.providers {
                for pattern in &provider.patterns {
                    let namespace = pattern.replace('*', "reach");
                    if cluster.namespaces.contains_key(&namespace) {
                        continue;
                    }
                    let verdict = self.decide_admission(
                        &attack_writes::make_namespace(&namespace, name, &tenant.uid),
                        identity,
                        groups,
                    );
                    self.expand_credentials(identity, bindings, name, &namespace, Some((&creation.label, verdict)));
                }
            }
        }
    }

    /// Adds new namespaces, for a subject that makes Pods or tokens in all of them.
    pub(crate) fn reach_new_namespaces(&mut self, with: &Node) {
        let cluster = self.cluster;
        for (namespace, by) in &cluster.missing_namespaces {
            let edge = Edge::new("create-named-namespace", "create namespaces", format!("{by} names it"));
            self.add_edge(Node::NewNamespace(namespace.clone()), edge.with_node(with.clone()));
        }
    }

    /// Adds the credential of an AccessProvider that names a namespace by a pattern, for a tenant that the AccessProvider does not list by name. The
    /// tenant `*` in its list allows each tenant to request, and names none.
    fn expand_credentials(
        &mut self,
        identity: &Identity,
        bindings: &[&Binding],
        tenant: &str,
        namespace: &str,
        creation: Option<(&String, Verdict)>,
    ) {
        let cluster = self.cluster;
        for provider in &cluster.providers {
            let is_listed = provider.tenants.iter().any(|listed| listed == tenant);
            let Some(pattern) = provider
                .patterns
                .iter()
                .find(|pattern| matches_wildcard(pattern, namespace))
            else {
                continue;
            };
            if is_listed {
                continue;
            }
            // The writer's role in the form of an installation. It is bound in the namespace already, or a holder of its rules there can
            // bind it.
            let Some(role) = cluster.role_index.get(&format!("ClusterRole/{}", SECRET_WRITER)) else {
                continue;
            };
            let writer = Identity::account(&provider.namespace, &provider.writer);
            let is_bound = cluster
                .list_bindings(&writer, &[])
                .iter()
                .any(|binding| binding.role == *role && binding.scope.includes_namespace(namespace));
            let Some(role) = cluster.roles.get(*role) else { continue };
            let groups = self.list_groups(identity);
            let may_bind = match &creation {
                None => {
                    let has_right = |verb: &str, resource: &str, name: &str| {
                        let asked = RequestedRight {
                            verb,
                            group: RBAC,
                            resource,
                            name,
                        };
                        cluster.is_allowed(identity, &groups, &Scope::of_namespace(namespace), &asked)
                    };
                    let writes = has_right("create", "rolebindings", "");
                    let binds = has_right("bind", "clusterroles", SECRET_WRITER);
                    writes && (binds || cluster.holds_role(bindings, namespace, role))
                }
                // In a new namespace an owner gets the same role as in the tenant's other namespaces: Kubernetes'
                // `admin`.
                Some(_) => cluster
                    .role_index
                    .get("ClusterRole/admin")
                    .and_then(|admin| cluster.roles.get(*admin))
                    .is_some_and(|admin| {
                        let held: Vec<_> = admin.rules.iter().collect();
                        role.rules.iter().all(|rule| crate::rules::covers_rule(&held, rule))
                    }),
            };
            if !is_bound && !may_bind {
                continue;
            }
            let (creation, verdict) = match &creation {
                Some((label, verdict)) => (format!("{label}; "), verdict.clone()),
                None => (String::new(), Verdict::Admitted),
            };
            let by = format!(
                "{creation}AccessProvider/{}/{} matches namespace {namespace} by {pattern}; {} can be bound there",
                provider.namespace, provider.name, role.label
            );
            let node = Node::Credential(format!("AccessProvider/{}", provider.name));
            self.add_edge(
                node,
                Edge::new("receive-credential", "create rolebindings", by).with_verdict(verdict),
            );
        }
    }

    /// Adds the edge from an access request and an approval to the credential, if the subject reaches two different identities for them.
    pub(crate) fn combine_access(&mut self, node: &Node) {
        match node {
            // Two requesters are enough, because at most one of them is also the approver.
            Node::AccessRequest(by) if self.requesters.len() < 2 => self.requesters.push(by.clone()),
            Node::AccessApproval(by, target) => {
                let approvers = self.approvers.entry(target.clone()).or_default();
                if approvers.len() < 2 {
                    approvers.push(by.clone());
                }
            }
            _ => return,
        }
        let approvers = self.approvers.clone();
        for (target, approvers) in approvers {
            let credential = Node::Credential(target.clone());
            if self.find(&credential).is_some() {
                continue;
            }
            let pairs = approvers
                .iter()
                .flat_map(|approver| self.requesters.iter().map(move |requester| (approver, requester)));
            let Some((approver, requester)) = pairs.into_iter().find(|(approver, requester)| approver != requester)
            else {
                continue;
            };
            let judge = WriteCheck {
                name: "rule access of Tenure, for an approver that can act as the requester".to_owned(),
                when_dead: FailurePolicy::Waits,
            };
            let edge = Edge::new("approve-own-request", "approve fluxaccesstargets", "")
                .with_node(Node::AccessRequest(requester.clone()))
                .with_verdict(Verdict::Unknown(vec![judge]));
            let approval = Node::AccessApproval(approver.clone(), target.clone());
            if let Some(from) = self.find(&approval) {
                self.add_edge_from(from, credential, edge);
            }
        }
    }
}

/// Checks whether a name matches a pattern in which `*` stands for any letters. Each part is searched once, from the end of the
/// previous one.
fn matches_wildcard(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches_wildcard;

    #[test]
    fn patterns_match_as_providers_read_them() {
        for (pattern, name, matches) in [
            ("shop-*", "shop-evil", true),
            ("shop-*", "shop", false),
            ("shop", "shop", true),
            ("shop", "shops", false),
            ("*-shop", "my-shop", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("*", "anything", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches_wildcard(pattern, name), matches, "{pattern} {name}");
        }
    }
}
