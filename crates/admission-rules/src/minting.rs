//! The rules for token requests of Tenure's own accounts.
//!
//! A lane may request the token of any ServiceAccount in a namespace that it works in, since a role that all namespaces share can name none, and the
//! controllers may bind lanes anywhere. So three rules bound the requests. In Kubernetes' own namespaces, these accounts get no token. Outside of
//! tenants, they get tokens only for accounts that objects there or an administrator name. Nowhere do they get the token of an account that may do
//! everything, unless an administrator allowed it for that account by RBAC.

use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, MINTABLE_ACCOUNTS};

use super::request::SERVICE_ACCOUNT_PREFIX;
use super::{Case, Findings, Operation, Question, Refusal, Rule};
use tenure_tenancy::rights::MINT_ADMINISTRATOR;
use tenure_tenancy::settings::is_kubernetes_own;

/// The part of a denial's message by which [`may_pass`] recognises that no known object names the account.
const UNKNOWN: &str = "is known to name it";

/// Checks whether a denied token request may be allowed soon: Tenure may not have seen the object yet that names the
/// account.
#[must_use]
pub fn may_pass(refusal: &str) -> bool {
    refusal.contains(UNKNOWN) && refusal.trim_end().ends_with(&format!("({})", Rule::Minting))
}

/// The prefix of the names of Tenure's own accounts, in the platform's namespace.
pub(super) const OWN_ACCOUNTS: &str = "tenure-";

pub(super) fn check(case: Case<'_>, _: &mut Findings) -> Result<(), Refusal> {
    let request = case.request;
    let resource = (
        request.resource.group,
        request.resource.name,
        request.resource.subresource,
    );
    if request.operation != Operation::Create || resource != ("", "serviceaccounts", "token") {
        return Ok(());
    }
    let platform = &case.facts.settings().platform_namespace;
    let named = request.actor.user.strip_prefix(SERVICE_ACCOUNT_PREFIX);
    let asker = named
        .and_then(|named| named.strip_prefix(platform.as_str()))
        .and_then(|named| named.strip_prefix(':'))
        .filter(|asker| asker.starts_with(OWN_ACCOUNTS));
    let Some(asker) = asker else { return Ok(()) };
    let (user, namespace, name) = (request.actor.user, request.namespace, request.name);
    let refuse = |why: String, remedy: String| {
        Err(Refusal {
            rule: Rule::Minting,
            why,
            remedy,
        })
    };
    if is_kubernetes_own(namespace) {
        return refuse(
            format!("{user} may not ask for tokens in namespace {namespace}, which belongs to Kubernetes"),
            "name a ServiceAccount of another namespace".to_owned(),
        );
    }
    let is_own = namespace == platform && name.starts_with(OWN_ACCOUNTS);
    if is_own && asker != CONTROLLER_SERVICE_ACCOUNT {
        return refuse(
            format!("{user} may not ask for a token of ServiceAccount {name}, which belongs to Tenure"),
            "name another ServiceAccount".to_owned(),
        );
    }
    // Without admission no component indexes the names, so nothing is known about the account.
    let is_kept = case.facts.settings().judges_writes();
    let is_named = |known: &tenure_tenancy::placement::NamespaceFacts| known.mintable.contains(name);
    if is_kept
        && !is_own
        && case.facts.tenant_of(namespace).is_none()
        && !case.facts.find_namespace(namespace).is_some_and(is_named)
    {
        return refuse(
            format!(
                "{user} may not ask for a token of ServiceAccount {name}: no object in namespace {namespace} {UNKNOWN}"
            ),
            format!(
                "name it in a Kustomization or Surface there, or ask an administrator to list it in the namespace's annotation {MINTABLE_ACCOUNTS}"
            ),
        );
    }
    let is_administrator = case
        .surroundings
        .may_account((namespace, name), &Question::about_everything());
    if is_administrator && !case.is_allowed(&Question::about_administrator(namespace, name)) {
        return refuse(
            format!(
                "{user} may not ask for a token of ServiceAccount {name} in namespace {namespace}, which is an administrator of the cluster"
            ),
            format!(
                "give the account fewer rights, or ask an administrator to give {user} the verb {MINT_ADMINISTRATOR} on serviceaccounts/{name} there"
            ),
        );
    }
    Ok(())
}
