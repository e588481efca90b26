//! The identities that act. Only this module makes an [`Identity`], and no write to a cluster is possible without one. The type of an identity is part of each
//! interface, so none can take the place of another.
//!
//! - A [`ServiceAccount`] acts for a request of a user or a repository.
//! - An [`RemoteClusterUser`] acts in the cluster of a kubeconfig that a ServiceAccount has read.
//! - A [`LaneAccount`] does the bookkeeping of one lane.
//! - The [`Controller`] does the bookkeeping above all lanes.
//! - The [`SecretWriter`] writes credentials where an administrator lets it.
//!
//! Empty, unknown and malformed names are denied. No identity acts as an account of Tenure's own for a repository, and none falls back to the rights of a lane
//! or of the controller.

use std::fmt;

use serde::Serialize;
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, LANE_PREFIX, PLATFORM_NAMESPACE, SECRET_WRITER};
use tenure_api::names::{NamespaceName, ServiceAccountName};

use crate::denial::{Denial, DenialReason};
use crate::lane::{Lane, TENANT_LANE, decide_lane};
use crate::placement::Placement;

/// A ServiceAccount whose name has been checked and whose use here has been allowed. Only this module makes one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceAccount {
    namespace: NamespaceName,
    name: ServiceAccountName,
}

impl ServiceAccount {
    /// Returns the account's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.as_str()
    }

    /// Returns the account's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }
}

impl fmt::Display for ServiceAccount {
    /// Writes the user name that the cluster sees.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl Serialize for ServiceAccount {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The account of one lane, in the platform namespace. It does the bookkeeping of the lane's namespaces (statuses, finalizers, events,
/// objects that a Surface generates), and requests the tokens of the ServiceAccounts there. It applies nothing that a repository contains.
/// Only this module makes one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneAccount {
    name: String,
}

impl LaneAccount {
    /// Returns the account's namespace.
    #[must_use]
    pub fn namespace(&self) -> &'static str {
        PLATFORM_NAMESPACE
    }

    /// Returns the account's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for LaneAccount {
    /// Writes the user name that the cluster sees.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "system:serviceaccount:{PLATFORM_NAMESPACE}:{}", self.name)
    }
}

impl Serialize for LaneAccount {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The controller itself, with its own narrow RBAC: for everything above the lanes (Tenants, the objects that they generate, the rights
/// of lanes), never for content of a repository. Only this module makes one.
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

/// The account that writes credentials, in the platform namespace. It writes the Secrets that Tenure makes, and the rights by which one
/// account reads one of them. It has rights only where an administrator has bound it, and reads and writes nothing else. Only this module
/// makes one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretWriter(());

impl SecretWriter {
    /// Returns the account's namespace.
    #[must_use]
    pub fn namespace(&self) -> &'static str {
        PLATFORM_NAMESPACE
    }

    /// Returns the account's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        SECRET_WRITER
    }
}

impl fmt::Display for SecretWriter {
    /// Writes the user name that the cluster sees.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "system:serviceaccount:{PLATFORM_NAMESPACE}:{SECRET_WRITER}")
    }
}

impl Serialize for SecretWriter {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The user of a kubeconfig in another cluster. It has no rights here. Its requests carry the credential from a Secret that the
/// ServiceAccount may read, and never a token of this cluster. Only this module makes one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemoteClusterUser {
    account: ServiceAccount,
}

impl RemoteClusterUser {
    /// Returns the ServiceAccount that has read the kubeconfig.
    #[must_use]
    pub fn account(&self) -> &ServiceAccount {
        &self.account
    }
}

impl fmt::Display for RemoteClusterUser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the user of spec.kubeConfig")
    }
}

/// The administrator that installs Tenure. With this user's rights the program writes the objects of an installation, before any
/// other identity acts. It stands for no tenant and for no repository. Only this module makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installer(());

impl fmt::Display for Installer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the installation")
    }
}

/// The identity with which a request is sent to a cluster. It is serialised as the user name that the cluster sees.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// A ServiceAccount, by a token that TokenRequest gave for it.
    ServiceAccount(ServiceAccount),
    /// The account of a lane, by a token that TokenRequest gave for it.
    Lane(LaneAccount),
    /// The controller itself.
    Controller(Controller),
    /// The account that writes credentials, by a token that TokenRequest gave for it.
    SecretWriter(SecretWriter),
    /// The user of a kubeconfig, in another cluster.
    Elsewhere(RemoteClusterUser),
}

