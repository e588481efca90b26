//! The edges from each node of the graph.

use crate::admission::{FailurePolicy, Verdict, WriteCheck};
use crate::attack_writes;
use crate::cluster::{Binding, Nodes};
use crate::kinds::{ActingKind, DEPUTIES, LANE_GROUPS, LANE_PREFIX};
use crate::node::{Identity, Node, Scope, list_in_scope};
use crate::powers::{Granted, Power};
use crate::rules::Names;
use crate::search::{Edge, Search};

/// The group that may do everything.
const MASTERS: &str = "system:masters";

impl Search<'_> {
    /// Adds the edges of a node.
    pub(crate) fn expand_node(&mut self, node: &Node) {
        match node {
            Node::Tenant(name) => self.expand_tenant(name),
            Node::Identity(identity) => self.expand_identity(identity),
            Node::Role { holder, role, scope } => {
                let Some(&role) = self.cluster.role_index.get(role) else {
                    return;
                };
                let groups = self.list_groups(holder);
                let binding = Binding {
                    label: format!("a new binding of {}", self.name_role(role)),
                    role,
                    scope: scope.clone(),
                };
                self.expand_role(holder, &groups, &binding);
                let cluster = self.cluster;
                if cluster.combines_rights(&binding) {
                    let own = cluster.bindings.get(holder).into_iter().flatten();
                    let own: Vec<&Binding> = own.chain(std::iter::once(&binding)).collect();
                    let shared = self.list_shared_groups(&groups);
                    self.expand_bindings(holder, &groups, &own, &shared);
                }
            }
            Node::Everything(scope) => self.expand_everything(scope),
            Node::Pods(scope) => self.expand_pods(scope),
            Node::RunningPods(scope) => self.expand_running_pods(scope),
            Node::Tokens(scope) => {
                self.reach_accounts(scope, "create-token", "create serviceaccounts/token");
                self.reach_missing_accounts("tokens", scope);
                self.combine_new_namespaces("tokens", scope);
            }
            Node::Secrets(scope) => self.expand_secrets(scope),
            Node::Secret { namespace, name } => {
                let account = self
                    .cluster
                    .token_secrets
                    .get(namespace)
                    .and_then(|secrets| secrets.get(name));
                if let Some(account) = account {
                    let edge = Edge::new("token-secret", "get secrets", format!("Secret/{namespace}/{name}"));
                    self.add_edge(Node::account(namespace, account), edge);
                }
            }
            Node::NewSecrets(scope) => {
                for (meet, other) in self.combine_scopes("new-secrets", scope, "secrets") {
                    self.reach_by_new_secret(&meet, Node::Secrets(other));
                }
            }
            Node::NewAccounts(scope) => {
                for sort in ["pods", "tokens"] {
                    for (meet, other) in self.combine_scopes("new-accounts", scope, sort) {
                        let with = if sort == "pods" {
                            Node::Pods(other)
                        } else {
                            Node::Tokens(other)
                        };
                        self.become_missing(&meet, with);
                    }
                }
            }
            Node::NewNamespace(name) => self.expand_new_namespace(name),
            Node::NewNamespaces => {
                for (sort, with) in [("pods", Node::Pods as fn(Scope) -> Node), ("tokens", Node::Tokens)] {
                    let everywhere = self.combine_scopes("new-namespaces", &Scope::EveryNamespace, sort);
                    for (_, other) in everywhere.into_iter().filter(|(_, other)| other.namespace().is_none()) {
                        self.reach_new_namespaces(&with(other));
                    }
                }
            }
            Node::NamespaceLabels(_, name) => {
                let own = Scope::of_namespace(name);
                for (_, other) in self.combine_scopes("namespace-labels", &own, "pods") {
                    self.reach_nodes(
                        Edge::new("pod-security-label", "patch namespaces", format!("Namespace/{name}"))
                            .with_node(Node::Pods(other)),
                    );
                }
            }
            Node::Volumes => {
                for (_, other) in self.combine_scopes("volumes", &Scope::EveryNamespace, "pods") {
                    self.reach_nodes(
                        Edge::new("host-path-volume", "create persistentvolumes", "").with_node(Node::Pods(other)),
                    );
                }
            }
            Node::Nodes => self.expand_nodes(),
            Node::CertificateRequests | Node::CertificateApproval | Node::NodeCertificateApproval => {
                self.expand_certificates()
            }
            Node::EveryUser => self.expand_every_user(),
            Node::EveryGroup => {
                let groups = self
                    .cluster
                    .bindings
                    .keys()
                    .filter(|known| matches!(known, Identity::Group(_)));
                for group in groups.cloned().collect::<Vec<_>>() {
                    self.add_edge(Node::Identity(group), Edge::new("member-of", "", "any group"));
                }
            }
            Node::CustomResources => self.expand_custom_resources(),
            Node::Deputies { resource, scope } => self.expand_deputies(resource, scope),
            Node::FreeDeputies { resource, scope } => self.expand_free_deputies(resource, scope),
            Node::AccessRequest(_) | Node::AccessApproval(..) => self.combine_access(node),
            Node::Network(_) | Node::Admission | Node::Credential(_) => {}
        }
    }

    pub(crate) fn name_role(&self, role: usize) -> &str {
        self.cluster.roles.get(role).map_or("", |role| role.label.as_str())
    }

    pub(crate) fn list_groups(&self, identity: &Identity) -> Vec<String> {
        let mut groups = identity.list_groups();
        // Only the subject of the question has the extra groups.
        if self
            .nodes
            .first()
            .is_some_and(|start| start.identity() == Some(identity))
        {
            groups.extend(self.extra_groups.iter().cloned());
        }
        groups
    }

    /// Returns the groups that have bindings.
    fn list_shared_groups(&self, groups: &[String]) -> Vec<String> {
        let is_bound = |group: &&String| {
            let group = Identity::Group((*group).clone());
            self.cluster.bindings.contains_key(&group)
        };
        groups.iter().filter(is_bound).cloned().collect()
    }

    fn expand_tenant(&mut self, name: &str) {
        let cluster = self.cluster;
        let Some(tenant) = cluster.tenants.get(name) else {
            return;
        };
        for owner in &tenant.owners {
            self.add_edge(
                Node::Identity(owner.clone()),
                Edge::new("owner", "", format!("Tenant/{name}")),
            );
        }
        for namespace in &tenant.namespaces {
            for account in cluster.accounts.get(namespace).into_iter().flatten() {
                let edge = Edge::new("has-account", "", format!("Namespace/{namespace}"));
                self.add_edge(Node::account(namespace, account), edge);
            }
        }
    }

    fn expand_identity(&mut self, identity: &Identity) {
        let groups = self.list_groups(identity);
        if groups.iter().any(|group| group == MASTERS) {
            self.add_edge(Node::Everything(Scope::Cluster), Edge::new("member-of", "", MASTERS));
            return;
        }
        if matches!(identity, Identity::User(name) if name.starts_with("system:node:"))
            || groups.iter().any(|group| group == "system:nodes")
        {
            self.reach_nodes(Edge::new("node-credential", "", "system:nodes"));
        }
        let cluster = self.cluster;
        let own = cluster.bindings.get(identity).map(Vec::as_slice).unwrap_or_default();
        for binding in own {
            self.expand_role(identity, &groups, binding);
        }
        // Thousands of accounts share their groups: the edges of the groups are expanded once, unless the edges depend on the account.
        let shared = self.list_shared_groups(&groups);
        let all = cluster.list_bindings(identity, &groups);
        if !self.expanded_groups.contains(&shared) {
            let mut is_shared = true;
            for binding in all.iter().skip(own.len()) {
                is_shared &= self.expand_role(identity, &groups, binding);
            }
            if is_shared {
                self.expanded_groups.insert(shared.clone());
            }
        }
        let own: Vec<&Binding> = own.iter().collect();
        self.expand_bindings(identity, &groups, &own, &shared);
        self.expand_ownership(identity, &groups, &all);
    }

    /// Adds the edges of the rules of a bound role. Returns whether the edges are the same for every holder of the role in this scope.
    fn expand_role(&mut self, holder: &Identity, groups: &[String], binding: &Binding) -> bool {
        let key = (binding.role, binding.scope.clone());
        if self.expanded.contains(&key) {
            return true;
        }
        let cluster = self.cluster;
        let Some(role) = cluster.roles.get(binding.role) else {
            return true;
        };
        let mut is_shared = true;
        for granted in &role.powers {
            is_shared &= self.expand_power(holder, groups, binding, granted);
        }
        if is_shared {
            self.expanded.insert(key);
        }
        is_shared
    }

    /// Adds the edges of one power. Returns whether the edges are the same for every holder.
    fn expand_power(&mut self, holder: &Identity, groups: &[String], binding: &Binding, granted: &Granted) -> bool {
        let scope = &binding.scope;
        let is_cluster = *scope == Scope::Cluster;
        let edge = |name: &'static str| Edge::new(name, granted.right.clone(), binding.label.clone());
        match granted.power {
            Power::Everything => self.add_edge(Node::Everything(scope.clone()), edge("all-rights")),
            Power::CreatePods => self.add_edge(Node::Pods(scope.clone()), edge("create-pods")),
            Power::ChangePods => self.go_to_runners(scope, &granted.names, edge("change-pods")),
            Power::EnterPods => self.go_to_runners(scope, &granted.names, edge("enter-pods")),
            Power::ProxyPods => self.add_edge(Node::Network(scope.clone()), edge("proxy-pods")),
            Power::ReadSecrets => match &granted.names {
                Names::All => self.add_edge(Node::Secrets(scope.clone()), edge("read-secrets")),
                names => {
                    for (namespace, name) in self.list_token_secrets(scope, names) {
                        self.add_edge(Node::Secret { namespace, name }, edge("read-secrets"));
                    }
                }
            },
            Power::CreateSecrets => self.add_edge(Node::NewSecrets(scope.clone()), edge("create-secrets")),
            Power::CreateTokens => return self.expand_tokens(holder, groups, binding, granted),
            Power::CreateAccounts => self.add_edge(Node::NewAccounts(scope.clone()), edge("create-serviceaccounts")),
            Power::ImpersonateUsers if is_cluster => match &granted.names {
                Names::All => self.add_edge(Node::EveryUser, edge("impersonate")),
                Names::Some(names) => {
                    for name in names {
                        self.add_edge(Node::Identity(Identity::from_user_name(name)), edge("impersonate"));
                    }
                }
            },
            Power::ImpersonateGroups if is_cluster => match &granted.names {
                Names::All => self.add_edge(Node::Everything(Scope::Cluster), edge("impersonate")),
                Names::Some(names) => {
                    for name in names {
                        self.add_edge(Node::Identity(Identity::Group(name.clone())), edge("impersonate"));
                    }
                }
            },
            Power::ImpersonateAccounts => match &granted.names {
                Names::All => self.reach_accounts_by(scope, &edge("impersonate")),
                Names::Some(names) => {
                    for (namespace, name) in self.list_named_accounts(scope, names) {
                        self.add_edge(Node::account(&namespace, &name), edge("impersonate"));
                    }
                }
            },
            Power::WriteMutation if is_cluster => {
                self.add_edge(Node::Everything(Scope::Cluster), edge("mutate-every-write"))
            }
            Power::WriteValidation if is_cluster => self.add_edge(Node::Admission, edge("change-admission")),
            Power::WriteCustomKinds if is_cluster => {
                self.add_edge(Node::CustomResources, edge("convert-custom-resources"))
            }
            Power::WriteApiServices if is_cluster => self.add_edge(Node::CustomResources, edge("serve-api-group")),
            Power::CreateCertificateRequests if is_cluster => {
                self.add_edge(Node::CertificateRequests, edge("request-certificate"))
            }
            Power::CreateNamespaces if is_cluster => self.add_edge(Node::NewNamespaces, edge("create-namespaces")),
            Power::ChangeNamespaces => {
                // Admission may limit the patches of a holder without the verb `update` to new namespaces.
                let role = self.cluster.roles.get(binding.role);
                let may_update =
                    role.is_some_and(|role| role.rules.iter().any(|rule| rule.covers("update", "", "namespaces")));
                let applier = (is_cluster && !may_update).then_some((holder, groups));
                return self.expand_namespace_labels(applier, scope, &granted.names, &edge("change-namespace"));
            }
            Power::ProxyNodes if is_cluster => self.reach_nodes(edge("proxy-nodes")),
            Power::CreateVolumes if is_cluster => self.add_edge(Node::Volumes, edge("create-volumes")),
            Power::RequestAccess if self.cluster.targets.is_empty() => {}
            Power::RequestAccess if self.requesters.len() >= 2 => {}
            Power::RequestAccess => {
                self.add_edge(Node::AccessRequest(holder.clone()), edge("request-access"));
                return false;
            }
            Power::ApproveAccess => return self.approve_access(holder, &granted.names, &edge("approve-access")),
            Power::FeedLane => self.feed_lanes(scope, &edge("take-over-lane")),
            Power::Deputy(index) => {
                if let Some(deputy) = DEPUTIES.get(index) {
                    return self.write_deputy(deputy, (holder, groups), scope, &edge("write-deputy"));
                }
            }
            _ => {}
        }
        true
    }

    /// Adds edges to the lanes that reconcile objects in a scope.
    fn feed_lanes(&mut self, scope: &Scope, edge: &Edge) {
        let cluster = self.cluster;
        for (namespace, lanes) in list_in_scope(&cluster.lanes, scope) {
            for lane in lanes {
                let mut edge = edge.clone();
                edge.by = format!("{}, RoleBinding/{namespace}/{}", edge.by, crate::kinds::LANE_BINDING);
                self.add_edge(Node::Identity(lane.clone()), edge);
            }
        }
    }

    /// Adds edges to the labels of namespaces with a Pod Security level. For an `applier`, admission decides about each change. Returns
    /// whether the edges are the same for every holder.
    fn expand_namespace_labels(
        &mut self,
        applier: Option<(&Identity, &[String])>,
        scope: &Scope,
        names: &Names,
        edge: &Edge,
    ) -> bool {
        // A right in a namespace also covers that Namespace itself.
        let cluster = self.cluster;
        for (name, stored) in list_in_scope(&cluster.namespaces, scope) {
            let node = Node::NamespaceLabels(Scope::of_namespace(name), name.clone());
            if !names.includes_name(name) || cluster.find_pod_security(name).is_none() || self.is_done(&node) {
                continue;
            }
            let mut edge = edge.clone();
            if let Some((holder, groups)) = applier {
                edge = edge.with_verdict(self.decide_namespace_change(name, stored, holder, groups));
            }
            self.add_edge(node, edge);
        }
        applier.is_none()
    }

    fn expand_everything(&mut self, scope: &Scope) {
        let all = |name: &'static str| Edge::new(name, "* *.*", "");
        self.add_edge(Node::Pods(scope.clone()), all("create-pods"));
        self.add_edge(Node::RunningPods(scope.clone()), all("enter-pods"));
        self.add_edge(Node::Secrets(scope.clone()), all("read-secrets"));
        self.add_edge(Node::Tokens(scope.clone()), all("create-token"));
        self.add_edge(Node::NewAccounts(scope.clone()), all("create-serviceaccounts"));
        self.reach_deputies(scope, |_| true, &all("write-deputy"));
        self.feed_lanes(scope, &all("take-over-lane"));
        if *scope == Scope::Cluster {
            self.reach_nodes(all("proxy-nodes"));
            self.add_edge(Node::EveryUser, all("impersonate"));
            self.add_edge(Node::EveryGroup, all("impersonate"));
            self.add_edge(Node::Admission, all("change-admission"));
            let cluster = self.cluster;
            for namespace in cluster.missing_namespaces.keys() {
                self.add_edge(Node::NewNamespace(namespace.clone()), all("create-namespace"));
            }
            for provider in &cluster.providers {
                self.add_edge(
                    Node::Credential(format!("AccessProvider/{}", provider.name)),
                    all("read-secrets"),
                );
            }
        }
    }

    fn expand_pods(&mut self, scope: &Scope) {
        self.reach_accounts(scope, "pod-account", "");
        let edge = Edge::new("mount-secret", "", "");
        self.add_edge(Node::Secrets(scope.clone()), edge);
        self.reach_missing_accounts("pods", scope);
        self.combine_new_namespaces("pods", scope);
        let cluster = self.cluster;
        let open = list_in_scope(&cluster.namespaces, scope)
            .into_iter()
            .map(|(namespace, _)| namespace)
            .find(|namespace| cluster.find_pod_security(namespace).is_none());
        let named = scope
            .namespace()
            .is_some_and(|namespace| !cluster.namespaces.contains_key(namespace));
        if let Some(namespace) = open {
            self.reach_nodes(Edge::new(
                "privileged-pod",
                "",
                format!("no Pod Security level in namespace {namespace}"),
            ));
        } else if !named {
            let judge = WriteCheck {
                name: "PodSecurity".to_owned(),
                when_dead: FailurePolicy::Holds,
            };
            self.reach_nodes(Edge::new("privileged-pod", "", "").with_verdict(Verdict::Denied(judge)));
        }
        for (_, other) in self.combine_scopes("pods", scope, "namespace-labels") {
            if let Some(name) = other.namespace() {
                let with = Node::NamespaceLabels(other.clone(), name.to_owned());
                self.reach_nodes(
                    Edge::new("pod-security-label", "patch namespaces", format!("Namespace/{name}")).with_node(with),
                );
            }
        }
        if !self.combine_scopes("pods", scope, "volumes").is_empty() {
            self.reach_nodes(Edge::new("host-path-volume", "create persistentvolumes", "").with_node(Node::Volumes));
        }
    }

    /// Adds an edge to an account that a written object can name. If a lane reconciles the object, the lane requests the account's
    /// token.
    pub(crate) fn add_identity(&mut self, namespace: &str, name: &str, group: &str) {
        let cluster = self.cluster;
        let node = Node::account(namespace, name);
        let lanes = cluster
            .lanes
            .get(namespace)
            .filter(|_| LANE_GROUPS.iter().any(|(known, _)| *known == group));
        let lane = lanes.and_then(|lanes| lanes.first());
        let mut edge = Edge::new("act-as-account", "", "");
        if let Some(lane) = lane
            && !self.is_done(&node)
            && cluster.admission.checks_resource("", "serviceaccounts/token")
        {
            let verdict = self.decide_admission(
                &attack_writes::make_token_request(namespace, name),
                lane,
                &lane.list_groups(),
            );
            edge = edge.with_verdict(verdict);
            edge.by = lane.to_string();
        }
        self.add_edge(node, edge);
    }

    /// Adds new namespaces if the subject can also create namespaces, and has the ability `sort` in all of them.
    fn combine_new_namespaces(&mut self, sort: &'static str, scope: &Scope) {
        if scope.namespace().is_none() && !self.combine_scopes(sort, scope, "new-namespaces").is_empty() {
            self.reach_new_namespaces(&Node::NewNamespaces);
        }
    }

    fn expand_running_pods(&mut self, scope: &Scope) {
        self.go_to_runners(scope, &Names::All, Edge::new("pod-account", "", ""));
    }

    /// Adds edges to the accounts of running Pods and workloads. If `names` lists Pods, adds only the accounts of those Pods.
    fn go_to_runners(&mut self, scope: &Scope, names: &Names, edge: Edge) {
        if *names == Names::All && edge.name != "pod-account" {
            self.add_edge(Node::RunningPods(scope.clone()), edge);
            return;
        }
        let cluster = self.cluster;
        for (namespace, runners) in list_in_scope(&cluster.runners, scope) {
            let known = runners
                .iter()
                .filter(|runner| *names == Names::All || (!runner.pod.is_empty() && names.includes_name(&runner.pod)));
            for runner in known {
                let mut edge = edge.clone();
                if edge.by.is_empty() {
                    edge.by.clone_from(&runner.label);
                }
                if runner.is_privileged {
                    self.reach_nodes(edge.clone());
                }
                self.add_edge(Node::account(namespace, &runner.account), edge);
            }
        }
    }

    fn expand_nodes(&mut self) {
        match self.cluster.nodes {
            Nodes::ControlPlane => {
                let edge = Edge::new("control-plane-node", "", "Node with the control plane");
                self.add_edge(Node::Everything(Scope::Cluster), edge);
            }
            Nodes::Unknown => {
                let edge = Edge::new("control-plane-node", "", "nodes could not be read");
                self.add_edge(Node::Everything(Scope::Cluster), edge);
            }
            Nodes::Workers | Nodes::Missing => {}
        }
        self.go_to_runners(&Scope::EveryNamespace, &Names::All, Edge::new("pod-account", "", ""));
    }

    /// Adds an edge to the hosts of nodes, if the cluster has nodes.
    fn reach_nodes(&mut self, edge: Edge) {
        if self.cluster.nodes != Nodes::Missing {
            self.add_edge(Node::Nodes, edge);
        }
    }

    /// Adds edges to every user and to the nodes, if the subject can both request certificates and approve them.
    fn expand_certificates(&mut self) {
        let (requests, approval) = (
            self.find(&Node::CertificateRequests),
            self.find(&Node::CertificateApproval),
        );
        let kubelets = self.find(&Node::NodeCertificateApproval);
        let edge = || Edge::new("client-certificate", "", "").with_node(Node::CertificateRequests);
        if requests.is_some() {
            if let Some(approval) = approval {
                self.add_edge_from(approval, Node::EveryUser, edge());
                self.add_edge_from(approval, Node::EveryGroup, edge());
            }
            if let Some(kubelets) = kubelets
                && self.cluster.nodes != Nodes::Missing
            {
                self.add_edge_from(kubelets, Node::Nodes, edge());
            }
        }
    }

    fn expand_every_user(&mut self) {
        let cluster = self.cluster;
        let users = cluster
            .bindings
            .keys()
            .filter(|known| matches!(known, Identity::User(_)));
        for user in users {
            self.add_edge(Node::Identity(user.clone()), Edge::new("impersonate", "", "any user"));
        }
        self.reach_accounts_by(&Scope::Cluster, &Edge::new("impersonate", "", "any user"));
    }

    fn expand_custom_resources(&mut self) {
        let cluster = self.cluster;
        let is_served = |deputy: &ActingKind| cluster.custom_groups.iter().any(|group| group == deputy.group);
        let edge = Edge::new("write-deputy", "", "every custom resource");
        self.reach_deputies(&Scope::EveryNamespace, is_served, &edge);
    }

    /// Checks whether an identity is the ServiceAccount of a lane.
    pub(crate) fn is_lane(identity: &Identity) -> bool {
        matches!(identity, Identity::Account { name, .. } if name.starts_with(LANE_PREFIX))
    }
}
