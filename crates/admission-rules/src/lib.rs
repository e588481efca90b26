//! Checks a write by its user, before the object is stored.
//!
//! The rules are about:
//!
//! - namespaces of tenants, and Tenants themselves,
//! - a tenant's GitOps account, and the tokens that Tenure requests,
//! - the contents of Flux's kinds, and objects that Git manages,
//! - a Tenant's bounds for Pods, claims, Ingresses and Services,
//! - the owners of fields in a platform's Packages,
//! - requests and approvals of access to Git hosts.
//!
//! Data goes in, and a [`Decision`] comes out. The caller has the facts and can ask Kubernetes' authorizer, and every admission point gives the same answer. An
//! undecidable request is denied to all users that could gain by it. Users that may repair a platform are allowed, and the authorizer knows them ([`tenure_tenancy::rights`]).
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
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod identity_overlap;
mod image;
mod ingress;
mod ingress_annotation;
mod kubernetes;
pub mod ledger;
mod managed;
mod metadata;
pub mod minting;
mod namespace;
mod namespace_metadata;
mod package;
mod pod;
pub mod policy;
pub mod quota;
mod request;
pub mod rule_enforcement;
mod service;
mod tenant;
mod tenant_limits;
mod volume;

use std::fmt;
use std::sync::Arc;

pub use change::Change;
pub use collision::{HostClaim, HostLedger, HostPart};
pub use identity_overlap::MOST_OVERLAP_QUESTIONS;
pub use package::{CHART_ANNOTATIONS, CHART_LABELS, CHART_MANAGERS};
pub use request::{Actor, Operation, Request, RequestError, Resource};
use serde_json::Value;
pub use tenure_tenancy::rights::Question;

pub use ledger::{NamespaceClaim, NamespaceLedger};
pub use quota::{QuotaAmount, QuotaClaim, QuotaLedger, Sums};

use tenure_tenancy::facts::FactIndex;
use tenure_tenancy::mentions::Mention;
use tenure_tenancy::placement::TenantFacts;

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is allowed. Its object may be changed first, and the user may be warned.
    Allow {
        /// The changes of the object, in this order. Mostly none.
        changes: Vec<Change>,
        /// The warnings.
        warnings: Vec<String>,
        /// The claim of the object on a namespace quota. The caller must settle it together with other reservations before the
        /// object is stored.
        claim: Option<NamespaceClaim>,
    },
    /// The request is denied.
    Deny(Refusal),
}

impl Decision {
    /// Returns the decision to allow the request without changes.
    #[must_use]
    pub fn allow() -> Self {
        Self::Allow {
            changes: Vec::new(),
            warnings: Vec::new(),
            claim: None,
        }
    }
}

/// The denial of a request, with the message for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule that denies.
    pub rule: Rule,
    /// The denied thing, and the reason.
    pub why: String,
    /// The alternative.
    pub remedy: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} ({})", self.why, self.remedy, self.rule)
    }
}

/// The rules, by their names in messages and docs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Only users that may decide it change the tenant of a namespace.
    NamespaceMembership,
    /// A namespace of a tenant obeys the Tenant's options.
    NamespaceOptions,
    /// Only the tenant's Surfaces use their account.
    GitopsAccount,
    /// Tenure's own accounts request tokens only of named accounts, and of no administrator.
    Minting,
    /// Flux's kinds act with their own account.
    FluxAccount,
    /// No reference of Flux's kinds leads out of the tenant.
    FluxReferences,
    /// Flux's kinds are in their Tenant's shard.
    FluxShard,
    /// Fields that Git manages are changed in Git.
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
    /// Claims get only PersistentVolumes of their tenant.
    PersistentVolumes,
    /// Ingresses have classes and hostnames that the Tenant allows, and no host and path that another one has ([`collision`], which is no part of
    /// [`decide`]).
    IngressOptions,
    /// Services obey the Tenant's bounds.
    ServiceOptions,
    /// The namespaces of a Tenant together use no more than its quotas. This rule is no part of [`decide`]: the caller makes a claim
    /// ([`quota`]).
    ResourceQuotas,
    /// A Tenant has a home of its own, and isn't deleted while it must stay.
    Tenant,
    /// Fields of a platform's chart in its Packages stay the chart's.
    FieldOwnership,
    /// Requests, approvals and records of access to Git hosts.
    Access,
    /// The controllers' own account makes no account an administrator, and writes Deployments only for lanes. A lane's account writes only objects of
    /// lanes. Policies alone enforce this rule ([`policy::list_bounds`], [`policy::list_lane_bounds`]).
    ControllerRights,
    /// The account that writes credentials writes nothing else, and no other account gets its tokens. Policies alone enforce this
    /// ([`policy::list_bounds`]). Only an administrator binds Tenure's accounts in other namespaces.
    SecretWriter,
    /// Objects that Tenure manages in a tenant's namespaces get no finalizer of a tenant, and keep their
    /// label.
    ManagedObjects,
    /// The writer of a reference in a PackageValues may read the Secret or ConfigMap. Policies alone enforce this ([`policy::list_bounds`]).
    ValueReferences,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 25] = [
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
        Self::ValueReferences,
    ];

    /// Returns its name.
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
            Self::ValueReferences => "value-references",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The changes, warnings and the claim that the rules have collected for an allowed request.
