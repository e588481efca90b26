//! Policies for a tenant's GitOps account, if its Tenant keeps it exclusive: its tokens, token Secrets and Pods in the home namespace,
//! and impersonation of it in any namespace.

use super::facts::{ACCOUNT, EXCLUSIVE, HOME, YES, read};
use super::rights::SHOW_TOKEN;
use super::{
    Policy, PolicyScope, ResourceRule, USER, Validation, namespace_facts, phrase, quote, variable, write_tenant_check,
};
use crate::Rule;
use tenure_tenancy::rights::{MINT, OWN};

const REMEDY: &str = "let a Surface or a Kustomization of Tenant {} do it, or use another ServiceAccount";

/// Returns the rule that matches these operations on a resource.
fn about(group: &'static str, resource: &'static str, operations: &[&'static str]) -> ResourceRule {
    ResourceRule {
        groups: vec![group],
        resources: vec![resource],
        operations: operations.to_vec(),
    }
}

/// Policy for requests that would give the account to another user, in the home namespace.
pub(super) fn make_account_use_policy() -> Policy {
    let mut variables = namespace_facts();
    variables.push(variable("account", read(ACCOUNT)));
    variables.push(variable(
        "guarded",
        format!(
            "{} == '{YES}' && variables.account != '' && {} == request.namespace",
            read(EXCLUSIVE),
            read(HOME)
        ),
    ));
    let refuse = |resource: &str, takes: String, why: String| Validation {
        holds: format!("!variables.guarded || request.resource.resource != '{resource}' || !({takes})"),
        rule: Rule::GitopsAccount,
        why,
        remedy: phrase(REMEDY, &["variables.tenant"]),
    };
    let mint = format!(
        "authorizer.group('').resource('serviceaccounts').namespace(request.namespace).name(variables.account)\
         .check('{MINT}').allowed()"
    );
    let of_secret = "object.?metadata.?annotations[?'kubernetes.io/service-account.name'].orValue('')";
    Policy {
        name: "gitops-account".to_owned(),
        action: super::Action::Deny,
        place: PolicyScope::InTenants,
        about: vec![
            about("", "serviceaccounts/token", &["CREATE"]),
            about("", "secrets", &["CREATE", "UPDATE"]),
            about("", "pods", &["CREATE"]),
        ],
        conditions: Vec::new(),
        variables,
        validations: vec![
            refuse(
                "serviceaccounts",
                format!("request.?name.orValue('') == variables.account && !{mint}"),
                phrase(
                    "{} may not ask for a token of ServiceAccount {}, which the tenant's surfaces act as",
                    &[USER, "variables.account"],
                ),
            ),
            refuse(
                "secrets",
                format!(
                    "object.?type.orValue('') == 'kubernetes.io/service-account-token' && {of_secret} == variables.account"
                ),
                phrase(
                    "a Secret can't hold a token of ServiceAccount {}, which the tenant's surfaces act as",
                    &["variables.account"],
                ),
            ),
            refuse(
                "pods",
                "object.?spec.?serviceAccountName.orValue(object.?spec.?serviceAccount.orValue('')) == variables.account"
                    .to_owned(),
                phrase(
                    "a Pod can't run as ServiceAccount {}, which the tenant's surfaces act as",
                    &["variables.account"],
                ),
            ),
        ],
    }
}

/// Policy for writes in the name of such an account without a token of it. Outside its tenant, where the namespace has no facts, a right
/// that only this account has identifies it.
pub(super) fn make_impersonation_policy() -> Policy {
    let credential = "'authentication.kubernetes.io/credential-id'";
    let mut variables = namespace_facts();
    variables.push(variable(
        "own",
        format!(
            "{} == '{YES}' && {USER} == 'system:serviceaccount:' + {} + ':' + {}",
            read(EXCLUSIVE),
            read(HOME),
            read(ACCOUNT)
        ),
    ));
    Policy {
        name: "gitops-account-token".to_owned(),
        action: super::Action::Deny,
        place: PolicyScope::Anywhere,
        about: vec![ResourceRule {
            groups: vec!["*"],
            resources: vec!["*/*"],
            operations: vec!["CREATE", "UPDATE", "DELETE", "CONNECT"],
        }],
        conditions: vec![
            ("by-account", format!("{USER}.startsWith('system:serviceaccount:')")),
            ("no-dry-run", "!has(request.dryRun) || !request.dryRun".to_owned()),
            (
                "no-token",
                format!(
                    "!has(request.userInfo.extra) || !({credential} in request.userInfo.extra) || \
                     !request.userInfo.extra[{credential}].exists(id, id.startsWith('JTI='))"
                ),
            ),
        ],
        variables,
        validations: vec![Validation {
            holds: format!(
                "!variables.own && (!{} || {})",
                write_tenant_check(SHOW_TOKEN, None),
                write_tenant_check(OWN, None)
            ),
            rule: Rule::GitopsAccount,
            why: phrase(
                "{} may write only with a token of its own: this request impersonates it, or its token has no id",
                &[USER],
            ),
            remedy: quote("let a Surface or a Kustomization of its Tenant do it, or use another ServiceAccount"),
        }],
    }
}
