//! The part of a cluster that gives authority: read once from objects, with indexes for the search.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use kubernetes_cel::{Check, Stage};
use serde_json::Value;

use crate::admission::Admission;
use crate::coverage::Coverage;
use crate::kinds::{
    ADMISSION, CHART_NAMESPACE, HELM_BINDING, LANE_BINDING, LANE_LABEL, LANE_PREFIX, PACKAGE_GROUP, POD_SECURITY_LABEL,
    RBAC, SECRET_WRITER, TENANT_GROUP, TENANT_LABEL,
};
use crate::node::{ACCOUNTS_PREFIX, Identity, Scope};
use crate::object::{list_texts, read_annotation, read_group, read_label, read_list, read_text};
use crate::pod_facts::is_privileged;
use crate::powers::{Granted, Power, list_powers};
use crate::rules::{Names, RequestedRight, Rule, covers_rule, is_aggregated};

/// A Role or a ClusterRole.
pub(crate) struct Role {
    pub(crate) label: String,
    pub(crate) rules: Vec<Rule>,
    pub(crate) powers: Vec<Granted>,
    /// True if some of the powers need another right of the same identity.
    pub(crate) combines_rights: bool,
}

/// A role that a RoleBinding or ClusterRoleBinding gives a subject, with the scope where its rules hold.
pub(crate) struct Binding {
    pub(crate) label: String,
    pub(crate) role: usize,
    pub(crate) scope: Scope,
}

/// A Pod or workload that runs as a ServiceAccount.
pub(crate) struct Runner {
    pub(crate) label: String,
    /// The name of the Pod. Empty for workloads.
    pub(crate) pod: String,
    pub(crate) account: String,
    pub(crate) is_privileged: bool,
}

/// A running controller of Flux or Argo CD, which acts for the authors of objects.
pub(crate) struct Controller {
    pub(crate) namespace: String,
    pub(crate) account: String,
    pub(crate) is_locked_down: bool,
}

/// The owners and namespaces of a Tenant.
#[derive(Default)]
pub(crate) struct Tenant {
    pub(crate) owners: Vec<Identity>,
    pub(crate) namespaces: BTreeSet<String>,
    pub(crate) uid: String,
}

/// The fields of an AccessProvider that say who can obtain its credentials: namespaces by pattern, tenants, and the account that
/// writes the Secrets.
pub(crate) struct Provider {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) patterns: Vec<String>,
    pub(crate) tenants: Vec<String>,
    pub(crate) writer: String,
}

/// The knowledge about the cluster's nodes: whether nodes exist, and whether the control plane runs on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// The nodes could not be read.
    Unknown,
    /// The cluster has no nodes.
    Missing,
    /// Only workers: the control plane runs elsewhere.
    Workers,
    /// A node runs the control plane.
    ControlPlane,
}

/// The objects of a cluster that give authority, with indexes for the search.
pub struct Cluster {
    pub(crate) roles: Vec<Role>,
    pub(crate) role_index: HashMap<String, usize>,
    pub(crate) bindings: BTreeMap<Identity, Vec<Binding>>,
    pub(crate) namespaces: BTreeMap<String, Value>,
    pub(crate) accounts: BTreeMap<String, BTreeSet<String>>,
    /// ServiceAccounts that a binding or a Tenant names and that do not exist, with the object that names each.
    pub(crate) missing_accounts: BTreeMap<String, BTreeMap<String, String>>,
    /// Namespaces that do not exist, and the object that names each.
    pub(crate) missing_namespaces: BTreeMap<String, String>,
    /// The account of each Secret with a token, by namespace and name of the Secret.
    pub(crate) token_secrets: BTreeMap<String, BTreeMap<String, String>>,
    /// The Pods and workloads of each namespace.
    pub(crate) runners: BTreeMap<String, Vec<Runner>>,
    pub(crate) tenants: BTreeMap<String, Tenant>,
    pub(crate) controllers: BTreeMap<&'static str, Vec<Controller>>,
    /// The accounts of the lanes that reconcile each namespace.
    pub(crate) lanes: BTreeMap<String, BTreeSet<Identity>>,
    /// The namespaces with sources of the platform's charts.
    pub(crate) chart_namespaces: BTreeSet<String>,
    pub(crate) providers: Vec<Provider>,
    /// The names of the FluxAccessTargets.
    pub(crate) targets: Vec<String>,
    /// The API groups with a CustomResourceDefinition.
    pub(crate) custom_groups: Vec<String>,
    pub(crate) nodes: Nodes,
    pub(crate) admission: Admission,
    /// The kinds and roles that could not be read, as texts for the report.
    pub(crate) unknown: BTreeSet<String>,
}

