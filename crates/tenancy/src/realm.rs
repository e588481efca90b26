//! Which namespace belongs to whom: the platform, one tenant, or nobody. Decided from the Tenants and the namespaces' metadata.
//!
//! A namespace is a tenant's only if its label and an ownerReference with the Tenant's **uid** agree: a label alone, a name, or a
//! prefix of a name proves nothing. Where the two contradict each other, the namespace is nobody's and nothing acts in it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tenure_api::metadata::{HOME_NAMESPACE, PLATFORM_NAMESPACE, TENANT_GITOPS_SUFFIX, TENANT_LABEL};
use tenure_api::names::{NamespaceName, ServiceAccountName, TenantName};
use tenure_api::{ObjectMeta, OwnerReference, Tenant};

use crate::denial::Denial;

/// What an administrator sets for the whole installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// The namespace whose surfaces are of the platform tier.
    pub platform_namespace: String,
    /// ServiceAccount of a Kustomization without `serviceAccountName`, by namespace; `default` for the others.
    pub default_service_accounts: BTreeMap<String, String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            platform_namespace: PLATFORM_NAMESPACE.to_owned(),
            default_service_accounts: BTreeMap::new(),
        }
    }
}

/// What matters of a Tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TenantFacts {
    /// Name.
    pub name: String,
    /// Uid; a Tenant without one (not stored yet) owns nothing.
    pub uid: String,
    /// The home namespace that it names, if it does.
    pub home_namespace: Option<String>,
    /// Owners that are ServiceAccounts: their full user names.
    pub service_account_owners: Vec<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl From<&Tenant> for TenantFacts {
    fn from(tenant: &Tenant) -> Self {
        Self {
            name: tenant.metadata.name.clone().unwrap_or_default(),
            uid: tenant.metadata.uid.clone().unwrap_or_default(),
            home_namespace: tenant
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(HOME_NAMESPACE))
                .cloned(),
            service_account_owners: tenant
                .spec
                .owners
                .iter()
                .filter(|owner| owner.kind == "ServiceAccount")
                .map(|owner| owner.name.clone())
                .collect(),
            deleting: tenant.metadata.deletion_timestamp.is_some(),
        }
    }
}

impl TenantFacts {
    /// The home namespace: the one that the Tenant names, else the one that bears its name.
    #[must_use]
    pub fn home(&self) -> &str {
        self.home_namespace.as_deref().unwrap_or(&self.name)
    }
}

/// What matters of a namespace.
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
    /// Whether it is being deleted.
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
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// Whose a namespace is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// It is the platform namespace.
    Platform {
        /// ServiceAccount of a Kustomization without a name.
        default_service_account: String,
    },
    /// It belongs to a tenant.
    Tenant(TenantPlacement),
    /// It belongs to nobody: Kubernetes' RBAC alone bounds what is done from it, as in Flux.
    Unclaimed {
        /// ServiceAccount of a Kustomization without a name.
        default_service_account: String,
    },
    /// Who it belongs to cannot be told: nothing may act in it.
    Disputed {
        /// What contradicts what, and how to settle it.
        message: String,
    },
}

/// A namespace within a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantPlacement {
    /// The tenant.
    pub tenant: TenantName,
    /// Its home namespace.
    pub home: NamespaceName,
    /// All of its namespaces, the home namespace included if it exists.
    pub namespaces: BTreeSet<NamespaceName>,
    /// ServiceAccount, in the home namespace, that the tenant's surfaces act as; or why there is none.
    pub gitops: Result<ServiceAccountName, Denial>,
    /// ServiceAccount of a Kustomization without a name in the asked-for namespace.
    pub default_service_account: String,
}

/// All Tenants and namespaces, as far as they matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Realm {
    /// The installation's settings.
    pub settings: Settings,
    /// Every Tenant.
    pub tenants: Vec<TenantFacts>,
    /// Every namespace.
    pub namespaces: Vec<NamespaceFacts>,
}

impl Realm {
    /// Whose a namespace is.
    #[must_use]
    pub fn place(&self, namespace: &str) -> Placement {
        if NamespaceName::new(namespace).is_err() {
            return Placement::Disputed {
                message: format!("{namespace:?} is not a namespace's name"),
            };
        }
        let default_service_account = self
            .settings
            .default_service_accounts
            .get(namespace)
            .cloned()
            .unwrap_or_else(|| "default".to_owned());
        if namespace == self.settings.platform_namespace {
            return Placement::Platform {
                default_service_account,
            };
        }
        let Some(facts) = self.namespaces.iter().find(|facts| facts.name == namespace) else {
            return Placement::Disputed {
                message: format!("namespace {namespace} is not known (yet)"),
            };
        };
        match self.tenant_of(facts) {
            Err(message) => Placement::Disputed { message },
            Ok(None) => Placement::Unclaimed {
                default_service_account,
            },
            Ok(Some(tenant)) => match self.placement_in(tenant, default_service_account) {
                Ok(placement) => Placement::Tenant(placement),
                Err(message) => Placement::Disputed { message },
            },
        }
    }

    /// The names of a tenant's namespaces.
    #[must_use]
    pub fn namespaces_of(&self, tenant: &TenantFacts) -> BTreeSet<NamespaceName> {
        self.namespaces
            .iter()
            .filter(|facts| facts.name != self.settings.platform_namespace)
            .filter(|facts| matches!(self.tenant_of(facts), Ok(Some(owner)) if owner.uid == tenant.uid))
            .filter_map(|facts| NamespaceName::new(facts.name.clone()).ok())
            .collect()
    }

