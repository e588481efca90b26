//! Edges that need several rights of one identity: `bind` and `escalate` with the right to write roles or bindings, and approvals of certificates.
//!
//! Without these verbs, RBAC lets an identity give only rights that it holds.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::admission::Verdict;
use crate::attack_writes;
use crate::cluster::{Binding, Cluster};
use crate::kinds::RBAC;
use crate::node::{Identity, Node, Scope};
use crate::powers::{Granted, Power};
use crate::rules::Names;
use crate::search::{Edge, Search};

/// The rights of identities to write, bind and escalate roles in one scope. Each right has the name of the binding that gives it.
#[derive(Default)]
pub(crate) struct RoleRights<'c> {
    writes_bindings: Option<&'c str>,
    writes_roles: Option<&'c str>,
    escalates: Option<&'c str>,
    binds_cluster_roles: Vec<(&'c Names, &'c str)>,
    binds_roles: Vec<(&'c Names, &'c str)>,
}

/// The rights of one identity or one set of groups that lead further only together, such as `bind` with the right to write bindings.
#[derive(Default)]
pub(crate) struct CombinedRights<'c> {
    scopes: BTreeMap<Scope, RoleRights<'c>>,
    whole: RoleRights<'c>,
    writes_cluster_bindings: Option<&'c str>,
    writes_cluster_roles: Option<&'c str>,
    escalates_cluster_roles: Option<&'c str>,
    approves_certificates: Option<&'c str>,
    signers: Vec<&'c Names>,
    has_any_in_cluster: bool,
}

impl<'c> CombinedRights<'c> {
    /// Collects the rights of bindings that lead further only with another right.
    fn combine<'b: 'c>(cluster: &'c Cluster, bindings: impl Iterator<Item = &'b Binding>) -> Self {
        let mut combining = Self::default();
        for binding in bindings {
            let Some(role) = cluster.roles.get(binding.role).filter(|role| role.combines_rights) else {
                continue;
            };
            for granted in role.powers.iter().filter(|granted| granted.power.needs_another()) {
                combining.add(granted, binding);
            }
        }
        combining
    }

    fn add(&mut self, granted: &'c Granted, binding: &'c Binding) {
        let by = binding.label.as_str();
        if matches!(&granted.names, Names::Some(names) if names.is_empty()) {
            return;
        }
        let bounds = match binding.scope {
            Scope::Cluster => {
                self.has_any_in_cluster = true;
                match granted.power {
                    Power::WriteClusterBindings => self.writes_cluster_bindings = Some(by),
                    Power::WriteClusterRoles => self.writes_cluster_roles = Some(by),
                    Power::EscalateClusterRoles => self.escalates_cluster_roles = Some(by),
                    Power::ApproveCertificateRequests => self.approves_certificates = Some(by),
                    Power::ApproveSigners => self.signers.push(&granted.names),
                    _ => {}
                }
                &mut self.whole
            }
            _ => self.scopes.entry(binding.scope.clone()).or_default(),
        };
        match granted.power {
            Power::WriteBindings => bounds.writes_bindings = Some(by),
            Power::WriteRoles => bounds.writes_roles = Some(by),
            Power::EscalateRoles => bounds.escalates = Some(by),
            Power::BindClusterRoles => bounds.binds_cluster_roles.push((&granted.names, by)),
            Power::BindRoles => bounds.binds_roles.push((&granted.names, by)),
            _ => {}
        }
    }
}