impl Cluster {
    /// Reads objects of any kinds. Kinds without authority and values of Secrets are skipped.
    #[must_use]
    pub fn read(objects: &[Value], coverage: &Coverage) -> Self {
        let by_kind = index_kinds(objects);
        let select_kind = |group: &'static str, kind: &'static str| {
            by_kind.get(&(group, kind)).map(Vec::as_slice).unwrap_or_default()
        };
        let mut cluster = Self {
            roles: Vec::new(),
            role_index: HashMap::new(),
            bindings: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            accounts: BTreeMap::new(),
            missing_accounts: BTreeMap::new(),
            missing_namespaces: BTreeMap::new(),
            token_secrets: BTreeMap::new(),
            runners: BTreeMap::new(),
            tenants: BTreeMap::new(),
            controllers: BTreeMap::new(),
            lanes: BTreeMap::new(),
            chart_namespaces: BTreeSet::from([CHART_NAMESPACE.to_owned()]),
            providers: Vec::new(),
            targets: Vec::new(),
            custom_groups: Vec::new(),
            nodes: read_nodes(select_kind("", "Node"), coverage),
            admission: Admission::read(
                select_kind(ADMISSION, "ValidatingAdmissionPolicy"),
                select_kind(ADMISSION, "ValidatingAdmissionPolicyBinding"),
                select_kind(ADMISSION, "ValidatingWebhookConfiguration"),
            )
            .with_guard(coverage.guard.as_deref()),
            unknown: coverage.unread.clone(),
        };
        cluster.read_roles(select_kind(RBAC, "ClusterRole"), select_kind(RBAC, "Role"));
        for namespace in select_kind("", "Namespace") {
            let name = read_text(namespace, "/metadata/name");
            cluster.namespaces.insert(name.to_owned(), keep_metadata(namespace));
            cluster.add_account(name, "default");
        }
        for account in select_kind("", "ServiceAccount") {
            let namespace = read_text(account, "/metadata/namespace");
            cluster.add_account(namespace, read_text(account, "/metadata/name"));
        }
        cluster.read_tenants(select_kind(TENANT_GROUP, "Tenant"));
        cluster.read_bindings(select_kind(RBAC, "ClusterRoleBinding"), Scope::Cluster);
        cluster.read_bindings(select_kind(RBAC, "RoleBinding"), Scope::EveryNamespace);
        cluster.read_secrets(select_kind("", "Secret"));
        cluster.read_runners(&by_kind);
        for provider in select_kind("tenure.dev", "AccessProvider") {
            let writer = read_text(provider, "/spec/writerServiceAccountName");
            cluster.providers.push(Provider {
                name: read_text(provider, "/metadata/name").to_owned(),
                namespace: read_text(provider, "/metadata/namespace").to_owned(),
                patterns: list_texts(provider, "/spec/namespaces"),
                tenants: list_texts(provider, "/spec/tenants"),
                writer: if writer.is_empty() { SECRET_WRITER } else { writer }.to_owned(),
            });
        }
        for source in select_kind(PACKAGE_GROUP, "PackageSource") {
            let namespace = read_text(source, "/spec/sourceRef/namespace");
            cluster.chart_namespaces.insert(namespace.to_owned());
        }
        for target in select_kind("tenure.dev", "FluxAccessTarget") {
            cluster.targets.push(read_text(target, "/metadata/name").to_owned());
        }
        let custom = select_kind("apiextensions.k8s.io", "CustomResourceDefinition");
        let groups = custom
            .iter()
            .filter_map(|kind| read_text(kind, "/metadata/name").split_once('.'));
        let groups: BTreeSet<String> = groups.map(|(_, group)| group.to_owned()).collect();
        cluster.custom_groups = groups.into_iter().collect();
        if coverage.has("serviceaccounts") && coverage.has("namespaces") {
            cluster.find_missing();
        }
        cluster
    }

