//! Policies for token requests of Tenure's own accounts.
//!
//! An annotation on a namespace without a tenant lists the accounts that objects there name. The controllers write this annotation and keep the
//! policy that reads it in force. The other policy is above the controllers, as every holder of their token could write the annotation. It denies
//! these accounts the token of any account that may do everything, whatever rights they can bind.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, MINTABLE_ACCOUNTS, MINTABLE_FACT};
use tenure_api::names::ServiceAccountName;

use super::facts::LONGEST_LIST;
use super::{Action, Policy, PolicyScope, ResourceRule, USER, Validation, namespace_facts, phrase, quote, variable};
use crate::Rule;
use crate::minting::OWN_ACCOUNTS;
use tenure_tenancy::facts::FactIndex;
use tenure_tenancy::placement::Placement;
use tenure_tenancy::rights::MINT_ADMINISTRATOR;
use tenure_tenancy::settings::is_kubernetes_own;

/// The name of the policy above the controllers, without the common prefix.
pub(super) const ADMINISTRATORS: &str = "minting-administrators";

/// The ServiceAccounts that objects name, by the namespace of both. Only namespaces without a
/// tenant have entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MintableAccounts(BTreeMap<String, BTreeSet<String>>);

impl MintableAccounts {
    /// Returns the account with which an object in a namespace acts, from the name in its spec. Returns none if the namespace is a tenant's, or
    /// no account may act there.
    #[must_use]
    pub fn find_account<'a>(placement: &'a Placement, namespace: &str, named: Option<&'a str>) -> Option<&'a str> {
        let (default, is_platform) = match placement {
            Placement::Platform {
                default_service_account,
            } => (default_service_account.as_str(), true),
            Placement::Unclaimed {
                default_service_account,
                ..
            } => (default_service_account.as_str(), false),
            Placement::Tenant(_) | Placement::Disputed { .. } => return None,
        };
        let account = named.unwrap_or(default);
        let is_own = is_kubernetes_own(namespace) || is_platform && account.starts_with(OWN_ACCOUNTS);
        (!is_own && ServiceAccountName::new(account).is_ok()).then_some(account)
    }

    /// Adds the account with which an object in a namespace acts.
    pub fn add(&mut self, facts: &FactIndex, namespace: &str, named: Option<&str>) {
        if let Some(account) = Self::find_account(&facts.find_placement(namespace), namespace, named) {
            let accounts = self.0.entry(namespace.to_owned()).or_default();
            accounts.insert(account.to_owned());
        }
    }

    /// Returns the annotation of a namespace. Accounts that don't fit are left out, and no token of theirs is
    /// requested.
    pub(super) fn describe(&self, namespace: &str) -> Option<String> {
        let mut listed = String::new();
        for account in self.0.get(namespace)? {
            if listed.len() + 1 + account.len() > LONGEST_LIST {
                break;
            }
            if !listed.is_empty() {
                listed.push(',');
            }
            listed.push_str(account);
        }
        Some(listed)
    }
}

fn about_tokens() -> Vec<ResourceRule> {
    vec![ResourceRule {
        groups: vec![""],
        resources: vec!["serviceaccounts/token"],
        operations: vec!["CREATE"],
    }]
}

fn by_tenure(platform: &str) -> (&'static str, String) {
    let own = quote(&format!("system:serviceaccount:{platform}:{OWN_ACCOUNTS}"));
    ("by-tenure", format!("{USER}.startsWith({own})"))
}

fn refuse(holds: String, why: String, remedy: String) -> Validation {
    Validation {
        holds,
        rule: Rule::Minting,
        why,
        remedy,
    }
}

/// Returns the policy for tokens: none in Kubernetes' own namespaces, and only those of named
/// accounts outside of tenants.
pub(super) fn make_named_account_policy(platform: &str) -> Policy {
    let platform_name = quote(platform);
    let controller = quote(&format!(
        "system:serviceaccount:{platform}:{CONTROLLER_SERVICE_ACCOUNT}"
    ));
    let listed = |key: &str| {
        format!(
            "variables.facts[?{}].orValue('').split(',').exists(name, name.trim() == variables.name)",
            quote(key)
        )
    };
    let mut variables = namespace_facts();
    variables.push(variable("name", "request.?name.orValue('')"));
    variables.push(variable(
        "isOwn",
        format!("request.namespace == {platform_name} && variables.name.startsWith('{OWN_ACCOUNTS}')"),
    ));
    Policy {
        name: "minting".to_owned(),
        action: Action::Deny,
        place: PolicyScope::InNamespaces,
        about: about_tokens(),
        conditions: vec![by_tenure(platform)],
        variables,
        validations: vec![
            refuse(
                "!request.namespace.startsWith('kube-')".to_owned(),
                phrase(
                    "{} may not ask for tokens in namespace {}, which belongs to Kubernetes",
                    &[USER, "request.namespace"],
                ),
                quote("name a ServiceAccount of another namespace"),
            ),
            refuse(
                format!("!variables.isOwn || {USER} == {controller}"),
                phrase(
                    "{} may not ask for a token of ServiceAccount {}, which belongs to Tenure",
                    &[USER, "variables.name"],
                ),
                quote("name another ServiceAccount"),
            ),
            refuse(
                format!(
                    "variables.isOwn || (variables.tenant != '' && request.namespace != {platform_name}) || {} || {}",
                    listed(MINTABLE_FACT),
                    listed(MINTABLE_ACCOUNTS)
                ),
                phrase(
                    "{} may not ask for a token of ServiceAccount {}: no object in namespace {} is known to name it",
                    &[USER, "variables.name", "request.namespace"],
                ),
                quote(&format!(
                    "name it in a Kustomization or Surface there, or ask an administrator to list it in the namespace's annotation {MINTABLE_ACCOUNTS}"
                )),
            ),
        ],
    }
}

