//! Decides which namespace belongs to the platform, to one tenant, or to no tenant, from the Tenants and the namespaces' metadata.
//!
//! A namespace is a tenant's only if its label names the Tenant, and the Tenant's record has the namespace's **uid** ([`crate::record`]). A
//! label alone, a name, or a prefix of a name proves nothing, and the metadata of a namespace is a claim. An ownerReference to a Tenant
//! proves nothing either, and must not contradict the label. If they contradict each other, the namespace is disputed and nothing acts in
//! it. Nothing acts for a Tenant that is being deleted, either.

mod gitops_account;
mod holder;
mod least_level;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

pub use self::gitops_account::name_gitops_account;
pub use self::holder::Holder;
pub(crate) use self::holder::{find_holder, find_owner};
use serde::{Deserialize, Serialize};
use tenure_api::metadata::{
    CREATION_PROOF, GITOPS_ACCOUNT, GITOPS_ACCOUNT_EXCLUSIVE, GITOPS_CLUSTER_ROLE, HOME_NAMESPACE, MINTABLE_ACCOUNTS,
    MINTABLE_FACT, SHARDING_KEY, TENANT_LABEL,
};
use tenure_api::names::{NamespaceName, ServiceAccountName, TenantName};
use tenure_api::tenant::TenantSpace;
use tenure_api::{ObjectMeta, OwnerReference, Tenant};

use crate::bounds::Bounds;
use crate::denial::Denial;
use crate::flux_account::{ActingKind, name_account};
use crate::namespace_metadata::NamespaceMetadata;
use crate::pod_security::{self, PodSecurityLevel};
use crate::quotas::TenantQuotas;
use crate::settings::{LEAST_INTERVAL, Settings};

/// The facts of a Tenant that tenancy needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TenantFacts {
    /// Name.
    pub name: String,
    /// Uid. A Tenant without one is not stored yet and owns nothing.
    pub uid: String,
    /// The home namespace that the Tenant names, if it names one.
    pub home_namespace: Option<String>,
    /// Its owners.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<TenantOwnerFacts>,
    /// The greatest number of its namespaces, if one is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_quota: Option<u32>,
    /// True if names of its namespaces must begin with its own name and a hyphen. The name of its home namespace
    /// need not.
    #[serde(skip_serializing_if = "is_false")]
    pub force_prefix: bool,
    /// True while nothing in it may be changed.
    #[serde(skip_serializing_if = "is_false")]
    pub cordoned: bool,
    /// True if it may not be deleted.
    #[serde(skip_serializing_if = "is_false")]
    pub prevent_deletion: bool,
    /// True if admission keeps its GitOps account from all other users, instead of warning about
    /// its use.
    #[serde(skip_serializing_if = "is_false")]
    pub exclusive_account: bool,
    /// True if an administrator chose the ClusterRole of its GitOps account: then the account has no other rights.
    #[serde(skip_serializing_if = "is_false")]
    pub has_account_role: bool,
    /// The key of its shard, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The labels and annotations that it sets on its namespaces.
    #[serde(skip_serializing_if = "NamespaceMetadata::is_empty")]
    pub marks: NamespaceMetadata,
    /// The Pod Security level of its namespaces, if it sets one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_security: Option<PodSecurityLevel>,
    /// The Pod Security levels that Tenure has set on its namespaces, by names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub recorded_levels: BTreeMap<String, PodSecurityLevel>,
    /// The bounds of objects in its namespaces.
    #[serde(skip_serializing_if = "Bounds::is_empty")]
    pub bounds: Bounds,
    /// The limits that its namespaces share.
    #[serde(skip_serializing_if = "TenantQuotas::is_empty")]
    pub quotas: TenantQuotas,
    /// The namespaces in the record of its status: uids by names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub recorded: BTreeMap<String, String>,
    /// The namespaces that the controllers were about to create for it: digests of their proofs by names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub intended: BTreeMap<String, String>,
    /// True while it is being deleted.
    pub deleting: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}