    fn add_account(&mut self, namespace: &str, name: &str) {
        if let Some(accounts) = self.accounts.get_mut(namespace) {
            accounts.insert(name.to_owned());
        } else {
            self.accounts
                .insert(namespace.to_owned(), BTreeSet::from([name.to_owned()]));
        }
    }

    fn read_roles(&mut self, cluster_roles: &[&Value], roles: &[&Value]) {
        // Only rules of directly selected ClusterRoles are added. If a selected ClusterRole is itself an aggregate,
        // Kubernetes' controller has already filled its rules.
        for role in cluster_roles {
            let name = read_text(role, "/metadata/name");
            let mut rules: Vec<Rule> = read_list(role, "/rules").iter().map(Rule::read).collect();
            let selectors = read_list(role, "/aggregationRule/clusterRoleSelectors");
            if !selectors.is_empty() && rules.is_empty() {
                let nothing = Value::Null;
                let parts = cluster_roles
                    .iter()
                    .filter(|part| is_aggregated(selectors, part.pointer("/metadata/labels").unwrap_or(&nothing)));
                rules = parts
                    .flat_map(|part| read_list(part, "/rules"))
                    .map(Rule::read)
                    .collect();
                rules.sort();
                rules.dedup();
            }
            self.add_role(format!("ClusterRole/{name}"), rules);
        }
        for role in roles {
            let namespace = read_text(role, "/metadata/namespace");
            let name = read_text(role, "/metadata/name");
            let rules = read_list(role, "/rules").iter().map(Rule::read).collect();
            self.add_role(format!("Role/{namespace}/{name}"), rules);
        }
        // A right to bind a role that does not exist leads nowhere, so such names are removed.
        let names: HashSet<String> = self
            .role_index
            .keys()
            .filter_map(|label| Some(label.strip_prefix("Role/")?.split_once('/')?.1.to_owned()))
            .collect();
        let index = &self.role_index;
        for granted in self.roles.iter_mut().flat_map(|role| &mut role.powers) {
            match (granted.power, &mut granted.names) {
                (Power::BindClusterRoles, Names::Some(bound)) => {
                    bound.retain(|name| index.contains_key(&format!("ClusterRole/{name}")));
                }
                (Power::BindRoles, Names::Some(bound)) => bound.retain(|name| names.contains(name)),
                _ => {}
            }
        }
    }

    fn add_role(&mut self, label: String, rules: Vec<Rule>) {
        self.role_index.insert(label.clone(), self.roles.len());
        let powers = list_powers(&rules);
        self.roles.push(Role {
            combines_rights: powers.iter().any(|granted| granted.power.needs_another()),
            powers,
            label,
            rules,
        });
    }

