//! The rule for RoleBindings to Tenure's own accounts. With a binding of `tenure-secret-writer`, an administrator allows that credentials are
//! written in a namespace. An owner could bind it too, since an owner's rights cover that role. So only an administrator writes a RoleBinding that
//! names an account of the platform namespace, whatever role it binds: a Role of the owner's own may have the same rules.

use std::collections::BTreeSet;

use serde_json::Value;
use tenure_api::metadata::CONTROLLER_SERVICE_ACCOUNT;

use super::request::SERVICE_ACCOUNT_PREFIX;
use super::{Case, Findings, Question, Refusal, Rule};
use tenure_tenancy::rights::ADOPT;
use tenure_tenancy::settings::is_kubernetes_own;

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";
pub(super) const RESOURCE: &str = "rolebindings";
/// Groups that contain every ServiceAccount, Tenure's included.
pub(super) const WIDE_GROUPS: [&str; 2] = ["system:serviceaccounts", "system:authenticated"];
/// ClusterRoles without the rights by which a RoleBinding counts as an administrator's permission.
pub(super) const READING_ROLES: [&str; 2] = ["view", "system:image-puller"];

/// Checks whether the rule covers a resource.
pub(super) fn is_judged(group: &str, resource: &str) -> bool {
    (group, resource) == (GROUP, RESOURCE)
}

pub(super) fn check(case: Case<'_>, _: &mut Findings) -> Result<(), Refusal> {
    let request = case.request;
    let platform = case.facts.settings().platform_namespace.as_str();
    if !request.is_about(GROUP, RESOURCE, &[]) || !request.writes() || is_outside(request.namespace, platform) {
        return Ok(());
    }
    let (old, new) = (
        list_own_subjects(request.old_object, platform),
        list_own_subjects(request.object, platform),
    );
    let Some(subject) = new.difference(&old).next() else {
        return Ok(());
    };
    let user = request.actor.user;
    let tenant = case.tenant.map_or("", |tenant| tenant.name.as_str());
    let is_controller = user
        .strip_prefix(SERVICE_ACCOUNT_PREFIX)
        .and_then(|account| account.split_once(':'))
        .is_some_and(|account| account == (platform, CONTROLLER_SERVICE_ACCOUNT));
    if is_controller || case.is_allowed(&Question::about_tenant(ADOPT, tenant)) {
        return Ok(());
    }
    Err(Refusal {
        rule: Rule::SecretWriter,
        why: format!(
            "{user} may not bind {subject} in namespace {}: Tenure treats such a RoleBinding as an administrator's permission",
            request.namespace
        ),
        remedy: format!("ask an administrator to create it (verb {ADOPT} on tenants)"),
    })
}

/// Checks whether no tenant writes in the namespace.
fn is_outside(namespace: &str, platform: &str) -> bool {
    namespace == platform || is_kubernetes_own(namespace)
}

/// Lists the subjects that are accounts of the platform namespace or contain them, by their names as users or
/// groups.
fn list_own_subjects(binding: Option<&Value>, platform: &str) -> BTreeSet<String> {
    let subjects = binding.and_then(|binding| binding.get("subjects")?.as_array());
    let subjects = subjects.into_iter().flatten().map(|subject| {
        let text = |key: &str| subject.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("kind") {
            "ServiceAccount" => format!("{SERVICE_ACCOUNT_PREFIX}{}:{}", text("namespace"), text("name")),
            _ => text("name").to_owned(),
        }
    });
    let account = format!("{SERVICE_ACCOUNT_PREFIX}{platform}:");
    let group = format!("system:serviceaccounts:{platform}");
    let role = |key: &str| binding.and_then(|binding| binding.get("roleRef")?.get(key)?.as_str());
    let is_reading =
        role("kind") == Some("ClusterRole") && role("name").is_some_and(|name| READING_ROLES.contains(&name));
    let is_wide = |name: &str| !is_reading && WIDE_GROUPS.contains(&name);
    subjects
        .filter(|name| name.starts_with(&account) || *name == group || is_wide(name))
        .collect()
}
