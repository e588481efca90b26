//! The rule for a cordoned tenant: no identity of the tenant changes anything in its namespaces, and all other users may. Subresources (a Pod's status,
//! the scale of a Deployment) and Events are left to RBAC, as in Capsule. Tokens are not: with one, its bearer would be another identity.

use super::namespace::is_owner;
use super::request::SERVICE_ACCOUNT_PREFIX;
use super::{Case, Findings, Operation, Refusal, Rule, account};
use tenure_tenancy::placement::TenantFacts;

/// Subresources that are denied like a whole object.
pub(super) const PARTS: [(&str, &str); 1] = [("serviceaccounts", "token")];

/// Checks whether the request comes from an identity of the tenant: an owner, its GitOps account, or any ServiceAccount of one of its
/// namespaces. A namespace that the Tenant has recorded counts, and one that only claims to be the Tenant's.
pub(super) fn is_identity_of(case: Case<'_>, tenant: &TenantFacts) -> bool {
    is_owner(case, tenant) || account::is_account_of(case, tenant) || has_account(case, tenant)
}

fn has_account(case: Case<'_>, tenant: &TenantFacts) -> bool {
    let named = case.request.actor.user.strip_prefix(SERVICE_ACCOUNT_PREFIX);
    let Some((namespace, _)) = named.and_then(|named| named.split_once(':')) else {
        return false;
    };
    let is_its = case
        .facts
        .tenant_of(namespace)
        .is_some_and(|owner| owner.uid == tenant.uid);
    is_its || tenant.recorded.contains_key(namespace)
}

pub(super) fn check(case: Case<'_>, _findings: &mut Findings) -> Result<(), Refusal> {
    let request = case.request;
    let resource = request.resource;
    let is_event = resource.name == "events" && matches!(resource.group, "" | "events.k8s.io");
    let is_free_part = !(resource.subresource.is_empty()
        || resource.group.is_empty() && PARTS.contains(&(resource.name, resource.subresource)));
    if is_free_part || is_event || request.operation == Operation::Connect {
        return Ok(());
    }
    let Some(tenant) = case.tenant.filter(|tenant| tenant.cordoned) else {
        return Ok(());
    };
    if !is_identity_of(case, tenant) {
        return Ok(());
    }
    Err(Refusal {
        rule: Rule::Cordoned,
        why: format!(
            "{} may not change anything in namespace {}: Tenant {} is cordoned",
            request.actor.user, request.namespace, tenant.name
        ),
        remedy: "ask an administrator to remove spec.cordoned".to_owned(),
    })
}