/// An owner of a Tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantOwnerFacts {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: String,
    /// Name. For a ServiceAccount, its full user name.
    pub name: String,
}

impl From<&Tenant> for TenantFacts {
    fn from(tenant: &Tenant) -> Self {
        let marks = NamespaceMetadata::from(&tenant.spec);
        Self {
            name: tenant.metadata.name.clone().unwrap_or_default(),
            uid: tenant.metadata.uid.clone().unwrap_or_default(),
            home_namespace: tenant
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(HOME_NAMESPACE))
                .cloned(),
            owners: tenant
                .spec
                .owners
                .iter()
                .map(|owner| TenantOwnerFacts {
                    kind: owner.kind.clone(),
                    name: owner.name.clone(),
                })
                .collect(),
            namespace_quota: tenant
                .spec
                .namespace_options
                .as_ref()
                .and_then(|options| options.quota)
                .and_then(|quota| u32::try_from(quota).ok()),
            force_prefix: tenant.spec.force_tenant_prefix.unwrap_or_default(),
            cordoned: tenant.spec.cordoned.unwrap_or_default(),
            prevent_deletion: tenant.spec.prevent_deletion.unwrap_or_default(),
            exclusive_account: tenant
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(GITOPS_ACCOUNT))
                .is_some_and(|value| value == GITOPS_ACCOUNT_EXCLUSIVE),
            has_account_role: tenant
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(GITOPS_CLUSTER_ROLE))
                .is_some_and(|role| !role.is_empty()),
            shard: read_shard(&tenant.metadata),
            pod_security: pod_security::read_annotation(&tenant.metadata)
                .map(PodSecurityLevel::parse_strictly)
                .or(marks.pod_security()),
            recorded_levels: tenant
                .status
                .as_ref()
                .map(|status| pod_security::read_levels(&status.spaces))
                .unwrap_or_default(),
            marks,
            bounds: Bounds::from(&tenant.spec),
            quotas: TenantQuotas::from(&tenant.spec),
            recorded: tenant
                .status
                .as_ref()
                .map(|status| read_spaces(&status.spaces))
                .unwrap_or_default(),
            intended: tenant
                .status
                .iter()
                .flat_map(|status| &status.creating)
                .map(|intent| (intent.name.clone(), intent.proof_digest.clone()))
                .collect(),
            deleting: tenant.metadata.deletion_timestamp.is_some(),
        }
    }
}

impl TenantFacts {
    /// Returns the greatest number of namespaces of the Tenant, if one is set: its own, or the
    /// installation's.
    #[must_use]
    pub fn find_namespace_quota(&self, settings: &Settings) -> Option<usize> {
        let default = Some(settings.default_namespace_quota).filter(|quota| *quota > 0);
        let quota = self.namespace_quota.or(default)?;
        usize::try_from(quota).ok()
    }

    /// Returns the home namespace: the one that the Tenant names, else the one with the Tenant's
    /// name.
    #[must_use]
    pub fn home(&self) -> &str {
        self.home_namespace.as_deref().unwrap_or(&self.name)
    }
}

/// The facts of a namespace that tenancy needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespaceFacts {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Value of the label `capsule.clastix.io/tenant`.
    pub tenant_label: Option<String>,
    /// Names and uids of the Tenants that own it by ownerReference.
    pub tenant_owners: Vec<TenantOwnerReference>,
    /// The key of its shard. It counts only for a namespace without a tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The ServiceAccounts whose tokens lanes may request in a namespace without a tenant: those that objects there name, and those
    /// that an administrator named.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub mintable: BTreeSet<String>,
    /// The value by which the controllers recognize a namespace that they were creating ([`crate::record::is_intended`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_proof: Option<String>,
    /// True while it is being deleted.
    pub deleting: bool,
}

/// An ownerReference to a Tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantOwnerReference {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