impl<'c> Search<'c> {
    /// Combines the rights of an identity's own bindings with each other and with those of its groups. The rights of groups alone are combined once,
    /// unless the result depends on the identity.
    pub(crate) fn expand_bindings(
        &mut self,
        identity: &Identity,
        groups: &[String],
        own: &[&Binding],
        shared: &[String],
    ) {
        let cluster = self.cluster;
        let own: CombinedRights<'_> = CombinedRights::combine(cluster, own.iter().copied());
        let of_groups = self.combine_groups(shared);
        let evaluations = self.evaluations;
        let is_first = !self.combined_groups.contains(shared);
        let parts = [&own, &*of_groups];
        if is_first || own.has_any_in_cluster {
            self.expand_whole(identity, groups, &parts);
        }
        if is_first {
            for (scope, bounds) in &of_groups.scopes {
                self.expand_role_rights(identity, groups, scope, &[bounds, &of_groups.whole]);
            }
        }
        for (scope, bounds) in &own.scopes {
            let nothing = RoleRights::default();
            let beside = of_groups.scopes.get(scope).unwrap_or(&nothing);
            self.expand_role_rights(identity, groups, scope, &[bounds, beside, &own.whole, &of_groups.whole]);
        }
        if is_first && self.evaluations == evaluations {
            self.combined_groups.insert(shared.to_vec());
        }
    }

