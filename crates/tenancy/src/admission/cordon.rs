//! A cordoned tenant: its owners, and the account that its surfaces act as, change nothing in its namespaces, and whoever else writes
//! there does. Parts of objects (a Pod's status, the scale of a Deployment) and Events are left to whoever may write them, as in
//! Capsule.

use super::namespace::is_owner;
use super::{Case, Findings, Operation, Refusal, Rule, account};

pub(super) fn judge(case: Case<'_>, _findings: &mut Findings) -> Result<(), Refusal> {
    let request = case.request;
    let resource = request.resource;
    let is_event = resource.name == "events" && matches!(resource.group, "" | "events.k8s.io");
    if !resource.subresource.is_empty() || is_event || request.operation == Operation::Connect {
        return Ok(());
    }
    let Some(tenant) = case.tenant.filter(|tenant| tenant.cordoned) else {
        return Ok(());
    };
    if !is_owner(case, tenant) && !account::is_account_of(case, tenant) {
        return Ok(());
    }
    Err(Refusal {
        rule: Rule::Cordoned,
        why: format!(
            "{} may change nothing in namespace {}: Tenant {} is cordoned",
            request.actor.user, request.namespace, tenant.name
        ),
        remedy: "ask an administrator to take spec.cordoned away".to_owned(),
    })
}
