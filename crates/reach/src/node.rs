//! The nodes of the graph: identities, and abilities of an identity as a whole.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

/// A subject of RBAC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// A user by name.
    User(String),
    /// A group by name.
    Group(String),
    /// A ServiceAccount.
    Account {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The prefix of the user names of ServiceAccounts.
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// The prefix of the groups of all ServiceAccounts of a namespace.
pub(crate) const ACCOUNTS_PREFIX: &str = "system:serviceaccounts:";

impl Identity {
    /// Returns the identity with a user name. The user name of a ServiceAccount gives that
    /// ServiceAccount.
    #[must_use]
    pub fn from_user_name(name: &str) -> Self {
        let account = name.strip_prefix(ACCOUNT_PREFIX).and_then(|rest| rest.split_once(':'));
        match account {
            Some((namespace, name)) => Self::account(namespace, name),
            None => Self::User(name.to_owned()),
        }
    }

    pub(crate) fn account(namespace: &str, name: &str) -> Self {
        Self::Account {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn user_name(&self) -> String {
        match self {
            Self::User(name) => name.clone(),
            Self::Group(_) => String::new(),
            Self::Account { namespace, name } => format!("{ACCOUNT_PREFIX}{namespace}:{name}"),
        }
    }

    /// Returns the groups that the API server adds.
    pub(crate) fn list_groups(&self) -> Vec<String> {
        let mut groups = vec!["system:authenticated".to_owned()];
        match self {
            Self::User(name) if name == "system:anonymous" => return vec!["system:unauthenticated".to_owned()],
            Self::User(_) => {}
            Self::Group(name) => groups.push(name.clone()),
            Self::Account { namespace, .. } => {
                groups.push("system:serviceaccounts".to_owned());
                groups.push(format!("{ACCOUNTS_PREFIX}{namespace}"));
            }
        }
        groups
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user {name}"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::Account { namespace, name } => write!(f, "serviceaccount {namespace}/{name}"),
        }
    }
}

/// The scope of a right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// In the cluster: cluster-scoped resources, and those of all namespaces.
    Cluster,
    /// In every namespace, but not on cluster-scoped resources.
    EveryNamespace,
    /// In one namespace.
    Namespace(String),
}

impl Scope {
    pub(crate) fn of_namespace(name: &str) -> Self {
        Self::Namespace(name.to_owned())
    }

    /// Returns the namespace, if the scope is a single one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Namespace(name) => Some(name),
            Self::Cluster | Self::EveryNamespace => None,
        }
    }

    pub(crate) fn includes_namespace(&self, namespace: &str) -> bool {
        self.namespace().is_none_or(|own| own == namespace)
    }

    /// Returns the common part of two scopes.
    pub(crate) fn intersect(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Namespace(one), Self::Namespace(another)) => (one == another).then(|| self.clone()),
            (Self::Namespace(_), _) => Some(self.clone()),
            (_, Self::Namespace(_)) => Some(other.clone()),
            (Self::Cluster, Self::Cluster) => Some(Self::Cluster),
            _ => Some(Self::EveryNamespace),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster"),
            Self::EveryNamespace => f.write_str("every namespace"),
            Self::Namespace(name) => write!(f, "namespace {name}"),
        }
    }
}

/// A node of the graph.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A tenant: its owners, and the ServiceAccounts of its namespaces.
    Tenant(String),
    /// An identity as which requests can be made.
    Identity(Identity),
    /// A role that the subject's identity has where it created a binding.
    Role {
        /// The identity that the binding names.
        holder: Identity,
        /// The role, as `ClusterRole/admin` or `Role/a/b`.
        role: String,
        /// The scope of the binding.
        scope: Scope,
    },
    /// Every right: in the cluster, the rights of cluster-admin.
    Everything(Scope),
    /// Pods with any ServiceAccount and any Secret of the namespace.
    Pods(Scope),
    /// The running Pods.
    RunningPods(Scope),
    /// Tokens of the ServiceAccounts.
    Tokens(Scope),
    /// The values of Secrets.
    Secrets(Scope),
    /// The value of one Secret.
    Secret {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The network of Pods and Services, through the API server.
    Network(Scope),
    /// The nodes' hosts.
    Nodes,
    /// New Secrets.
    NewSecrets(Scope),
    /// New ServiceAccounts.
    NewAccounts(Scope),
    /// A namespace that does not exist yet, with the rights that already name it.
    NewNamespace(String),
    /// New namespaces of any name.
    NewNamespaces,
    /// The labels of a namespace.
    NamespaceLabels(Scope, String),
    /// New PersistentVolumes, of any path of a host.
    Volumes,
    /// New CertificateSigningRequests.
    CertificateRequests,
    /// Approval of CertificateSigningRequests for clients.
    CertificateApproval,
    /// Approval of CertificateSigningRequests for nodes.
    NodeCertificateApproval,
    /// Every user that a binding names.
    EveryUser,
    /// Every group that a binding names.
    EveryGroup,
    /// Every object of a custom kind.
    CustomResources,
    /// Policies and validating webhooks: the subject can remove them.
    Admission,
    /// Objects of a kind, whose controller acts for their author.
    Deputies {
        /// The resource, as `kustomizations.kustomize.toolkit.fluxcd.io`.
        resource: String,
        /// The scope.
        scope: Scope,
    },
    /// Objects of a kind for which a controller acts as its own account, such as a HelmRelease without an account.
    FreeDeputies {
        /// The resource, as `helmreleases.helm.toolkit.fluxcd.io`.
        resource: String,
        /// The scope.
        scope: Scope,
    },
    /// A request for a credential, by an identity.
    AccessRequest(Identity),
    /// An approval of requests for the credential of a target, by an identity.
    AccessApproval(Identity, String),
    /// A credential of a Git host.
    Credential(String),
}

