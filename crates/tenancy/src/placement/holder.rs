//! The tenant that holds a namespace: from the namespace's label and ownerReferences, and from the Tenant's record.

use tenure_api::metadata::TENANT_LABEL;

use super::{NamespaceFacts, TenantFacts};
use crate::settings::Settings;

/// The tenant that has recorded a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The namespace is the platform's, or unassigned.
    Nobody,
    /// The tenant with this name has recorded the namespace.
    Tenant(String),
    /// The holder isn't known, or is in dispute.
    Unknown,
}

impl Holder {
    pub(crate) fn find<'a>(
        settings: &Settings,
        find_tenant: impl Fn(&str) -> Option<&'a TenantFacts>,
        facts: Option<&NamespaceFacts>,
    ) -> Self {
        match facts.map(|facts| find_holder(settings, find_tenant, facts)) {
            Some(Ok(Some(tenant))) if !tenant.deleting => Self::Tenant(tenant.name.clone()),
            Some(Ok(None)) => Self::Nobody,
            _ => Self::Unknown,
        }
    }
}

/// Returns the tenant that a namespace names, if the Tenant's status records the namespace.
pub(crate) fn find_holder<'a>(
    settings: &Settings,
    find_tenant: impl Fn(&str) -> Option<&'a TenantFacts>,
    facts: &NamespaceFacts,
) -> Result<Option<&'a TenantFacts>, String> {
    match find_owner(settings, find_tenant, facts)? {
        Some(tenant) if !tenant.has_recorded(facts) => Err(format!(
            "namespace {} names tenant {}, whose status doesn't list it with its uid (yet): if the Tenant's condition NamespacesRecorded says that it isn't taken, an administrator assigns it with: tenure adopt {} {}",
            facts.name, tenant.name, tenant.name, facts.name
        )),
        found => Ok(found),
    }
}

/// Returns the tenant that a namespace claims to belong to, whether the tenant has recorded it or not. The rules of this tenant bound
/// writes in the namespace. Returns none if neither label nor ownerReference names a Tenant. A protected namespace is never a tenant's:
/// otherwise its metadata would decide who acts in it.
pub(crate) fn find_owner<'a>(
    settings: &Settings,
    find_tenant: impl Fn(&str) -> Option<&'a TenantFacts>,
    facts: &NamespaceFacts,
) -> Result<Option<&'a TenantFacts>, String> {
    let namespace = &facts.name;
    if settings.is_protected(namespace) {
        return Ok(None);
    }
    match (&facts.tenant_label, facts.tenant_owners.as_slice()) {
        (None, []) => Ok(None),
        // The label is the claim, and the Tenant's record decides. An ownerReference, as Capsule writes one, must not contradict it.
        (Some(label), []) => match find_tenant(label) {
            Some(tenant) if !tenant.uid.is_empty() => Ok(Some(tenant)),
            _ => Err(format!(
                "namespace {namespace} is labelled for tenant {label}, which does not exist"
            )),
        },
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
            match find_tenant(&owner.name) {
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