impl From<&ObjectMeta> for NamespaceFacts {
    fn from(metadata: &ObjectMeta) -> Self {
        let is_tenant = |owner: &&OwnerReference| {
            owner.kind == "Tenant"
                && owner
                    .api_version
                    .split_once('/')
                    .is_some_and(|(group, _)| group == "capsule.clastix.io")
        };
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            tenant_label: metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get(TENANT_LABEL))
                .cloned(),
            tenant_owners: metadata
                .owner_references
                .iter()
                .flatten()
                .filter(is_tenant)
                .map(|owner| TenantOwnerReference {
                    name: owner.name.clone(),
                    uid: owner.uid.clone(),
                })
                .collect(),
            shard: read_shard(metadata),
            mintable: read_mintable(metadata),
            creation_proof: metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(CREATION_PROOF))
                .cloned(),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// Returns the namespaces in a status, uids by names. Of two entries with one name the first
/// counts.
fn read_spaces(spaces: &[TenantSpace]) -> BTreeMap<String, String> {
    let mut recorded = BTreeMap::new();
    for space in spaces {
        if let Some(uid) = space.uid.as_ref().filter(|uid| !uid.is_empty()) {
            recorded.entry(space.name.clone()).or_insert_with(|| uid.clone());
        }
    }
    recorded
}

fn read_mintable(metadata: &ObjectMeta) -> BTreeSet<String> {
    let annotations = metadata.annotations.iter();
    let lists = annotations.flat_map(|all| [MINTABLE_FACT, MINTABLE_ACCOUNTS].map(|key| all.get(key)));
    let names = lists.flatten().flat_map(|list| list.split(',')).map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn read_shard(metadata: &ObjectMeta) -> Option<String> {
    metadata.labels.as_ref()?.get(SHARDING_KEY).cloned()
}

/// The placement of a namespace: whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// The platform namespace.
    Platform {
        /// The ServiceAccount of a Kustomization without a name.
        default_service_account: String,
    },
    /// A namespace of a tenant.
    Tenant(TenantPlacement),
    /// A namespace without a tenant. Kubernetes' RBAC alone bounds actions from it, as in Flux.
    Unclaimed {
        /// The ServiceAccount of a Kustomization without a name.
        default_service_account: String,
        /// True for a protected namespace ([`Settings::is_protected`]): it has a lane of its own.
        #[serde(default)]
        is_protected: bool,
    },
    /// A namespace with contradictory claims. Nothing may act in it.
    Disputed {
        /// The contradiction, and how to settle it.
        message: String,
    },
}

impl Placement {
    /// Returns the shortest interval that counts for objects in this namespace.
    #[must_use]
    pub fn find_least_interval(&self, settings: &Settings) -> Duration {
        match self {
            Self::Platform { .. } => LEAST_INTERVAL,
            _ => settings.least_interval.max(LEAST_INTERVAL),
        }
    }

    /// Returns the placement for writes to another cluster. The rights of the user there bound them, and no tenant's namespace does,
    /// since that is one of this cluster. A disputed namespace writes to no cluster.
    #[must_use]
    pub fn elsewhere(&self) -> Self {
        match self {
            Self::Tenant(tenant) => Self::Unclaimed {
                default_service_account: tenant.default_service_account.clone(),
                is_protected: false,
            },
            other => other.clone(),
        }
    }
}

/// A namespace within a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantPlacement {
    /// The tenant.
    pub tenant: TenantName,
    /// The tenant's home namespace.
    pub home: NamespaceName,
    /// All of the tenant's namespaces, including the home namespace if it exists.
    pub namespaces: BTreeSet<NamespaceName>,
    /// The ServiceAccount in the home namespace with which the tenant's Surfaces act, or the reason
    /// why none exists.
    pub gitops: Result<ServiceAccountName, Denial>,
    /// The ServiceAccount in the home namespace that applies the objects of Surfaces in its place. It is set if Flux's own controller applies
    /// them, and an administrator named an account for that controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applier: Option<String>,
    /// The ServiceAccount of a Kustomization without a name in the requested namespace.
    pub default_service_account: String,
}

