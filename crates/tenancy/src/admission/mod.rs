//! What somebody wants to write, judged by who it is, before it is stored.
//!
//! Owns the rules about namespaces of tenants, about the account that a tenant's surfaces act as, about whose tokens Tenure asks for, about what Flux's kinds say, about what Git manages, about what a Tenant says of Pods, claims,
//! Ingresses and Services, about Tenants themselves, about whose the fields of a platform's Packages are, and about who asks and who answers for access to hosts of repositories. Data in,
//! a [`Decision`] out: whoever asks has the facts and can ask Kubernetes' authorizer, and what is said is the same behind every door.
//! Refuses what it can't decide, to whoever could gain by it; whoever may repair a platform is let through, and who that is, the
//! authorizer says ([`rights`]).
//!
//! ```text
//! AdmissionReview.request ──[request]──▶ Request ─┐
//! Tenants and namespaces ───[facts]────▶ Facts ───┼──[decide]──▶ allow, with warnings | change | deny: rule, why, what to do instead
//! authorizer ───────────────[rights]───▶ Rights ──┘
//! ```

mod access;
mod account;
mod bindings;
mod change;
mod classes;
pub mod collision;
mod cordon;
mod finalizers;
mod flux;
mod image;
mod ingress;
mod ingress_annotation;
pub mod keeping;
mod kubernetes;
pub mod ledger;
mod limited;
mod managed;
mod marks;
mod metadata;
pub mod minting;
mod namespace;
mod package;
mod pod;
pub mod policy;
pub mod quota;
mod request;
pub mod rights;
mod service;
mod speaking;
mod tenant;
mod volume;

use std::fmt;
use std::sync::Arc;

pub use access::VOUCHED_PREFIX;
pub use change::{Change, make_owner_reference};
pub(crate) use request::read_metadata;
pub use request::{Actor, Operation, Request, RequestError, Resource};
pub use rights::Question;
use serde_json::Value;

use self::ledger::Claim;
use crate::facts::Facts;
use crate::mentions::Mention;
use crate::realm::TenantFacts;

/// What comes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes on, its object changed first, and the one who asked is warned of something.
    Allow {
        /// What is changed of the object, in this order; mostly nothing.
        changes: Vec<Change>,
        /// What is said about it.
        warnings: Vec<String>,
        /// A place that it needs, if it is to be stored: there has to be room for it with what others were let through for, too.
        claim: Option<Claim>,
    },
    /// It ends here.
    Deny(Refusal),
}

impl Decision {
    /// It goes on as it is.
    #[must_use]
    pub fn allow() -> Self {
        Self::Allow {
            changes: Vec::new(),
            warnings: Vec::new(),
            claim: None,
        }
    }
}

/// Why a request ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which rule it met.
    pub rule: Rule,
    /// What is refused, and why.
    pub why: String,
    /// What to do instead.
    pub remedy: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} ({})", self.why, self.remedy, self.rule)
    }
}

