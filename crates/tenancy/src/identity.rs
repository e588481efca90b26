//! Who acts. An [`Identity`] is made here and nowhere else, and nothing can be written to a cluster without one. A [`ServiceAccount`] acts
//! for what somebody asked for; the [`Controller`] for its own bookkeeping only, and where one is wanted the other can't stand.
//!
//! It refuses empty, unknown and malformed names, and never falls back to the controller's own rights.

use std::fmt;

use serde::Serialize;
use tenure_api::names::{NamespaceName, ServiceAccountName};

use crate::denial::{Denial, DenialReason};
use crate::realm::Placement;

/// A ServiceAccount whose name has been checked and whose use here has been allowed. Only this module makes one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceAccount {
    namespace: NamespaceName,
    name: ServiceAccountName,
}

impl ServiceAccount {
    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.as_str()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }
}

impl fmt::Display for ServiceAccount {
    /// The user name that the cluster sees.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl Serialize for ServiceAccount {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The controller itself, with its own narrow RBAC: for Tenure's bookkeeping (statuses, finalizers, what a Surface or a Tenant
/// generates), never for what a repository contains. Only this module makes one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Controller(());

impl fmt::Display for Controller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the controller")
    }
}

impl Serialize for Controller {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Who puts an installation in place: the administrator with whose rights the program writes what an installation consists of, before
/// anybody else acts. It stands for no tenant and for no repository. Only this module makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installer(());

impl fmt::Display for Installer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the installation")
    }
}

/// Who acts. Serialised as the user name that the cluster sees.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// A ServiceAccount, by a token that TokenRequest gave for it.
    ServiceAccount(ServiceAccount),
    /// The controller itself.
    Controller(Controller),
}

impl From<ServiceAccount> for Identity {
    fn from(account: ServiceAccount) -> Self {
        Self::ServiceAccount(account)
    }
}

impl From<Controller> for Identity {
    fn from(controller: Controller) -> Self {
        Self::Controller(controller)
    }
}

impl Identity {
    /// The ServiceAccount, unless it is the controller.
    #[must_use]
    pub fn service_account(&self) -> Option<&ServiceAccount> {
        match self {
            Self::ServiceAccount(account) => Some(account),
            Self::Controller(_) => None,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceAccount(account) => account.fmt(formatter),
            Self::Controller(controller) => controller.fmt(formatter),
        }
    }
}

impl Serialize for Identity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The controller, for what it keeps for itself: the status, the finalizers and the events of what it reconciles, and what a Surface or a
/// Tenant generates.
#[must_use]
pub fn use_for_bookkeeping() -> Controller {
    Controller(())
}

/// Whoever puts in place what an installation consists of; nothing of that comes out of a repository.
#[must_use]
pub fn use_for_installation() -> Installer {
    Installer(())
}

/// The identity of a Kustomization: its `serviceAccountName`, else the default of its own namespace.
///
/// # Errors
/// When the name is not a ServiceAccount's, or nobody may act in the namespace.
pub fn decide_for_kustomization(
    placement: &Placement,
    namespace: &str,
    service_account_name: Option<&str>,
) -> Result<ServiceAccount, Denial> {
    let default = match placement {
        Placement::Disputed { message } => return Err(nobody_acts(message)),
        Placement::Platform {
            default_service_account,
        }
        | Placement::Unclaimed {
            default_service_account,
        } => default_service_account.as_str(),
        Placement::Tenant(tenant) => tenant.default_service_account.as_str(),
    };
    service_account(
        namespace,
        service_account_name.unwrap_or(default),
        "spec.serviceAccountName",
    )
}

/// The identity that a source reads its Secrets as: as a Kustomization without a name would; in a tenant's home namespace as the
/// tenant's GitOps ServiceAccount.
///
/// # Errors
/// When nobody may act in the namespace, or the tenant has no GitOps ServiceAccount.
pub fn decide_for_source(placement: &Placement, namespace: &str) -> Result<ServiceAccount, Denial> {
    match placement {
        Placement::Tenant(tenant) if tenant.home.as_str() == namespace => {
            let name = tenant.gitops.clone()?;
            service_account(namespace, name.as_str(), "the tenant's GitOps ServiceAccount")
        }
        _ => decide_for_kustomization(placement, namespace, None),
    }
}

/// The identity of a Surface: the named ServiceAccount in the platform tier, the tenant's GitOps ServiceAccount in the tenant tier.
///
/// # Errors
/// When the Surface lives where none may live, a platform surface names nobody, or a tenant's surface names somebody.
pub fn decide_for_surface(
    placement: &Placement,
    namespace: &str,
    service_account_name: Option<&str>,
) -> Result<ServiceAccount, Denial> {
    match crate::surface::decide_tier(placement, namespace)? {
        crate::surface::Tier::Platform => match service_account_name {
            Some(name) => service_account(namespace, name, "spec.serviceAccountName"),
            None => Err(Denial::because(
                DenialReason::IdentityMissing,
                format!(
                    "a platform surface must name who it acts as: set spec.serviceAccountName to a ServiceAccount in namespace {namespace}"
                ),
            )),
        },
        crate::surface::Tier::Tenant(tenant) => {
            if let Some(name) = service_account_name {
                return Err(Denial::access(format!(
                    "spec.serviceAccountName: {name:?} is refused: a tenant's surface acts as the tenant's GitOps ServiceAccount and \
                     can't choose another; remove the field"
                )));
            }
            let name = tenant.gitops.clone()?;
            service_account(
                tenant.home.as_str(),
                name.as_str(),
                "the tenant's GitOps ServiceAccount",
            )
        }
    }
}

fn nobody_acts(message: &str) -> Denial {
    Denial::because(DenialReason::IdentityMissing, format!("nobody may act here: {message}"))
}

fn service_account(namespace: &str, name: &str, field: &str) -> Result<ServiceAccount, Denial> {
    let refused = |error: tenure_api::names::NameError| Denial::access(format!("{field}: {error}"));
    Ok(ServiceAccount {
        namespace: NamespaceName::new(namespace).map_err(refused)?,
        name: ServiceAccountName::new(name).map_err(refused)?,
    })
}