    /// Collects the rights of a set of groups, and caches the result for the next identity in these groups.
    fn combine_groups(&mut self, shared: &[String]) -> Rc<CombinedRights<'c>> {
        if let Some(known) = self.group_rights.get(shared) {
            return Rc::clone(known);
        }
        let cluster = self.cluster;
        let groups = shared.iter().map(|group| Identity::Group(group.clone()));
        let bindings: Vec<&'c Binding> = groups
            .filter_map(|group| cluster.bindings.get(&group))
            .flatten()
            .collect();
        let combining = Rc::new(CombinedRights::combine(cluster, bindings.into_iter()));
        self.group_rights.insert(shared.to_vec(), Rc::clone(&combining));
        combining
    }

    /// Adds the edges of rights in the whole cluster, and of rights in every namespace.
    fn expand_whole(&mut self, identity: &Identity, groups: &[String], parts: &[&CombinedRights<'_>]) {
        let first = |read: &dyn Fn(&CombinedRights<'_>) -> Option<String>| parts.iter().find_map(|part| read(part));
        let owned = |text: Option<&str>| text.map(str::to_owned);
        if let Some(by) = first(&|part| owned(part.approves_certificates)) {
            let signers: Vec<&Names> = parts.iter().flat_map(|part| part.signers.iter().copied()).collect();
            self.approve_certificates(&signers, &by);
        }
        if first(&|part| owned(part.writes_cluster_roles)).is_some()
            && let Some(by) = first(&|part| owned(part.escalates_cluster_roles))
        {
            let edge = Edge::new("escalate", "escalate clusterroles", by);
            self.add_edge(Node::Everything(Scope::Cluster), edge);
        }
        if first(&|part| owned(part.writes_cluster_bindings)).is_some() {
            for (names, by) in parts.iter().flat_map(|part| &part.whole.binds_cluster_roles) {
                self.bind_identity(identity, groups, &Scope::Cluster, "ClusterRole/", names, by);
            }
        }
        let wholes: Vec<&RoleRights<'_>> = parts.iter().map(|part| &part.whole).collect();
        self.expand_role_rights(identity, groups, &Scope::EveryNamespace, &wholes);
    }

    /// Adds edges to the approval of certificates, for each signer on which the same identity has the verb `approve`.
    fn approve_certificates(&mut self, signers: &[&Names], by: &str) {
        for (signer, node) in [
            ("kubernetes.io/kube-apiserver-client", Node::CertificateApproval),
            (
                "kubernetes.io/kube-apiserver-client-kubelet",
                Node::NodeCertificateApproval,
            ),
        ] {
            let is_approver = |names: &&Names| names.includes_name(signer) || names.includes_name("kubernetes.io/*");
            if signers.iter().any(is_approver) {
                self.add_edge(
                    node,
                    Edge::new("approve-certificate", "approve signers.certificates.k8s.io", by),
                );
            }
        }
    }

    /// Adds the edges of rights in one scope: `escalate` with the right to write roles, and `bind` with the right to write bindings.
    fn expand_role_rights(&mut self, identity: &Identity, groups: &[String], scope: &Scope, parts: &[&RoleRights<'_>]) {
        if let Some(by) = parts.iter().find_map(|part| part.escalates)
            && parts.iter().any(|part| part.writes_roles.is_some())
        {
            self.add_edge(
                Node::Everything(scope.clone()),
                Edge::new("escalate", "escalate roles", by),
            );
        }
        if !parts.iter().any(|part| part.writes_bindings.is_some()) {
            return;
        }
        for (names, by) in parts.iter().flat_map(|part| &part.binds_cluster_roles) {
            self.bind_identity(identity, groups, scope, "ClusterRole/", names, by);
        }
        for (names, by) in parts.iter().flat_map(|part| &part.binds_roles) {
            let namespaces = match scope.namespace() {
                Some(namespace) => vec![namespace.to_owned()],
                None => self.list_namespaces(),
            };
            for namespace in namespaces {
                let prefix = format!("Role/{namespace}/");
                self.bind_identity(identity, groups, &Scope::Namespace(namespace), &prefix, names, by);
            }
        }
    }

    /// Adds edges to the roles that the identity can bind to itself in a scope, as far as admission allows the binding.
    fn bind_identity(
        &mut self,
        identity: &Identity,
        groups: &[String],
        scope: &Scope,
        prefix: &str,
        names: &Names,
        by: &str,
    ) {
        let cluster = self.cluster;
        let resource = if *scope == Scope::Cluster {
            "clusterrolebindings"
        } else {
            "rolebindings"
        };
        let is_judged = cluster.admission.checks_resource(RBAC, resource);
        let scopes = match scope {
            Scope::EveryNamespace if is_judged => self.list_namespaces().into_iter().map(Scope::Namespace).collect(),
            _ => vec![scope.clone()],
        };
        for scope in &scopes {
            if *names == Names::All && prefix == "ClusterRole/" {
                let verdict = self.judge_binding(is_judged, "ClusterRole/cluster-admin", scope, identity, groups);
                let is_open = !matches!(verdict, Verdict::Denied(_));
                let edge = Edge::new("bind", "bind clusterroles", by).with_verdict(verdict);
                self.add_edge(Node::Everything(scope.clone()), edge);
                if is_open {
                    continue;
                }
            }
            let roles: Vec<&str> = match names {
                Names::Some(names) => names
                    .iter()
                    .filter_map(|name| cluster.role_index.get(&format!("{prefix}{name}")))
                    .map(|role| self.name_role(*role))
                    .collect(),
                Names::All => cluster
                    .roles
                    .iter()
                    .filter(|role| !role.powers.is_empty() && role.label.starts_with(prefix))
                    .map(|role| role.label.as_str())
                    .collect(),
            };
            for role in roles.into_iter().map(str::to_owned).collect::<Vec<_>>() {
                let verdict = self.judge_binding(is_judged, &role, scope, identity, groups);
                let edge = Edge::new("bind", format!("bind {role}"), by).with_verdict(verdict);
                let node = Node::Role {
                    holder: identity.clone(),
                    role,
                    scope: scope.clone(),
                };
                self.add_edge(node, edge);
                if self.is_full() || (is_judged && self.evaluations == 0) {
                    return;
                }
            }
        }
    }

    /// Returns admission's decision about a binding of a role to the identity.
    fn judge_binding(
        &mut self,
        is_judged: bool,
        role: &str,
        scope: &Scope,
        identity: &Identity,
        groups: &[String],
    ) -> Verdict {
        if !is_judged {
            return Verdict::Admitted;
        }
        self.decide_admission(&attack_writes::make_binding(role, scope, identity), identity, groups)
    }

    fn list_namespaces(&self) -> Vec<String> {
        self.cluster.namespaces.keys().cloned().collect()
    }
}
