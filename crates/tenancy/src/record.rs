//! The record of a tenant's namespaces: the names and uids in its Tenant's status. A label and an ownerReference are claims of a namespace. The record is the
//! checked result.
//!
//! This module decides when a status counts as a record, and when a namespace that names a Tenant is recorded. Where admission did not check the writer of a
//! namespace's metadata, the metadata alone is not believed.

use sha2::{Digest as _, Sha256};
use tenure_api::metadata::TENANT_LABEL;
use tenure_api::{Tenant, condition};

use crate::denial::Denial;
use crate::placement::{NamespaceFacts, TenancyFacts, TenantFacts};
use crate::settings::Settings;

/// The state of a Tenant's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// No status exists: nothing was ever recorded, or all of it is lost.
    New,
    /// A status exists, but is no record: it is from a version without records, or from Capsule.
    Earlier,
    /// The record counts.
    Begun,
}

impl RecordState {
    /// Returns the state of a Tenant's record. A condition marks it, which is lost only together with the
    /// record.
    #[must_use]
    pub fn read(tenant: &Tenant) -> Self {
        match &tenant.status {
            None => Self::New,
            Some(status) if condition::find(&status.conditions, condition::NAMESPACES_RECORDED).is_some() => {
                Self::Begun
            }
            // A status that was emptied counts as missing.
            Some(status) if status.spaces.is_empty() && status.namespaces.is_empty() && status.size == 0 => Self::New,
            Some(_) => Self::Earlier,
        }
    }
}

impl TenantFacts {
    /// Checks whether the Tenant's record has exactly this namespace.
    #[must_use]
    pub fn has_recorded(&self, namespace: &NamespaceFacts) -> bool {
        !namespace.uid.is_empty() && self.recorded.get(&namespace.name) == Some(&namespace.uid)
    }
}

/// Checks whether the controllers created this namespace for the Tenant and died before they recorded it.
///
/// The Tenant's status has the digest of the proof before the namespace exists, and the namespace bears the proof itself. Readers of the status
/// can't compute a proof from its digest, so no other client can create the namespace in the controllers' place.
#[must_use]
pub fn is_intended(tenant: &TenantFacts, namespace: &NamespaceFacts) -> bool {
    let proof = namespace.creation_proof.as_deref().filter(|proof| !proof.is_empty());
    proof.is_some_and(|proof| tenant.intended.get(&namespace.name) == Some(&digest_proof(proof)))
}

/// Returns the digest of a proof, as a Tenant's status records it.
#[must_use]
pub fn digest_proof(proof: &str) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(proof.as_bytes())))
}

/// Checks whether a namespace that names a Tenant by its label is recorded now.
///
/// The namespace's metadata is believed in three cases: where admission checks all writes; once, when the record begins with the existing
/// namespaces; and for the home, while nothing is recorded.
#[must_use]
pub fn is_believed(settings: &Settings, tenant: &TenantFacts, state: RecordState, namespace: &str) -> bool {
    let is_home = tenant.home() == namespace;
    settings.judges_writes() || state == RecordState::Earlier || (state == RecordState::New && is_home)
}

/// Checks whether a namespace is or may become a tenant's: it does not exist yet, or has the tenant's label and belongs to no
/// other tenant. The tenant's name as its name is not enough.
///
/// # Errors
/// When it is the platform's, Kubernetes' own, another tenant's, being deleted, or not labelled for the tenant.
pub fn check_takeable(tenancy: &TenancyFacts, tenant: &TenantFacts, namespace: &str) -> Result<(), Denial> {
    let refuse = |why: String| {
        Err(Denial::access(format!(
            "namespace {namespace} can't become tenant {}'s: {why}",
            tenant.name
        )))
    };
    if tenant.uid.is_empty() {
        return refuse("the Tenant has no uid yet".to_owned());
    }
    if namespace == tenancy.settings.platform_namespace {
        return refuse("it is the platform namespace".to_owned());
    }
    if tenancy.settings.is_protected(namespace) {
        return refuse("it belongs to Kubernetes, or it is protected (--protected-namespaces)".to_owned());
    }
    let rival = tenancy
        .tenants
        .iter()
        .find(|other| other.uid != tenant.uid && !other.deleting && other.home() == namespace);
    if let Some(rival) = rival {
        return refuse(format!("it is the home namespace of tenant {}", rival.name));
    }
    let Some(facts) = tenancy.namespaces.iter().find(|facts| facts.name == namespace) else {
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
