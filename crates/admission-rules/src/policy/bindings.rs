//! Policy for RoleBindings to Tenure's own accounts, by the rule in [`super::super::bindings`]. It is a part of every installation: where no
//! other component checks writes, a binding is still an administrator's.

use tenure_api::metadata::CONTROLLER_SERVICE_ACCOUNT;

use super::super::bindings::{GROUP, READING_ROLES, RESOURCE, WIDE_GROUPS};
use super::{
    Action, Policy, PolicyScope, ResourceRule, USER, Validation, namespace_facts, phrase, quote, variable,
    write_tenant_check,
};
use crate::Rule;
use tenure_tenancy::rights::ADOPT;

/// Its name.
pub(super) const NAME: &str = "account-bindings";

pub(super) fn own_accounts(platform: &str) -> Policy {
    let account = format!("system:serviceaccount:{platform}:");
    let list = |object: &str| {
        format!(
            "({object} == null ? [] : {object}.?subjects.orValue([])).map(subject, subject.kind == 'ServiceAccount' ? \
             'system:serviceaccount:' + string(subject.?namespace.orValue('')) + ':' + string(subject.name) : string(subject.name))\
             .filter(name, name.startsWith({}) || name == {} || name in [{wide}] && \
             !({object}.?roleRef.?kind.orValue('') == 'ClusterRole' && {object}.?roleRef.?name.orValue('') in [{reading}]))",
            quote(&account),
            quote(&format!("system:serviceaccounts:{platform}")),
            wide = WIDE_GROUPS.map(quote).join(", "),
            reading = READING_ROLES.map(quote).join(", "),
        )
    };
    let mut variables = namespace_facts();
    variables.push(variable("old", list("oldObject")));
    variables.push(variable("new", list("object")));
    variables.push(variable(
        "added",
        "variables.new.filter(name, !(name in variables.old))",
    ));
    Policy {
        name: NAME.to_owned(),
        action: Action::Deny,
        place: PolicyScope::InNamespaces,
        about: vec![ResourceRule {
            groups: vec![GROUP],
            resources: vec![RESOURCE],
            operations: vec!["CREATE", "UPDATE"],
        }],
        conditions: vec![
            (
                "may-be-a-tenants",
                format!(
                    "request.namespace != {} && !request.namespace.startsWith('kube-')",
                    quote(platform)
                ),
            ),
            (
                "is-not-the-controllers",
                format!("{USER} != {}", quote(&format!("{account}{CONTROLLER_SERVICE_ACCOUNT}"))),
            ),
        ],
        variables,
        validations: vec![Validation {
            holds: format!(
                "variables.added.size() == 0 || {} || (variables.tenant != '' && {})",
                write_tenant_check(ADOPT, None),
                write_tenant_check(ADOPT, Some("variables.tenant"))
            ),
            rule: Rule::SecretWriter,
            why: phrase(
                "{} may not bind {} in namespace {}: Tenure treats such a RoleBinding as an administrator's permission",
                &[USER, "variables.added[0]", "request.namespace"],
            ),
            remedy: quote(&format!("ask an administrator to create it (verb {ADOPT} on tenants)")),
        }],
    }
}