impl From<ServiceAccount> for Identity {
    fn from(account: ServiceAccount) -> Self {
        Self::ServiceAccount(account)
    }
}

impl From<LaneAccount> for Identity {
    fn from(account: LaneAccount) -> Self {
        Self::Lane(account)
    }
}

impl From<Controller> for Identity {
    fn from(controller: Controller) -> Self {
        Self::Controller(controller)
    }
}

impl From<SecretWriter> for Identity {
    fn from(writer: SecretWriter) -> Self {
        Self::SecretWriter(writer)
    }
}

impl From<RemoteClusterUser> for Identity {
    fn from(user: RemoteClusterUser) -> Self {
        Self::Elsewhere(user)
    }
}

impl Identity {
    /// Returns the ServiceAccount, unless it is an account of Tenure's own.
    #[must_use]
    pub fn service_account(&self) -> Option<&ServiceAccount> {
        match self {
            Self::ServiceAccount(account) => Some(account),
            Self::Lane(_) | Self::Controller(_) | Self::SecretWriter(_) | Self::Elsewhere(_) => None,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceAccount(account) => account.fmt(formatter),
            Self::Lane(account) => account.fmt(formatter),
            Self::Controller(controller) => controller.fmt(formatter),
            Self::SecretWriter(writer) => writer.fmt(formatter),
            Self::Elsewhere(user) => user.fmt(formatter),
        }
    }
}

impl Serialize for Identity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns the account that does the bookkeeping of a namespace: the statuses, finalizers and events of its objects, and the objects
/// that a Surface generates. Each lane has its own account. The name of a tenant's lane never equals that of the platform's or the
/// pool's, whatever the tenant's name is.
#[must_use]
pub fn decide_for_lane(placement: &Placement, namespace: &str) -> LaneAccount {
    let name = match decide_lane(placement, namespace) {
        Lane::Platform => format!("{LANE_PREFIX}platform"),
        Lane::Pool => format!("{LANE_PREFIX}pool"),
        Lane::Protected(namespace) => format!("{LANE_PREFIX}protected-{namespace}"),
        // A tenant's name has at most 63 characters, all of which are valid in the name of a
        // ServiceAccount.
        Lane::Tenant(tenant) => format!("{LANE_PREFIX}{TENANT_LANE}{tenant}"),
    };
    LaneAccount { name }
}

/// Returns the controller, for everything above the lanes: Tenants, the objects that they generate, and the accounts and
/// rights of the lanes.
#[must_use]
pub fn use_for_bookkeeping() -> Controller {
    Controller(())
}

/// Returns the account that writes credentials into a namespace: the keys of a Surface's sources, where the Surface may live.
///
/// # Errors
/// Where no Surface may live.
pub fn decide_for_credentials(placement: &Placement, namespace: &str) -> Result<SecretWriter, Denial> {
    crate::surface::decide_tier(placement, namespace)?;
    Ok(SecretWriter(()))
}

/// Returns the account that writes the Secrets of an AccessProvider into namespaces in which an administrator allows it. This is the account that
/// writes credentials, or the named one of the platform namespace.
///
/// # Errors
/// When the name is not a ServiceAccount's, or is another account of Tenure's own.
pub fn decide_for_access_writer(service_account_name: Option<&str>) -> Result<Identity, Denial> {
    match service_account_name {
        None | Some(SECRET_WRITER) => Ok(SecretWriter(()).into()),
        Some(name) => {
            let account = service_account(PLATFORM_NAMESPACE, name, "spec.writerServiceAccountName")?;
            Ok(account.into())
        }
    }
}

/// Returns the account that reads the credential of an AccessProvider's authoriser, and writes new credentials
/// before they are delivered.
///
/// # Errors
/// When the name is not a ServiceAccount's, or is an account of Tenure's own.
pub fn decide_for_authoriser(service_account_name: &str) -> Result<ServiceAccount, Denial> {
    service_account(
        PLATFORM_NAMESPACE,
        service_account_name,
        "spec.authoriser.serviceAccountName",
    )
}