#[derive(Debug, Default)]
struct Findings {
    changes: Vec<Change>,
    warnings: Vec<String>,
    claim: Option<NamespaceClaim>,
}

/// The input of each rule: the request, the known Tenants and namespaces, and the answers of the cluster.
#[derive(Clone, Copy)]
struct Case<'a> {
    facts: &'a FactIndex,
    request: &'a Request<'a>,
    /// The Tenant of the request's namespace.
    tenant: Option<&'a TenantFacts>,
    surroundings: &'a dyn ClusterQueries,
}

impl Case<'_> {
    /// Checks whether the user has a right.
    fn is_allowed(self, question: &Question<'_>) -> bool {
        self.surroundings.is_allowed(question)
    }

    /// Returns an object as it is stored.
    fn find(self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.surroundings.find(group, plural, namespace, name)
    }
}

/// The questions to the cluster that a decision may ask: rights, stored objects, and objects that name a namespace.
pub trait ClusterQueries {
    /// Checks whether the user has a right, by Kubernetes' authorizer.
    fn is_allowed(&self, question: &Question<'_>) -> bool;

    /// Checks whether a ServiceAccount, by namespace and name, has a right, by Kubernetes' authorizer.
    fn may_account(&self, account: (&str, &str), question: &Question<'_>) -> bool;

    /// Returns an object by group, plural name, namespace and name, as it is stored at the time of the
    /// decision.
    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// Returns an object outside a Tenant that names a namespace
    /// ([`MentionIndex::find_outside`](tenure_tenancy::mentions::MentionIndex::find_outside)).
    ///
    /// # Errors
    /// The reason why the answer is unknown now.
    fn find_mention(&self, facts: &FactIndex, tenant: &TenantFacts, namespace: &str)
    -> Result<Option<Mention>, String>;
}

/// The check of one rule, or of several related ones.
type Judge = fn(Case<'_>, &mut Findings) -> Result<(), Refusal>;

/// All checks. Those about the tenant of a namespace come first.
const RULES: [Judge; 16] = [
    namespace::check,
    tenant::check,
    cordon::check,
    account::check,
    minting::check,
    flux::check,
    pod::check,
    classes::check,
    volume::check,
    ingress::check,
    service::check,
    package::check,
    bindings::check,
    access::check,
    finalizers::check,
    managed::check,
];

/// Decides whether a request is allowed, by all rules in their order. The first rule that denies decides.
#[must_use]
pub fn decide(facts: &FactIndex, request: &Request<'_>, surroundings: &dyn ClusterQueries) -> Decision {
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

/// Checks whether a rule may apply to requests of this user for such a resource there. All other requests need no check, and their
/// objects need not be read. `old_object` is the stored object, if it exists.
#[must_use]
pub fn concerns(
    facts: &FactIndex,
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
    // A Surface's account may write everything, and every write is checked for being its own.
    by_resource
        || old_object.is_some_and(|object| {
            tenure_tenancy::owner::read_owner_labels(object).is_some() || finalizers::is_managed(object)
        })
        || user.starts_with(request::SERVICE_ACCOUNT_PREFIX)
        || facts
            .tenant_of(namespace)
            .is_some_and(|tenant| tenant.cordoned || tenant.quotas.concerns(resource.group, resource.name))
}

/// Checks whether a decision about a resource can change its object, in any namespace. If not, one check of the object in its stored
/// form is enough.
#[must_use]
pub fn changes(group: &str, resource: &str) -> bool {
    sets_defaults(group, resource)
        || (group, resource) == ("", "namespaces")
        || flux::is_judged(group, resource)
        || access::is_judged(group, resource)
}

/// Checks whether a decision about a resource in a namespace can change its object.
#[must_use]
pub fn may_change(facts: &FactIndex, resource: Resource<'_>, namespace: &str) -> bool {
    match sets_defaults(resource.group, resource.name) {
        true => facts
            .tenant_of(namespace)
            .is_some_and(|tenant| !tenant.bounds.is_empty()),
        false => changes(resource.group, resource.name),
    }
}

/// Checks whether a Tenant's bounds may set defaults in objects of a resource.
fn sets_defaults(group: &str, resource: &str) -> bool {
    match group {
        "" => matches!(resource, "pods" | "persistentvolumeclaims" | "services"),
        _ => (group, resource) == ("networking.k8s.io", "ingresses"),
    }
}