    fn read_bindings(&mut self, bindings: &[&Value], scope: Scope) {
        for binding in bindings {
            let name = read_text(binding, "/metadata/name");
            let namespace = read_text(binding, "/metadata/namespace");
            let (label, scope) = match scope {
                Scope::Cluster => (format!("ClusterRoleBinding/{name}"), Scope::Cluster),
                _ => (
                    format!("RoleBinding/{namespace}/{name}"),
                    Scope::of_namespace(namespace),
                ),
            };
            let role = read_text(binding, "/roleRef/name");
            let role = match read_text(binding, "/roleRef/kind") {
                "Role" => format!("Role/{namespace}/{role}"),
                _ => format!("ClusterRole/{role}"),
            };
            let subjects: BTreeSet<Identity> = read_list(binding, "/subjects")
                .iter()
                .filter_map(|subject| read_subject(subject, namespace))
                .collect();
            if name == HELM_BINDING && scope == Scope::Cluster {
                self.add_supervised_controller(&subjects);
            }
            if name == LANE_BINDING && !self::read_label(binding, LANE_LABEL).is_empty() {
                let is_lane = |identity: &&Identity| matches!(identity, Identity::Account { name, .. } if name.starts_with(LANE_PREFIX));
                let lanes: Vec<Identity> = subjects.iter().filter(is_lane).cloned().collect();
                self.lanes.entry(namespace.to_owned()).or_default().extend(lanes);
            }
            let Some(&role) = self.role_index.get(&role) else {
                // The subjects stay known although the role is missing: another binding or a re-created role may give them
                // rights.
                for subject in subjects {
                    self.bindings.entry(subject).or_default();
                }
                self.unknown.insert(format!("{role}, which {label} names"));
                continue;
            };
            for subject in subjects {
                self.bindings.entry(subject).or_default().push(Binding {
                    label: label.clone(),
                    role,
                    scope: scope.clone(),
                });
            }
        }
    }

    fn read_tenants(&mut self, tenants: &[&Value]) {
        let mut labelled: HashMap<String, BTreeSet<String>> = HashMap::new();
        for (name, namespace) in &self.namespaces {
            let tenant = read_label(namespace, TENANT_LABEL);
            if !tenant.is_empty() {
                labelled.entry(tenant.to_owned()).or_default().insert(name.clone());
            }
        }
        for tenant in tenants {
            let name = read_text(tenant, "/metadata/name").to_owned();
            let mut read = Tenant {
                uid: read_text(tenant, "/metadata/uid").to_owned(),
                ..Tenant::default()
            };
            for owner in read_list(tenant, "/spec/owners") {
                let name = read_text(owner, "/name");
                read.owners.push(match read_text(owner, "/kind") {
                    "Group" => Identity::Group(name.to_owned()),
                    _ => Identity::from_user_name(name),
                });
            }
            // The labels of namespaces count only if the Tenant was exported without its status, which records its
            // namespaces.
            if tenant.get("status").is_some() {
                read.namespaces = list_texts(tenant, "/status/namespaces").into_iter().collect();
                let spaces = read_list(tenant, "/status/spaces").iter();
                read.namespaces
                    .extend(spaces.map(|space| read_text(space, "/name").to_owned()));
            } else {
                read.namespaces = labelled.remove(&name).unwrap_or_default();
            }
            self.tenants.insert(name, read);
        }
    }

    /// Records the ServiceAccount of each Secret with a token.
    fn read_secrets(&mut self, secrets: &[&Value]) {
        for secret in secrets {
            let account = read_annotation(secret, "kubernetes.io/service-account.name");
            if !account.is_empty() {
                self.token_secrets
                    .entry(read_text(secret, "/metadata/namespace").to_owned())
                    .or_default()
                    .insert(read_text(secret, "/metadata/name").to_owned(), account.to_owned());
            }
        }
    }