impl Node {
    pub(crate) fn account(namespace: &str, name: &str) -> Self {
        Self::Identity(Identity::account(namespace, name))
    }

    /// Returns the identity, if the node is one.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Identity(identity) => Some(identity),
            _ => None,
        }
    }

    /// Checks whether the node has every right in the cluster.
    #[must_use]
    pub fn is_cluster_admin(&self) -> bool {
        matches!(self, Self::Everything(Scope::Cluster))
    }

    /// Returns the sort of the node, one word.
    #[must_use]
    pub fn sort(&self) -> &'static str {
        match self {
            Self::Tenant(_) => "tenant",
            Self::Identity(Identity::User(_)) => "user",
            Self::Identity(Identity::Group(_)) => "group",
            Self::Identity(Identity::Account { .. }) => "serviceaccount",
            Self::Everything(_) => "everything",
            Self::Credential(_) => "credential",
            Self::Secret { .. } | Self::Secrets(_) => "secrets",
            Self::Nodes => "nodes",
            _ => "ability",
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(name) => write!(f, "tenant {name}"),
            Self::Identity(identity) => identity.fmt(f),
            Self::Role { holder, role, scope } => write!(f, "{role} in {scope} as {holder}"),
            Self::Everything(Scope::Cluster) => f.write_str("cluster-admin"),
            Self::Everything(scope) => write!(f, "every right in {scope}"),
            Self::Pods(scope) => write!(f, "new Pods in {scope}"),
            Self::RunningPods(scope) => write!(f, "running Pods in {scope}"),
            Self::Tokens(scope) => write!(f, "tokens in {scope}"),
            Self::Secrets(scope) => write!(f, "Secrets in {scope}"),
            Self::Secret { namespace, name } => write!(f, "Secret {namespace}/{name}"),
            Self::Network(scope) => write!(f, "network of Pods in {scope}"),
            Self::Nodes => f.write_str("nodes"),
            Self::NewSecrets(scope) => write!(f, "new Secrets in {scope}"),
            Self::NewAccounts(scope) => write!(f, "new ServiceAccounts in {scope}"),
            Self::NewNamespace(name) => write!(f, "new namespace {name}"),
            Self::NewNamespaces => f.write_str("new namespaces"),
            Self::NamespaceLabels(_, name) => write!(f, "labels of namespace {name}"),
            Self::Volumes => f.write_str("new PersistentVolumes"),
            Self::CertificateRequests => f.write_str("new CertificateSigningRequests"),
            Self::CertificateApproval => f.write_str("approval of client certificates"),
            Self::NodeCertificateApproval => f.write_str("approval of node certificates"),
            Self::EveryUser => f.write_str("every user"),
            Self::EveryGroup => f.write_str("every group"),
            Self::CustomResources => f.write_str("every custom resource"),
            Self::Admission => f.write_str("admission policies and webhooks"),
            Self::Deputies { resource, scope } => write!(f, "{resource} in {scope}"),
            Self::FreeDeputies { resource, scope } => write!(f, "{resource} in {scope}, with the controller's rights"),
            Self::AccessRequest(by) => write!(f, "access requests of {by}"),
            Self::AccessApproval(by, target) => write!(f, "approval of {target} by {by}"),
            Self::Credential(of) => write!(f, "credential of {of}"),
        }
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns the entries of a map by namespace that a scope includes. A single namespace is looked up: a map may
/// have thousands.
pub(crate) fn list_in_scope<'m, T>(map: &'m BTreeMap<String, T>, scope: &Scope) -> Vec<(&'m String, &'m T)> {
    match scope.namespace() {
        Some(namespace) => map.get_key_value(namespace).into_iter().collect(),
        None => map.iter().collect(),
    }
}
