//! The rule that only a tenant's Surfaces use their account.
//!
//! Kubernetes' role `edit` allows to request the account's tokens, store one in a Secret, start a Pod as it and impersonate it, and an
//! owner has that role in the home namespace. Each of these is denied if the Tenant keeps its account exclusive. Otherwise the user is
//! warned.

use serde_json::Value;
use tenure_api::metadata::{GITOPS_ACCOUNT, GITOPS_ACCOUNT_EXCLUSIVE};
use tenure_api::names::{NamespaceName, ServiceAccountName};

use super::request::{SERVICE_ACCOUNT_PREFIX, read_metadata};
use super::{Case, Findings, Operation, Question, Refusal, Rule};
use tenure_tenancy::placement::{TenantFacts, name_gitops_account};

pub(super) fn check(case: Case<'_>, findings: &mut Findings) -> Result<(), Refusal> {
    let speaks = find_spoken_for(case);
    let takes = find_taken(case);
    for (tenant, what) in [speaks, takes].into_iter().flatten() {
        let refusal = Refusal {
            rule: Rule::GitopsAccount,
            why: what,
            remedy: format!(
                "let a Surface or a Kustomization of Tenant {} do it, or use another ServiceAccount",
                tenant.name
            ),
        };
        if tenant.exclusive_account {
            return Err(refusal);
        }
        findings.warnings.push(format!(
            "{}: {}; it is refused once the Tenant has the annotation {GITOPS_ACCOUNT}={GITOPS_ACCOUNT_EXCLUSIVE} ({})",
            refusal.why, refusal.remedy, refusal.rule
        ));
    }
    Ok(())
}

/// Returns the home namespace and the account of a Tenant, if it can have one.
pub(super) fn account_of(tenant: &TenantFacts) -> Option<(NamespaceName, ServiceAccountName)> {
    let home = NamespaceName::new(tenant.home().to_owned()).ok()?;
    let account = name_gitops_account(tenant, &home).ok()?;
    Some((home, account))
}

/// Checks whether the user is the tenant's GitOps account.
pub(super) fn is_account_of(case: Case<'_>, tenant: &TenantFacts) -> bool {
    let named = case.request.actor.user.strip_prefix(SERVICE_ACCOUNT_PREFIX);
    let parts = named.and_then(|named| named.split_once(':'));
    let own = account_of(tenant);
    match (parts, &own) {
        (Some((namespace, name)), Some((home, account))) => namespace == home.as_str() && name == account.as_str(),
        _ => false,
    }
}

/// Returns the Tenant whose GitOps account the user is.
pub(super) fn find_tenant_of_account(case: Case<'_>) -> Option<&TenantFacts> {
    let named = case.request.actor.user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?;
    let (namespace, _) = named.split_once(':')?;
    let tenant = case.facts.tenant_of(namespace)?;
    is_account_of(case, tenant).then_some(tenant)
}

/// Returns the Tenant whose account is used without a token of it.
fn find_spoken_for(case: Case<'_>) -> Option<(&TenantFacts, String)> {
    let request = case.request;
    let tenant = find_tenant_of_account(case)?;
    let is_pretended = !request.is_dry_run && !request.actor.has_shown_token();
    is_pretended.then(|| {
        let why = format!(
            "{} may write only with a token of its own: this request impersonates it, or its token has no id",
            request.actor.user
        );
        (tenant, why)
    })
}

/// Returns the Tenant whose account the user would get by this request, and the way.
fn find_taken(case: Case<'_>) -> Option<(&TenantFacts, String)> {
    let request = case.request;
    let tenant = case.tenant?;
    if request.namespace != tenant.home() {
        return None;
    }
    let (home, account) = account_of(tenant)?;
    let user = request.actor.user;
    let object = request.object;
    let text = |path: &str| object.and_then(|object| object.pointer(path)).and_then(Value::as_str);
    let resource = request.resource;
    match (resource.group, resource.name, resource.subresource) {
        ("", "serviceaccounts", "token") if request.operation == Operation::Create => {
            let may_mint = || case.is_allowed(&Question::about_account(home.as_str(), account.as_str()));
            (request.name == account.as_str() && !may_mint()).then(|| {
                let why = format!(
                    "{user} may not ask for a token of ServiceAccount {account}, which the tenant's surfaces act as"
                );
                (tenant, why)
            })
        }
        ("", "secrets", "") if request.writes() => {
            let is_token = text("/type") == Some("kubernetes.io/service-account-token");
            let annotations = read_metadata(object?).annotations.unwrap_or_default();
            let names = annotations.get("kubernetes.io/service-account.name");
            (is_token && names.is_some_and(|name| name == account.as_str())).then(|| {
                let why = format!(
                    "a Secret can't hold a token of ServiceAccount {account}, which the tenant's surfaces act as"
                );
                (tenant, why)
            })
        }
        // The account of a Pod can't be changed, so only its creation counts. A Pod can always be deleted.
        ("", "pods", "") if request.operation == Operation::Create => {
            let runs_as = text("/spec/serviceAccountName").or_else(|| text("/spec/serviceAccount"));
            (runs_as == Some(account.as_str())).then(|| {
                let why = format!("a Pod can't run as ServiceAccount {account}, which the tenant's surfaces act as");
                (tenant, why)
            })
        }
        _ => None,
    }
}