    /// Records the ServiceAccount of each Pod and workload.
    fn read_runners(&mut self, by_kind: &HashMap<(&str, &str), Vec<&Value>>) {
        for (group, kind, pod) in [
            ("", "Pod", ""),
            ("", "ReplicationController", "/spec/template"),
            ("apps", "Deployment", "/spec/template"),
            ("apps", "ReplicaSet", "/spec/template"),
            ("apps", "StatefulSet", "/spec/template"),
            ("apps", "DaemonSet", "/spec/template"),
            ("batch", "Job", "/spec/template"),
            ("batch", "CronJob", "/spec/jobTemplate/spec/template"),
        ] {
            for object in by_kind.get(&(group, kind)).into_iter().flatten() {
                let Some(spec) = object.pointer(&format!("{pod}/spec")) else {
                    continue;
                };
                let namespace = read_text(object, "/metadata/namespace");
                let name = read_text(object, "/metadata/name");
                let account = match read_text(spec, "/serviceAccountName") {
                    "" => "default",
                    account => account,
                };
                self.read_controller(object, spec, namespace, account);
                self.runners.entry(namespace.to_owned()).or_default().push(Runner {
                    label: format!("{kind}/{namespace}/{name}"),
                    pod: if kind == "Pod" { name.to_owned() } else { String::new() },
                    account: account.to_owned(),
                    is_privileged: is_privileged(spec),
                });
            }
        }
    }

    /// Finds ServiceAccounts and namespaces that bindings or Tenants name and that do not exist. The creator of such an
    /// object inherits the rights of its name.
    fn find_missing(&mut self) {
        let mut accounts: Vec<(String, String, String)> = Vec::new();
        let mut namespaces: Vec<(String, String)> = Vec::new();
        for (identity, bindings) in &self.bindings {
            let by = bindings.first().map_or("a binding", |binding| binding.label.as_str());
            match identity {
                Identity::Account { namespace, name } => {
                    accounts.push((namespace.clone(), name.clone(), by.to_owned()))
                }
                Identity::Group(group) => {
                    if let Some(namespace) = group.strip_prefix(ACCOUNTS_PREFIX) {
                        namespaces.push((namespace.to_owned(), by.to_owned()));
                    }
                }
                Identity::User(_) => {}
            }
        }
        for (tenant, read) in &self.tenants {
            for owner in &read.owners {
                if let Identity::Account { namespace, name } = owner {
                    accounts.push((namespace.clone(), name.clone(), format!("Tenant/{tenant}")));
                }
            }
        }
        accounts.sort();
        for (namespace, name, by) in accounts {
            if self.accounts.get(&namespace).is_some_and(|known| known.contains(&name)) {
                continue;
            }
            if !self.namespaces.contains_key(&namespace) {
                namespaces.push((namespace.clone(), by.clone()));
            }
            self.missing_accounts
                .entry(namespace)
                .or_default()
                .entry(name)
                .or_insert(by);
        }
        namespaces.sort();
        for (namespace, by) in namespaces {
            if !namespace.is_empty() && !self.namespaces.contains_key(&namespace) {
                self.missing_namespaces.entry(namespace).or_insert(by);
            }
        }
    }

    /// Checks whether a binding gives rights that combine with others of the same identity.
    pub(crate) fn combines_rights(&self, binding: &Binding) -> bool {
        self.roles.get(binding.role).is_some_and(|role| role.combines_rights)
    }

    /// Returns the bindings of an identity and of its groups, its own first.
    pub(crate) fn list_bindings<'a>(&'a self, identity: &'a Identity, groups: &[String]) -> Vec<&'a Binding> {
        let mut found: Vec<&Binding> = self.bindings.get(identity).into_iter().flatten().collect();
        for group in groups {
            let group = Identity::Group(group.clone());
            if group != *identity {
                found.extend(self.bindings.get(&group).into_iter().flatten());
            }
        }
        found
    }

    /// Checks whether RBAC allows a request of an identity.
    pub(crate) fn is_allowed(
        &self,
        identity: &Identity,
        groups: &[String],
        scope: &Scope,
        asked: &RequestedRight<'_>,
    ) -> bool {
        if groups.iter().any(|group| group == "system:masters") {
            return true;
        }
        self.list_bindings(identity, groups).into_iter().any(|binding| {
            let holds = match scope {
                Scope::Namespace(namespace) => binding.scope.includes_namespace(namespace),
                Scope::Cluster | Scope::EveryNamespace => binding.scope == Scope::Cluster,
            };
            holds
                && self
                    .roles
                    .get(binding.role)
                    .is_some_and(|role| role.rules.iter().any(|rule| rule.allows(asked)))
        })
    }