/// Rights with which an account can make itself an administrator: verb, group, resource with its subresource, and the namespace. An account that has such
/// a right in the whole cluster has it in kube-system, where the accounts of Kubernetes' controllers and Secrets of the platform are.
const WAYS: [(&str, &str, &str, &str); 20] = [
    ("*", "*", "*", ""),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
    ("bind", "rbac.authorization.k8s.io", "clusterroles", ""),
    ("impersonate", "", "users", ""),
    ("impersonate", "", "groups", ""),
    ("impersonate", "", "serviceaccounts", "kube-system"),
    ("create", "", "serviceaccounts/token", "kube-system"),
    ("get", "", "secrets", "kube-system"),
    ("list", "", "secrets", "kube-system"),
    ("create", "", "pods", "kube-system"),
    ("create", "", "pods/exec", "kube-system"),
    ("create", "apps", "deployments", "kube-system"),
    ("create", "apps", "daemonsets", "kube-system"),
    ("create", "apps", "statefulsets", "kube-system"),
    ("create", "batch", "jobs", "kube-system"),
    ("create", "batch", "cronjobs", "kube-system"),
    ("get", "", "nodes/proxy", ""),
    (
        "create",
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        "",
    ),
    (
        "update",
        "certificates.k8s.io",
        "certificatesigningrequests/approval",
        "",
    ),
    ("create", "apiregistration.k8s.io", "apiservices", ""),
];
/// Checks in one expression: Kubernetes' limit of the cost of an expression leaves no room for a third.
const CHECKS: usize = 2;

/// A variable for every [`CHECKS`] ways, and the expression that one of them is true.
fn list_ways() -> (Vec<(String, String)>, String) {
    let check = |(verb, group, resource, namespace): &(&str, &str, &str, &str)| {
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        let part = match part {
            "" => String::new(),
            part => format!(".subresource('{part}')"),
        };
        let namespace = match *namespace {
            "" => String::new(),
            namespace => format!(".namespace('{namespace}')"),
        };
        format!(
            "authorizer.serviceAccount(request.namespace, variables.name).group('{group}').resource('{resource}'){part}{namespace}\
             .check('{verb}').allowed()"
        )
    };
    let variables: Vec<(String, String)> = WAYS
        .chunks(CHECKS)
        .enumerate()
        .map(|(index, ways)| {
            let checks = ways.iter().map(check).collect::<Vec<_>>().join(" || ");
            variable(&format!("way{index}"), format!("variables.name != '' && ({checks})"))
        })
        .collect();
    let names: Vec<String> = variables.iter().map(|(name, _)| format!("variables.{name}")).collect();
    (variables, names.join(" || "))
}

/// Denies tokens of administrators, and of accounts that can make themselves one, unless an administrator granted it for the account by name.
pub(super) fn make_administrator_policy(platform: &str) -> Policy {
    let name = "request.?name.orValue('')";
    let (ways, has_way) = list_ways();
    Policy {
        name: ADMINISTRATORS.to_owned(),
        action: Action::Deny,
        place: PolicyScope::InNamespaces,
        about: about_tokens(),
        conditions: vec![by_tenure(platform)],
        variables: [
            vec![
                variable("name", name),
                variable(
                    "isGranted",
                    format!(
                        "authorizer.group('').resource('serviceaccounts').namespace(request.namespace).name(variables.name)\
                         .check('{MINT_ADMINISTRATOR}').allowed()"
                    ),
                ),
            ],
            ways,
        ]
        .concat(),
        validations: vec![refuse(
            format!("!({has_way}) || variables.isGranted"),
            phrase(
                "{} may not ask for a token of ServiceAccount {} in namespace {}, which is an administrator of the cluster or can become one",
                &[USER, "variables.name", "request.namespace"],
            ),
            phrase(
                &format!(
                    "give the account fewer rights, or ask an administrator to give {{}} the verb {MINT_ADMINISTRATOR} on serviceaccounts/{{}} there"
                ),
                &[USER, "variables.name"],
            ),
        )],
    }
}