/// The rules, by the names that messages and docs have for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Whose a namespace is changes by who may decide that.
    NamespaceMembership,
    /// A namespace of a tenant is as the Tenant says.
    NamespaceOptions,
    /// Nobody but the tenant's surfaces is their account.
    GitopsAccount,
    /// Tenure's own accounts ask for tokens of those whom somebody names, and of no administrator.
    Minting,
    /// Flux's kinds act as the account that is theirs.
    FluxAccount,
    /// Flux's kinds lead nowhere out of the tenant.
    FluxReferences,
    /// Flux's kinds are in their Tenant's shard.
    FluxShard,
    /// What Git manages is changed in Git.
    GitManaged,
    /// In a cordoned tenant its owners and its account change nothing.
    Cordoned,
    /// Images of Pods are of registries that the Tenant allows.
    ContainerRegistries,
    /// Images of Pods are pulled when the Tenant allows.
    ImagePullPolicies,
    /// Pods are of PriorityClasses that the Tenant allows.
    PriorityClasses,
    /// Pods are of RuntimeClasses that the Tenant allows.
    RuntimeClasses,
    /// Claims are of StorageClasses that the Tenant allows.
    StorageClasses,
    /// Claims take PersistentVolumes that are their tenant's.
    PersistentVolumes,
    /// Ingresses have classes and hostnames that the Tenant allows, and no host and path that another one has ([`collision`], which is no part of
    /// [`decide`]).
    IngressOptions,
    /// Services are what the Tenant allows.
    ServiceOptions,
    /// The namespaces of a Tenant use no more together than it has. It is no part of [`decide`]: whoever asks claims it ([`quota`]).
    ResourceQuotas,
    /// A Tenant's home is its own, and it stays if it is to stay.
    Tenant,
    /// What a platform's chart has of its Packages stays the chart's.
    FieldOwnership,
    /// Who asks for access to a host of repositories, who answers, and who keeps the records of it.
    Access,
    /// The controllers' own account makes nobody an administrator, and of what has Pods only lanes. A lane's account writes what lanes write. Policies
    /// alone say so ([`policy::list_bounds`], [`policy::list_lane_bounds`]).
    ControllerRights,
    /// The account that writes credentials writes nothing else, and nobody else has its tokens. Policies alone say so ([`policy::list_bounds`]). Only an
    /// administrator binds Tenure's accounts in other namespaces.
    SecretWriter,
    /// What Tenure manages in a tenant's namespaces gets no finalizer of a tenant's, and keeps its label.
    ManagedObjects,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 24] = [
        Self::NamespaceMembership,
        Self::NamespaceOptions,
        Self::GitopsAccount,
        Self::Minting,
        Self::FluxAccount,
        Self::FluxReferences,
        Self::FluxShard,
        Self::GitManaged,
        Self::Cordoned,
        Self::ContainerRegistries,
        Self::ImagePullPolicies,
        Self::PriorityClasses,
        Self::RuntimeClasses,
        Self::StorageClasses,
        Self::PersistentVolumes,
        Self::IngressOptions,
        Self::ServiceOptions,
        Self::ResourceQuotas,
        Self::Tenant,
        Self::FieldOwnership,
        Self::Access,
        Self::ControllerRights,
        Self::SecretWriter,
        Self::ManagedObjects,
    ];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NamespaceMembership => "namespace-membership",
            Self::NamespaceOptions => "namespace-options",
            Self::GitopsAccount => "gitops-account",
            Self::Minting => "minting",
            Self::FluxAccount => "flux-account",
            Self::FluxReferences => "flux-references",
            Self::FluxShard => "flux-shard",
            Self::GitManaged => "git-managed",
            Self::Cordoned => "cordoned",
            Self::ContainerRegistries => "container-registries",
            Self::ImagePullPolicies => "image-pull-policies",
            Self::PriorityClasses => "priority-classes",
            Self::RuntimeClasses => "runtime-classes",
            Self::StorageClasses => "storage-classes",
            Self::PersistentVolumes => "persistent-volumes",
            Self::IngressOptions => "ingress-options",
            Self::ServiceOptions => "service-options",
            Self::ResourceQuotas => "resource-quotas",
            Self::Tenant => "tenant",
            Self::FieldOwnership => "field-ownership",
            Self::Access => "access",
            Self::ControllerRights => "controller-rights",
            Self::SecretWriter => "secret-writer",
            Self::ManagedObjects => "managed-objects",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// What rules have found out about a request.
#[derive(Debug, Default)]
struct Findings {
    changes: Vec<Change>,
    warnings: Vec<String>,
    claim: Option<Claim>,
}

/// Everything that a rule may look at.
#[derive(Clone, Copy)]
struct Case<'a> {
    facts: &'a Facts,
    request: &'a Request<'a>,
    /// Whose the namespace of the request is.
    tenant: Option<&'a TenantFacts>,
    surroundings: &'a dyn Surroundings,
}

impl Case<'_> {
    /// Whether the one who sent the request may do something.
    fn may(self, question: &Question<'_>) -> bool {
        self.surroundings.may(question)
    }

    /// An object as it is stored.
    fn find(self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.surroundings.find(group, plural, namespace, name)
    }
}