    /// Checks whether an identity holds all rules of a role in a namespace.
    pub(crate) fn holds_role(&self, bindings: &[&Binding], namespace: &str, role: &Role) -> bool {
        let held: Vec<&Rule> = bindings
            .iter()
            .filter(|binding| binding.scope.includes_namespace(namespace))
            .filter_map(|binding| self.roles.get(binding.role))
            .flat_map(|role| &role.rules)
            .collect();
        role.rules.iter().all(|rule| covers_rule(&held, rule))
    }

    /// Returns RBAC's answer to a check by the `authorizer` of a CEL expression.
    pub(crate) fn answer_check(&self, identity: &Identity, groups: &[String], check: &Check) -> bool {
        if check.stage != Stage::Resource {
            return false;
        }
        let resource = if check.subresource.is_empty() {
            check.resource.clone()
        } else {
            format!("{}/{}", check.resource, check.subresource)
        };
        let scope = if check.namespace.is_empty() {
            Scope::Cluster
        } else {
            Scope::of_namespace(&check.namespace)
        };
        let asked = RequestedRight {
            verb: &check.verb,
            group: &check.group,
            resource: &resource,
            name: &check.name,
        };
        match &check.service_account {
            Some((namespace, name)) => {
                let account = Identity::account(namespace, name);
                self.is_allowed(&account, &account.list_groups(), &scope, &asked)
            }
            None => self.is_allowed(identity, groups, &scope, &asked),
        }
    }

    /// Returns the Pod Security level that keeps Pods of a namespace from its nodes, if it has one.
    pub(crate) fn find_pod_security(&self, namespace: &str) -> Option<&str> {
        let level = read_label(self.namespaces.get(namespace)?, POD_SECURITY_LABEL);
        matches!(level, "baseline" | "restricted").then_some(level)
    }
}

fn index_kinds(objects: &[Value]) -> HashMap<(&str, &str), Vec<&Value>> {
    let mut by_kind: HashMap<(&str, &str), Vec<&Value>> = HashMap::new();
    for object in objects {
        let kind = (read_group(object), read_text(object, "/kind"));
        by_kind.entry(kind).or_default().push(object);
    }
    by_kind
}

fn read_nodes(nodes: &[&Value], coverage: &Coverage) -> Nodes {
    if !coverage.has("nodes") {
        return Nodes::Unknown;
    }
    let labels = |node: &&&Value| node.pointer("/metadata/labels").and_then(Value::as_object).cloned();
    let is_control_plane = |node: &&Value| {
        labels(&node).is_some_and(|labels| {
            ["control-plane", "master", "etcd"]
                .iter()
                .any(|role| labels.contains_key(&format!("node-role.kubernetes.io/{role}")))
        })
    };
    match nodes {
        [] => Nodes::Missing,
        nodes if nodes.iter().any(is_control_plane) => Nodes::ControlPlane,
        _ => Nodes::Workers,
    }
}

fn keep_metadata(object: &Value) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or(Value::Null);
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("managedFields");
    }
    serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata })
}

fn read_subject(subject: &Value, namespace: &str) -> Option<Identity> {
    let name = read_text(subject, "/name");
    match read_text(subject, "/kind") {
        "User" => Some(Identity::from_user_name(name)),
        "Group" => Some(Identity::Group(name.to_owned())),
        "ServiceAccount" => {
            let own = read_text(subject, "/namespace");
            Some(Identity::account(if own.is_empty() { namespace } else { own }, name))
        }
        _ => None,
    }
}
