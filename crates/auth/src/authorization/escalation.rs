//! The checks against privilege escalation: a writer can't grant rights that the writer doesn't have. Each write of a
//! Role or ClusterRole is checked by its rules, and each write of a binding by the rules of its role. A refusal lists
//! the missing rights.

use serde_json::Value;

use super::rbac::{Rbac, RbacKind, RoleRef};
use super::rule_coverage::{find_missing, group_by_resource, too_many};
use super::rules::PolicyRule;
use super::{Attributes, Authorizer, Refusal, quote, quote_list};
use crate::identity::{MASTERS, UserInfo};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A create or update of an RBAC object that is about to be stored.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The writing user.
    pub user: &'a UserInfo,
    /// The kind of the object.
    pub kind: RbacKind,
    /// The namespace of the request's path, empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// The name in the request's path: empty for a POST.
    pub path_name: &'a str,
    /// The object as it would be stored.
    pub object: &'a Value,
    /// The stored object; `None` for a create.
    pub old: Option<&'a Value>,
}

/// Refuses a write that would grant more rights than its author has.
///
/// The write is always allowed for members of `system:masters`. It is also allowed for users with the verb `escalate`
/// on the role, or `bind` on the bound role *in the binding's namespace*. A write is also allowed if it changes only
/// fields for the garbage collector (owners, finalizers). This function does not check the right to the request
/// itself.
///
/// # Errors
/// A 403 that lists the missing rights, or a 404 if the role to be bound doesn't exist.
pub fn check_escalation(write: Write<'_>, rbac: &Rbac) -> Result<(), Refusal> {
    if write.user.in_group(MASTERS) || write.old.is_some_and(|old| changes_only_gc_fields(old, write.object)) {
        return Ok(());
    }
    match write.kind {
        RbacKind::Role | RbacKind::ClusterRole => check_role(write, rbac),
        RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => check_binding(write, rbac),
    }
}

fn check_role(write: Write<'_>, rbac: &Rbac) -> Result<(), Refusal> {
    let escalate = Attributes::resource("escalate", GROUP, "*", write.kind.resource())
        .in_namespace(write.namespace)
        .with_name(write.path_name);
    if rbac.authorize(write.user, &escalate).allowed {
        return Ok(());
    }
    let forbidden =
        |message: &str| Refusal::forbidden_because(GROUP, write.kind.resource(), name_of(write.object), message);
    confirm_rules(write, rbac, &PolicyRule::of_role(write.object)).map_err(|message| forbidden(&message))?;
    let aggregates = |role: &Value| {
        role.pointer("/aggregationRule/clusterRoleSelectors")
            .and_then(Value::as_array)
            .is_some_and(|selectors| !selectors.is_empty())
    };
    // An aggregation rule can gather any rule later, so only a user with all rights may set or keep one.
    if write.kind == RbacKind::ClusterRole
        && (aggregates(write.object) || write.old.is_some_and(aggregates))
        && confirm_rules(write, rbac, &rules_for_everything()).is_err()
    {
        return Err(forbidden(
            "must have cluster-admin privileges to use the aggregationRule",
        ));
    }
    Ok(())
}

fn check_binding(write: Write<'_>, rbac: &Rbac) -> Result<(), Refusal> {
    let role = RoleRef::of_binding(write.object);
    let resource = match role.kind.as_str() {
        "ClusterRole" => RbacKind::ClusterRole.resource(),
        "Role" => RbacKind::Role.resource(),
        other => {
            return Err(Refusal {
                code: 500,
                reason: "",
                message: format!("unsupported role reference kind: {}", quote(other)),
                details: None,
            });
        }
    };
    let bind = Attributes::resource("bind", &role.group, "*", resource)
        .in_namespace(write.namespace)
        .with_name(&role.name);
    if rbac.authorize(write.user, &bind).allowed {
        return Ok(());
    }
    let Some(rules) = rbac.role_rules(&role, write.namespace) else {
        // kube-apiserver names the resource of the request here, not the role's.
        return Err(Refusal::not_found(GROUP, write.kind.resource(), &role.name));
    };
    confirm_rules(write, rbac, rules)
        .map_err(|message| Refusal::forbidden_because(GROUP, write.kind.resource(), name_of(write.object), &message))
}

/// Checks that the author has all of `rules` in the namespace of the write. The error lists the missing rights.
fn confirm_rules(write: Write<'_>, rbac: &Rbac, rules: &[PolicyRule]) -> Result<(), String> {
    if too_many(rules) {
        return Err("the rules grant more single rights than can be compared: split the role".to_owned());
    }
    let (held, unresolved) = rbac.rules_and_missing_roles(write.user, write.namespace);
    let missing = find_missing(&held, rules);
    if missing.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> = group_by_resource(missing)
        .iter()
        .map(PolicyRule::format_compact)
        .collect();
    lines.sort();
    lines.dedup();
    let mut message = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quote(&write.user.name),
        quote_list(&write.user.groups),
        lines.join("\n")
    );
    let errors: Vec<String> = unresolved
        .iter()
        .map(|role| format!("{}.{GROUP} {} not found", write.kind.resource(), quote(role)))
        .collect();
    match errors.as_slice() {
        [] => {}
        [only] => message.push_str(&format!("; resolution errors: [{only}]")),
        many => message.push_str(&format!("; resolution errors: [[{}]]", many.join(", "))),
    }
    Err(message)
}

/// Returns the rules of `cluster-admin`: every verb on every resource and path.
fn rules_for_everything() -> [PolicyRule; 2] {
    let any = || vec!["*".to_owned()];
    [
        PolicyRule {
            verbs: any(),
            api_groups: any(),
            resources: any(),
            ..PolicyRule::default()
        },
        PolicyRule {
            verbs: any(),
            non_resource_urls: any(),
            ..PolicyRule::default()
        },
    ]
}

/// Checks whether two versions of an object differ only in owners, finalizers and managed fields.
fn changes_only_gc_fields(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        object
    };
    rest(old) == rest(new)
}

fn name_of(object: &Value) -> &str {
    object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}