/// Returns the account that writes the HelmReleases, Namespaces and ArtifactGenerators of Packages and PackageSources. An
/// administrator names it in the settings of the controllers.
///
/// # Errors
/// When no account is named, when the name is not a ServiceAccount's, or is an account of Tenure's own.
pub fn decide_for_packages(service_account_name: Option<&str>) -> Result<ServiceAccount, Denial> {
    match service_account_name.filter(|name| !name.is_empty()) {
        Some(name) => service_account(PLATFORM_NAMESPACE, name, "the account for Packages"),
        None => Err(nobody_acts(&format!(
            "no account is set for Packages; an administrator names a ServiceAccount of namespace {PLATFORM_NAMESPACE}: \
             --packages-service-account"
        ))),
    }
}

/// Returns the user of a kubeconfig that a ServiceAccount has read, in the cluster that the
/// kubeconfig names.
#[must_use]
pub fn use_elsewhere(account: &ServiceAccount) -> RemoteClusterUser {
    RemoteClusterUser {
        account: account.clone(),
    }
}

/// Returns the administrator that writes the objects of an installation. None of these objects comes
/// from a repository.
#[must_use]
pub fn use_for_installation() -> Installer {
    Installer(())
}

/// Returns the identity of a Kustomization: its `serviceAccountName`, else the default of its own
/// namespace.
///
/// # Errors
/// When the name is not a ServiceAccount's, or no account may act in the namespace.
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
            ..
        } => default_service_account.as_str(),
        Placement::Tenant(tenant) => tenant.default_service_account.as_str(),
    };
    service_account(
        namespace,
        service_account_name.unwrap_or(default),
        "spec.serviceAccountName",
    )
}

/// Returns the ServiceAccount of a namespace that a ConfigMap names, whose token proves the sender in
/// another cluster.
///
/// # Errors
/// When the name is not a ServiceAccount's, or no account may act in the namespace.
pub(crate) fn decide_for_token(placement: &Placement, namespace: &str, name: &str) -> Result<ServiceAccount, Denial> {
    match placement {
        Placement::Disputed { message } => Err(nobody_acts(message)),
        _ => service_account(namespace, name, "serviceAccountName"),
    }
}

/// Returns the identity with which a source reads its Secrets. In a tenant's home namespace, this is the tenant's GitOps
/// account. Elsewhere it is the identity of a Kustomization without a name.
///
/// # Errors
/// When no account may act in the namespace, or the tenant has no GitOps account.
pub fn decide_for_source(placement: &Placement, namespace: &str) -> Result<ServiceAccount, Denial> {
    match placement {
        Placement::Tenant(tenant) if tenant.home.as_str() == namespace => {
            let name = tenant.gitops.clone()?;
            service_account(namespace, name.as_str(), "the tenant's GitOps ServiceAccount")
        }
        _ => decide_for_kustomization(placement, namespace, None),
    }
}

/// Returns the identity of a Surface: the named ServiceAccount in the platform tier, and the tenant's GitOps account in the tenant tier. If
/// Flux's own controller applies the objects of Surfaces, and an administrator named an account for it, that account is returned.
///
/// # Errors
/// When no Surface may live in the namespace, a Surface of the platform names no account, or a tenant's Surface names one.
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
                    "a platform surface must name its account: set spec.serviceAccountName to a ServiceAccount in namespace {namespace}"
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
            let own = tenant.gitops.clone()?;
            let name = tenant.applier.as_deref().unwrap_or(own.as_str());
            service_account(tenant.home.as_str(), name, "the tenant's GitOps ServiceAccount")
        }
    }
}

/// Returns the denial for a namespace in which no account may act.
fn nobody_acts(message: &str) -> Denial {
    Denial::because(
        DenialReason::IdentityMissing,
        format!("no identity may act here: {message}"),
    )
}

fn service_account(namespace: &str, name: &str, field: &str) -> Result<ServiceAccount, Denial> {
    let refused = |error: tenure_api::names::NameError| Denial::access(format!("{field}: {error}"));
    let is_own = [CONTROLLER_SERVICE_ACCOUNT, SECRET_WRITER].contains(&name) || name.starts_with(LANE_PREFIX);
    if namespace == PLATFORM_NAMESPACE && is_own {
        return Err(Denial::access(format!(
            "{field}: ServiceAccount {namespace}/{name} is Tenure's own, and no object from a repository may act as it: name another"
        )));
    }
    Ok(ServiceAccount {
        namespace: NamespaceName::new(namespace).map_err(refused)?,
        name: ServiceAccountName::new(name).map_err(refused)?,
    })
}