/// The facts of all Tenants and namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenancyFacts {
    /// The installation's settings.
    pub settings: Settings,
    /// Every Tenant.
    pub tenants: Vec<TenantFacts>,
    /// Every namespace.
    pub namespaces: Vec<NamespaceFacts>,
}

/// Facts with an index of their names, so that a lookup takes no longer in a large cluster.
#[derive(Clone, Debug, Default)]
pub struct TenancyIndex {
    tenancy: Arc<TenancyFacts>,
    /// Positions by name. Of two with one name the first counts.
    namespaces: HashMap<String, usize>,
    /// Namespaces by the uid of their Tenant.
    owned: HashMap<String, BTreeSet<NamespaceName>>,
}

impl TenancyIndex {
    /// Makes the index of all facts.
    #[must_use]
    pub fn new(tenancy: Arc<TenancyFacts>) -> Self {
        let mut namespaces = HashMap::with_capacity(tenancy.namespaces.len());
        for (position, facts) in tenancy.namespaces.iter().enumerate() {
            namespaces.entry(facts.name.clone()).or_insert(position);
        }
        let mut owned: HashMap<String, BTreeSet<NamespaceName>> = HashMap::new();
        let tenants = tenancy.tenants_by_name();
        for facts in &tenancy.namespaces {
            if facts.name != tenancy.settings.platform_namespace
                && let Ok(Some(owner)) = find_holder(&tenancy.settings, |name| tenants.get(name).copied(), facts)
                && let Ok(name) = NamespaceName::new(facts.name.clone())
            {
                owned.entry(owner.uid.clone()).or_default().insert(name);
            }
        }
        Self {
            tenancy,
            namespaces,
            owned,
        }
    }

    /// Returns the facts.
    #[must_use]
    pub fn tenancy(&self) -> &Arc<TenancyFacts> {
        &self.tenancy
    }

    /// Returns the tenant that a namespace names by its label.
    pub(crate) fn find_claimed(&self, facts: &NamespaceFacts) -> Option<&TenantFacts> {
        let find_tenant = |name: &str| self.tenancy.tenants.iter().find(|tenant| tenant.name == name);
        find_owner(&self.tenancy.settings, find_tenant, facts).ok().flatten()
    }

    /// Returns the placement of a namespace.
    #[must_use]
    pub fn find_placement(&self, namespace: &str) -> Placement {
        let facts = self.namespaces.get(namespace);
        let facts = facts.and_then(|position| self.tenancy.namespaces.get(*position));
        let owned = |tenant: &TenantFacts| self.owned.get(&tenant.uid).cloned().unwrap_or_default();
        let find_tenant = |name: &str| self.tenancy.tenants.iter().find(|tenant| tenant.name == name);
        find_placement(&self.tenancy.settings, namespace, facts, find_tenant, owned)
    }
}

impl TenancyFacts {
    /// Returns the placement of a namespace. Callers with many namespaces use an [`TenancyIndex`].
    #[must_use]
    pub fn find_placement(&self, namespace: &str) -> Placement {
        let facts = self.namespaces.iter().find(|facts| facts.name == namespace);
        let find_tenant = |name: &str| self.tenants.iter().find(|tenant| tenant.name == name);
        find_placement(&self.settings, namespace, facts, find_tenant, |tenant| {
            self.namespaces_of(tenant)
        })
    }

    /// Returns the tenant that has recorded a namespace.
    #[must_use]
    pub fn find_holder(&self, namespace: &str) -> Holder {
        let facts = self.namespaces.iter().find(|facts| facts.name == namespace);
        let find_tenant = |name: &str| self.tenants.iter().find(|tenant| tenant.name == name);
        Holder::find(&self.settings, find_tenant, facts)
    }

