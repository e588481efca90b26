//! Policy for a cordoned tenant, by the owners in the facts of its namespaces. The policy for namespaces covers the namespaces
//! themselves.

use super::facts::{ACCOUNT, ACCOUNTS_OF, CORDONED, EVERYBODY, HOME, read};
use super::{
    Policy, PolicyScope, ResourceRule, USER, Validation, kubernetes, namespace_facts, phrase, quote, variable,
};
use crate::Rule;

/// Returns the expression that the user is denied, from facts among annotations.
pub(super) fn is_denied_by_cordon(owners: &str, home: &str, account: &str) -> String {
    format!(
        "{everybody} in {owners} || ('User ' + {USER}) in {owners} || ('ServiceAccount ' + {USER}) in {owners} || \
         (has(request.userInfo.groups) && request.userInfo.groups.exists(group, ('Group ' + group) in {owners})) || \
         {USER} == 'system:serviceaccount:' + {home} + ':' + {account} || ({USER}.startsWith('system:serviceaccount:') && \
         ('{ACCOUNTS_OF} ' + {USER}.split(':')[2] in {owners} || '{ACCOUNTS_OF} {EVERYBODY}' in {owners}))",
        everybody = quote(EVERYBODY),
    )
}

/// Returns the message for a denied user.
pub(super) fn write_cordon_message(namespace: &str, tenant: &str) -> (String, String) {
    (
        phrase(
            "{} may not change anything in namespace {}: Tenant {} is cordoned",
            &[USER, namespace, tenant],
        ),
        quote("ask an administrator to remove spec.cordoned"),
    )
}

pub(super) fn make_cordon_policy(platform: &str) -> Policy {
    let mut conditions = vec![(
        "no-event",
        "request.resource.resource != 'events' || !(request.resource.group in ['', 'events.k8s.io'])".to_owned(),
    )];
    // Controllers of Kubernetes and Tenure keep existing objects in order.
    conditions.extend(kubernetes::not_api_server_or_tenure(platform));
    let mut variables = namespace_facts();
    variables.push(variable("owners", format!("{}.split('\\n')", read(CORDONED))));
    let is_cordoned = format!(
        "{} in variables.facts",
        quote(&format!("{}{CORDONED}", super::FACTS_PREFIX))
    );
    let (why, remedy) = write_cordon_message("request.namespace", "variables.tenant");
    Policy {
        name: "cordoned".to_owned(),
        action: super::Action::Deny,
        place: PolicyScope::InTenants,
        about: vec![ResourceRule {
            groups: vec!["*"],
            resources: vec!["*", "serviceaccounts/token"],
            operations: vec!["CREATE", "UPDATE", "DELETE"],
        }],
        conditions,
        variables,
        validations: vec![Validation {
            holds: format!(
                "!({is_cordoned}) || !({})",
                is_denied_by_cordon("variables.owners", &read(HOME), &read(ACCOUNT))
            ),
            rule: Rule::Cordoned,
            why,
            remedy,
        }],
    }
}
