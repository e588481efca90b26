//! Policies for finalizers on objects that Tenure manages, by the rule in
//! [`super::super::finalizers`].

use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, MANAGING_LABELS};

use super::super::bindings;
use super::super::finalizers::{
    KUBERNETES, REMEDY, UPDATE, write_finalizer_message, write_label_message, write_owners_message,
};
use super::{
    Policy, PolicyScope, ResourceRule, USER, Validation, kubernetes, namespace_facts, phrase, quote, variable,
    write_tenant_check,
};
use crate::Rule;
use tenure_tenancy::rights::ADOPT;

/// Returns the expression that the user may update a resource in every namespace. Group and
/// resource are expressions.
fn may_everywhere(group: &str, resource: &str) -> String {
    format!("authorizer.group({group}).resource({resource}).check('{UPDATE}').allowed()")
}

pub(super) fn managed_objects(platform: &str) -> Policy {
    let managed = |object: &str| {
        format!(
            "({object} != null && {object}.?metadata.?labels[?{}].orValue('') == {})",
            quote(MANAGED_BY),
            quote(MANAGED_BY_TENURE)
        )
    };
    let (was_managed, is_managed) = (managed("oldObject"), managed("object"));
    let mut variables = namespace_facts();
    variables.push(variable(
        "oldFinalizers",
        format!("{was_managed} ? oldObject.?metadata.?finalizers.orValue([]).map(name, string(name)) : []"),
    ));
    variables.push(variable(
        "added",
        format!(
            "{is_managed} ? object.?metadata.?finalizers.orValue([]).map(name, string(name)).filter(name, \
             !(name in variables.oldFinalizers)) : []"
        ),
    ));
    variables.push(variable(
        "mayManage",
        // An API server has budget for two questions in one expression, and for no more.
        format!(
            "{} || {}",
            write_tenant_check(ADOPT, Some("variables.tenant")),
            may_everywhere("request.resource.group", "request.resource.resource")
        ),
    ));
    let labels: Vec<String> = MANAGING_LABELS.iter().map(|key| quote(key)).collect();
    let label = |object: &str| format!("{object}.?metadata.?labels[?key].orValue('')");
    variables.push(variable(
        "changed",
        format!(
            "{was_managed} ? [{}].filter(key, {} != {}) : []",
            labels.join(", "),
            label("oldObject"),
            label("object")
        ),
    ));
    let owners = |object: &str| format!("{object}.?metadata.?ownerReferences.orValue([])");
    let free = "variables.tenant == '' || variables.mayManage";
    let values = ["request.resource.resource", "request.?name.orValue('')"];
    let mut conditions = vec![("is-managed", format!("{was_managed} || {is_managed}"))];
    conditions.extend(kubernetes::not_api_server_or_tenure(platform));
    Policy {
        name: "managed-objects".to_owned(),
        action: super::Action::Deny,
        place: PolicyScope::InTenants,
        about: vec![ResourceRule {
            groups: vec!["*"],
            resources: vec!["*", "*/status"],
            operations: vec!["CREATE", "UPDATE"],
        }],
        conditions,
        variables,
        validations: vec![
            Validation {
                holds: format!("variables.changed.size() == 0 || {free}"),
                rule: Rule::ManagedObjects,
                why: phrase(
                    &write_label_message("{}", "{}", "{}", "{}"),
                    &[USER, "variables.changed[0]", values[0], values[1]],
                ),
                remedy: quote(REMEDY),
            },
            Validation {
                holds: format!(
                    "!({was_managed}) || {} == {} || {free}",
                    owners("oldObject"),
                    owners("object")
                ),
                rule: Rule::ManagedObjects,
                why: phrase(&write_owners_message("{}", "{}", "{}"), &[USER, values[0], values[1]]),
                remedy: quote(REMEDY),
            },
            Validation {
                holds: format!("variables.added.size() == 0 || {free}"),
                rule: Rule::ManagedObjects,
                why: phrase(
                    &write_finalizer_message("{}", "{}", "{}", "{}"),
                    &[USER, "variables.added[0]", values[0], values[1]],
                ),
                remedy: quote(REMEDY),
            },
        ],
    }
}

/// Lists the variables that the policy for namespaces has besides its own.
pub(super) fn list_variables() -> Vec<(String, String)> {
    let list = |object: &str, part: &str| {
        format!("({object} == null ? [] : {object}.?{part}.?finalizers.orValue([]).map(name, string(name)))")
    };
    let added = |part: &str| {
        format!(
            "{}.filter(name, !(name in {}))",
            list("object", part),
            list("oldObject", part)
        )
    };
    vec![variable(
        "addedFinalizers",
        format!(
            "{} + {}.filter(name, name != {})",
            added("metadata"),
            added("spec"),
            quote(KUBERNETES)
        ),
    )]
}

/// Returns the validation that denies a new finalizer on a tenant's namespace.
pub(super) fn check_namespaces() -> Validation {
    Validation {
        holds: format!(
            "!(request.operation in ['CREATE', 'UPDATE']) || variables.addedFinalizers.size() == 0 || variables.mayMark || {}",
            may_everywhere(&quote(bindings::GROUP), &quote(bindings::RESOURCE))
        ),
        rule: Rule::ManagedObjects,
        why: phrase(
            &write_finalizer_message("{}", "{}", "namespaces", "{}"),
            &[USER, "variables.addedFinalizers[0]", "variables.name"],
        ),
        remedy: quote(REMEDY),
    }
}