    /// Returns the names of a tenant's namespaces.
    #[must_use]
    pub fn namespaces_of(&self, tenant: &TenantFacts) -> BTreeSet<NamespaceName> {
        let claims = self.claims_of(tenant).into_iter();
        let recorded = claims.filter(|facts| tenant.has_recorded(facts));
        recorded
            .filter_map(|facts| NamespaceName::new(facts.name.clone()).ok())
            .collect()
    }

    /// Returns the namespaces that name a tenant by their label, whether the tenant has recorded them or not.
    #[must_use]
    pub fn claims_of(&self, tenant: &TenantFacts) -> Vec<&NamespaceFacts> {
        let tenants = self.tenants_by_name();
        self.namespaces
            .iter()
            .filter(|facts| facts.name != self.settings.platform_namespace)
            .filter(|facts| matches!(find_owner(&self.settings, |name| tenants.get(name).copied(), facts), Ok(Some(owner)) if owner.uid == tenant.uid))
            .collect()
    }

    fn tenants_by_name(&self) -> HashMap<&str, &TenantFacts> {
        let mut tenants = HashMap::with_capacity(self.tenants.len());
        for tenant in &self.tenants {
            tenants.entry(tenant.name.as_str()).or_insert(tenant);
        }
        tenants
    }
}

/// Returns the placement of a namespace, from its facts.
pub(crate) fn find_placement<'a>(
    settings: &Settings,
    namespace: &str,
    facts: Option<&NamespaceFacts>,
    find_tenant: impl Fn(&str) -> Option<&'a TenantFacts>,
    owned: impl Fn(&TenantFacts) -> BTreeSet<NamespaceName>,
) -> Placement {
    if NamespaceName::new(namespace).is_err() {
        return Placement::Disputed {
            message: format!("{namespace:?} is not a namespace's name"),
        };
    }
    let default_service_account = settings.default_account(namespace).to_owned();
    if namespace == settings.platform_namespace {
        return Placement::Platform {
            default_service_account,
        };
    }
    let Some(facts) = facts else {
        return Placement::Disputed {
            message: format!("namespace {namespace} is not known (yet)"),
        };
    };
    match find_holder(settings, find_tenant, facts) {
        Err(message) => Placement::Disputed { message },
        Ok(None) => Placement::Unclaimed {
            default_service_account,
            is_protected: settings.is_protected(namespace),
        },
        Ok(Some(tenant)) if tenant.deleting => Placement::Disputed {
            message: format!(
                "Tenant {} is being deleted: nothing is reconciled for it any more",
                tenant.name
            ),
        },
        Ok(Some(tenant)) => match placement_in(settings, tenant, default_service_account, owned(tenant)) {
            Ok(placement) => Placement::Tenant(placement),
            Err(message) => Placement::Disputed { message },
        },
    }
}

/// Returns the placement of a namespace of this Tenant.
fn placement_in(
    settings: &Settings,
    tenant: &TenantFacts,
    default_service_account: String,
    namespaces: BTreeSet<NamespaceName>,
) -> Result<TenantPlacement, String> {
    let name = TenantName::new(tenant.name.clone()).map_err(|error| error.to_string())?;
    let home = NamespaceName::new(tenant.home().to_owned())
        .map_err(|error| format!("tenant {}: its annotation {HOME_NAMESPACE}: {error}", tenant.name))?;
    let gitops = name_gitops_account(tenant, &home);
    let (own, kind) = (gitops.as_ref().ok(), ActingKind::Kustomization);
    let own = own.map(ServiceAccountName::as_str);
    let applier = name_account(settings, kind, home.as_str(), (home.as_str(), own));
    Ok(TenantPlacement {
        applier: applier.filter(|name| Some(*name) != own).map(str::to_owned),
        gitops,
        tenant: name,
        home,
        namespaces,
        default_service_account,
    })
}
