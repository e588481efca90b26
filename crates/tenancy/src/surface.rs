//! Decides the tier of a Surface. The tier follows from the namespace of the Surface, and no field of the Surface
//! can claim it.

use crate::denial::{Denial, DenialReason};
use crate::placement::{Placement, TenantPlacement};

/// The tier of a Surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier<'a> {
    /// Reconciled for administrators, cluster scope.
    Platform,
    /// Reconciled for a tenant, within its namespaces.
    Tenant(&'a TenantPlacement),
}

impl Tier<'_> {
    /// Returns the word in the status.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Platform => "Platform",
            Self::Tenant(_) => "Tenant",
        }
    }
}

/// Returns the tier of a Surface in a namespace.
///
/// # Errors
/// In a tenant's namespace that is not its home namespace (the message names the home namespace), and wherever else no Surface may live.
pub fn decide_tier<'a>(placement: &'a Placement, namespace: &str) -> Result<Tier<'a>, Denial> {
    match placement {
        Placement::Platform { .. } => Ok(Tier::Platform),
        Placement::Tenant(tenant) if tenant.home.as_str() == namespace => Ok(Tier::Tenant(tenant)),
        Placement::Tenant(tenant) => Err(Denial::because(
            DenialReason::WrongNamespace,
            format!(
                "namespace {namespace} belongs to tenant {}, whose surfaces live in its home namespace {}: create the Surface there",
                tenant.tenant, tenant.home
            ),
        )),
        Placement::Unclaimed { .. } => Err(Denial::because(
            DenialReason::WrongNamespace,
            format!(
                "namespace {namespace} is neither the platform namespace nor a tenant's home namespace: a Surface here has no identity"
            ),
        )),
        Placement::Disputed { message } => Err(Denial::because(
            DenialReason::WrongNamespace,
            format!("a Surface here has no identity: {message}"),
        )),
    }
}