    /// The tenant that a namespace belongs to: none when neither label nor ownerReference names one.
    fn tenant_of(&self, facts: &NamespaceFacts) -> Result<Option<&TenantFacts>, String> {
        let namespace = &facts.name;
        match (&facts.tenant_label, facts.tenant_owners.as_slice()) {
            (None, []) => Ok(None),
            (Some(label), []) => Err(format!(
                "namespace {namespace} is labelled for tenant {label}, but tenant {label} does not own it (yet): no ownerReference to it"
            )),
            (_, [_, _, ..]) => Err(format!(
                "namespace {namespace} has ownerReferences to more than one Tenant: remove all but one"
            )),
            (label, [owner]) => {
                if label.as_deref() != Some(owner.name.as_str()) {
                    return Err(format!(
                        "namespace {namespace} is owned by tenant {} but its label {TENANT_LABEL} says {}: make them agree",
                        owner.name,
                        label.as_deref().unwrap_or("nothing"),
                    ));
                }
                let tenant = self.tenants.iter().find(|tenant| tenant.name == owner.name);
                match tenant {
                    Some(tenant) if !owner.uid.is_empty() && tenant.uid == owner.uid => Ok(Some(tenant)),
                    Some(_) => Err(format!(
                        "namespace {namespace} is owned by an earlier Tenant {} that no longer exists (its uid differs)",
                        owner.name
                    )),
                    None => Err(format!(
                        "namespace {namespace} is owned by Tenant {}, which does not exist",
                        owner.name
                    )),
                }
            }
        }
    }

    fn placement_in(&self, tenant: &TenantFacts, default_service_account: String) -> Result<TenantPlacement, String> {
        let name = TenantName::new(tenant.name.clone()).map_err(|error| error.to_string())?;
        let home = NamespaceName::new(tenant.home().to_owned())
            .map_err(|error| format!("tenant {}: its annotation {HOME_NAMESPACE}: {error}", tenant.name))?;
        Ok(TenantPlacement {
            gitops: gitops_service_account(tenant, &home),
            tenant: name,
            home,
            namespaces: self.namespaces_of(tenant),
            default_service_account,
        })
    }
}

/// The ServiceAccount that a tenant's surfaces act as: the one ServiceAccount owner in the home namespace that an administrator
/// named in the Tenant, else `<tenant>-gitops`.
///
/// # Errors
/// When several ServiceAccount owners leave it open which, or the name is not one.
pub fn gitops_service_account(tenant: &TenantFacts, home: &NamespaceName) -> Result<ServiceAccountName, Denial> {
    let generated = format!("{}{TENANT_GITOPS_SUFFIX}", tenant.name);
    let prefix = format!("system:serviceaccount:{home}:");
    let named: BTreeSet<&str> = tenant
        .service_account_owners
        .iter()
        .filter_map(|owner| owner.strip_prefix(prefix.as_str()))
        .collect();
    let chosen = match named.len() {
        0 => generated.as_str(),
        1 => named.first().copied().unwrap_or(generated.as_str()),
        _ if named.contains(generated.as_str()) => generated.as_str(),
        _ => {
            return Err(Denial::because(
                tenure_api::reason::IDENTITY_MISSING,
                format!(
                    "tenant {} has several ServiceAccount owners in its home namespace {home} ({}): an administrator must leave one, \
                     or add {prefix}{generated}",
                    tenant.name,
                    named.into_iter().collect::<Vec<_>>().join(", "),
                ),
            ));
        }
    };
    ServiceAccountName::new(chosen).map_err(|error| {
        Denial::because(
            tenure_api::reason::IDENTITY_MISSING,
            format!("tenant {}: {error}", tenant.name),
        )
    })
}

/// Namespaces that are Kubernetes' own: no tenant gets one of them.
fn is_protected(namespace: &str) -> bool {
    namespace == "default" || namespace.starts_with("kube-")
}

/// Whether a namespace may become a tenant's, or is its already: it does not exist yet, or bears the tenant's label and is nobody
/// else's. That it bears the tenant's name is not enough.
///
/// # Errors
/// When it is the platform's, Kubernetes' own, another tenant's, being deleted, or not labelled for the tenant.
pub fn takeable(realm: &Realm, tenant: &TenantFacts, namespace: &str) -> Result<(), Denial> {
    let refuse = |why: String| {
        Err(Denial::access(format!(
            "namespace {namespace} can't become tenant {}'s: {why}",
            tenant.name
        )))
    };
    if tenant.uid.is_empty() {
        return refuse("the Tenant has no uid yet".to_owned());
    }
    if namespace == realm.settings.platform_namespace {
        return refuse("it is the platform namespace".to_owned());
    }
    if is_protected(namespace) {
        return refuse("it is Kubernetes' own".to_owned());
    }
    let rival = realm
        .tenants
        .iter()
        .find(|other| other.uid != tenant.uid && !other.deleting && other.home() == namespace);
    if let Some(rival) = rival {
        return refuse(format!("it is the home namespace of tenant {}", rival.name));
    }
    let Some(facts) = realm.namespaces.iter().find(|facts| facts.name == namespace) else {
        return Ok(());
    };
    if facts.tenant_owners.iter().any(|owner| owner.uid != tenant.uid) {
        return refuse("another Tenant owns it".to_owned());
    }
    if facts.deleting {
        return refuse("it is being deleted".to_owned());
    }
    if facts.tenant_label.as_deref() != Some(tenant.name.as_str()) {
        return refuse(format!("it exists, and is not labelled {TENANT_LABEL}={}", tenant.name));
    }
    Ok(())
}