/// What a decision can ask for.
pub trait Surroundings {
    /// Whether the one who sent the request may do something, as Kubernetes' authorizer says.
    fn may(&self, question: &Question<'_>) -> bool;

    /// Whether a ServiceAccount, by namespace and name, may do something, as Kubernetes' authorizer says.
    fn may_account(&self, account: (&str, &str), question: &Question<'_>) -> bool;

    /// An object by group, plural name, namespace and name, as it is stored when the request is judged.
    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// An object outside a Tenant that names a namespace ([`MentionIndex::find_outside`](crate::mentions::MentionIndex::find_outside)).
    ///
    /// # Errors
    /// Why that can't be known now.
    fn find_mention(&self, facts: &Facts, tenant: &TenantFacts, namespace: &str) -> Result<Option<Mention>, String>;
}

/// Judges one aspect of a request.
type Judge = fn(Case<'_>, &mut Findings) -> Result<(), Refusal>;

/// All that is judged, in an order in which whose a namespace is comes first.
const RULES: [Judge; 16] = [
    namespace::judge,
    tenant::judge,
    cordon::judge,
    account::judge,
    minting::judge,
    flux::judge,
    pod::judge,
    classes::judge,
    volume::judge,
    ingress::judge,
    service::judge,
    package::judge,
    bindings::judge,
    access::judge,
    finalizers::judge,
    managed::judge,
];

/// Judges a request.
#[must_use]
pub fn decide(facts: &Facts, request: &Request<'_>, surroundings: &dyn Surroundings) -> Decision {
    let case = Case {
        facts,
        request,
        tenant: facts.tenant_of(request.namespace),
        surroundings,
    };
    let mut findings = Findings::default();
    for judge in RULES {
        if let Err(refusal) = judge(case, &mut findings) {
            return Decision::Deny(refusal);
        }
    }
    Decision::Allow {
        changes: findings.changes,
        warnings: findings.warnings,
        claim: findings.claim,
    }
}

/// Whether a rule may have something to say about a request of this user about such a resource there: all others need not be asked
/// about, and neither read. `old_object` is the object as it is stored, if it is.
#[must_use]
pub fn concerns(
    facts: &Facts,
    user: &str,
    resource: Resource<'_>,
    namespace: &str,
    old_object: Option<&Value>,
) -> bool {
    let by_resource = match (resource.group, resource.name) {
        ("", "namespaces" | "persistentvolumes" | "pods" | "secrets" | "serviceaccounts") => true,
        ("", "persistentvolumeclaims" | "services") | ("networking.k8s.io", "ingresses") => {
            facts.tenant_of(namespace).is_some()
        }
        (group, resource) if finalizers::is_written(group, resource) && facts.tenant_of(namespace).is_some() => true,
        ("capsule.clastix.io", "tenants") => true,
        (group, resource) => {
            flux::is_judged(group, resource)
                || package::is_judged(group, resource, namespace)
                || access::is_judged(group, resource)
                || bindings::is_judged(group, resource)
        }
    };
    // A surface's account writes anything, and everything is checked for being its own doing.
    by_resource
        || old_object
            .is_some_and(|object| crate::owner::read_owner_labels(object).is_some() || finalizers::is_managed(object))
        || user.starts_with(request::SERVICE_ACCOUNT_PREFIX)
        || facts
            .tenant_of(namespace)
            .is_some_and(|tenant| tenant.cordoned || tenant.quotas.concerns(resource.group, resource.name))
}

/// Whether a decision about such a resource ever comes with changes of its object. If not, it need be asked about once only, as the object would be
/// stored.
#[must_use]
pub fn changes(group: &str, resource: &str) -> bool {
    sets_defaults(group, resource)
        || (group, resource) == ("", "namespaces")
        || flux::is_judged(group, resource)
        || access::is_judged(group, resource)
}

/// The same of a resource in a namespace.
#[must_use]
pub fn may_change(facts: &Facts, resource: Resource<'_>, namespace: &str) -> bool {
    match sets_defaults(resource.group, resource.name) {
        true => facts
            .tenant_of(namespace)
            .is_some_and(|tenant| !tenant.bounds.is_empty()),
        false => changes(resource.group, resource.name),
    }
}

/// Whether a Tenant may say defaults of such objects.
fn sets_defaults(group: &str, resource: &str) -> bool {
    match group {
        "" => matches!(resource, "pods" | "persistentvolumeclaims" | "services"),
        _ => (group, resource) == ("networking.k8s.io", "ingresses"),
    }
}
