//! The ServiceAccount with which the Surfaces of a tenant act.

use std::collections::BTreeSet;

use tenure_api::metadata::TENANT_GITOPS_SUFFIX;
use tenure_api::names::{NamespaceName, ServiceAccountName};

use super::TenantFacts;
use crate::denial::{Denial, DenialReason};

/// Returns the ServiceAccount with which a tenant's Surfaces act: the one ServiceAccount owner in the home namespace that an
/// administrator named in the Tenant, else `<tenant>-gitops`.
///
/// # Errors
/// When several ServiceAccount owners leave the choice open, or the name is not a ServiceAccount's.
pub fn name_gitops_account(tenant: &TenantFacts, home: &NamespaceName) -> Result<ServiceAccountName, Denial> {
    let generated = format!("{}{TENANT_GITOPS_SUFFIX}", tenant.name);
    let prefix = format!("system:serviceaccount:{home}:");
    let accounts = tenant.owners.iter().filter(|owner| owner.kind == "ServiceAccount");
    let named: BTreeSet<&str> = accounts
        .filter_map(|owner| owner.name.strip_prefix(prefix.as_str()))
        .collect();
    let chosen = match named.len() {
        0 => generated.as_str(),
        1 => named.first().copied().unwrap_or(generated.as_str()),
        _ if named.contains(generated.as_str()) => generated.as_str(),
        _ => {
            return Err(Denial::because(
                DenialReason::IdentityMissing,
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
            DenialReason::IdentityMissing,
            format!("tenant {}: {error}", tenant.name),
        )
    })
}
