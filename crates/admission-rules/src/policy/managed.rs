//! Policy for objects that Git manages and whose hand edits are denied. The fact about such Kustomizations is on the namespaces of their objects.
//!
//! A policy sees the managedFields after the change: a field that another writer takes over is no longer Git's. So it compares the previous fields of Git's
//! manager with the new ones, and denies other users that take its name. It sees no inventory: every object with the labels counts as applied. Finalizers and
//! ownerReferences of Git are still free, and so are the fields that controllers of Kubernetes set. For a Namespace itself the policy reads the previous facts
//! of that namespace.

use tenure_api::metadata::{KUSTOMIZE_CONTROLLER, OWNER_NAME, OWNER_NAMESPACE};

use super::facts::{self, NAMESPACES, REFUSING, read};
use super::hand_edit_denials::{ALL_OF_OTHERS, ALL_OF_TENANT};
use super::kubernetes;
use super::namespace::is_protected;
use super::{
    Policy, PolicyScope, ResourceRule, USER, Validation, namespace_facts, phrase, quote, variable, write_tenant_check,
};
use crate::Rule;
use tenure_tenancy::rights::ADOPT;
use tenure_tenancy::settings::Settings;

/// The parts of metadata that every user may change.
const FREE: [&str; 2] = ["f:finalizers", "f:ownerReferences"];

/// Returns the expression that a field set contains another one, except the free fields.
fn has_all(set: &str, other: &str) -> String {
    let metadata = |set: &str| format!("{set}[?'f:metadata'].orValue({{}})");
    let (own, others) = (metadata(set), metadata(other));
    let free: Vec<String> = FREE.iter().map(|field| quote(field)).collect();
    format!(
        "{other}.all(key, key == 'f:metadata' || key in variables.exempt || (key in {set} && {set}[key] == {other}[key])) && \
         {others}.all(key, key in [{}] || (key in {own} && {own}[key] == {others}[key]))",
        free.join(", ")
    )
}

pub(super) fn make_managed_policy(settings: &Settings) -> Policy {
    let platform = settings.platform_namespace.as_str();
    let label = |key: &str| format!("oldObject.?metadata.?labels[?{}].orValue('')", quote(key));
    let had = |object: &str| {
        format!(
            "{object}.?metadata.?managedFields.orValue([]).filter(entry, entry.?manager.orValue('') == '{KUSTOMIZE_CONTROLLER}' && \
             entry.?operation.orValue('') == 'Apply' && entry.?subresource.orValue('') == '').map(entry, entry.?fieldsV1.orValue({{}}))"
        )
    };
    let mut variables = namespace_facts();
    for (name, expression) in &mut variables {
        if name.as_str() == "facts" {
            *expression = format!(
                "request.resource.group == '' && request.resource.resource == 'namespaces' ? \
                 dyn(oldObject.?metadata.?annotations.orValue({{}})) : dyn({expression})"
            );
        }
    }
    variables.push(variable("from", format!("string({})", label(OWNER_NAMESPACE))));
    variables.push(variable(
        "owner",
        format!("variables.from + '/' + string({})", label(OWNER_NAME)),
    ));
    // Kustomizations without a line of their own, by their owner. The platform's always has one.
    variables.push(variable(
        "marker",
        format!(
            "variables.from == {} ? variables.owner : variables.from in {}.split(',') ? '{ALL_OF_TENANT}' : '{ALL_OF_OTHERS}'",
            quote(platform),
            read(NAMESPACES)
        ),
    ));
    variables.push(variable(
        "lines",
        format!(
            "{}.split('\\n').filter(line, line.startsWith(variables.owner + ' ') || line.startsWith(variables.from + '/* ') || \
             line.startsWith(variables.marker + ' '))",
            read(REFUSING)
        ),
    ));
    variables.push(variable(
        "refused",
        format!(
            "variables.lines.size() > 0 && !variables.lines.exists(line, {USER} in line.substring(line.indexOf(' ') + 1).split(','))"
        ),
    ));
    variables.push(variable("exempt", kubernetes::list_changed_keys(Rule::GitManaged)));
    // Without facts no Kustomization is known to refuse edits, so all count as refusing.
    variables.push(variable("label", facts::find_label("namespaceObject")));
    variables.push(variable(
        "unknown",
        format!(
            "variables.label != '' && !({}) && !({}) && !{}",
            is_protected("request.namespace", settings),
            facts::are_known(),
            write_tenant_check(ADOPT, Some("variables.label"))
        ),
    ));
    variables.push(variable("before", had("oldObject")));
    variables.push(variable("after", had("object")));
    let mut conditions = vec![(
        "managed",
        format!("{} != '' && {} != ''", label(OWNER_NAME), label(OWNER_NAMESPACE)),
    )];
    conditions.extend(kubernetes::not_api_server_or_tenure(platform));
    Policy {
        name: "git-managed".to_owned(),
        action: super::Action::Deny,
        place: PolicyScope::Anywhere,
        about: vec![ResourceRule {
            groups: vec!["*"],
            resources: vec!["*"],
            operations: vec!["UPDATE"],
        }],
        conditions,
        variables,
        validations: vec![Validation {
            holds: format!(
                "!(variables.refused || variables.unknown) || (variables.before.all(one, variables.after.exists(other, {same})) && \
                 variables.after.all(one, variables.before.exists(other, {same})) && \
                 request.?options.?fieldManager.orValue('') != '{KUSTOMIZE_CONTROLLER}')",
                same = format!("{} && {}", has_all("one", "other"), has_all("other", "one"))
            ),
            rule: Rule::GitManaged,
            why: phrase(
                "the fields that Kustomization {} applied here are managed by Git",
                &["variables.owner"],
            ),
            remedy: quote("change it in Git, or suspend the Kustomization or Surface first"),
        }],
    }
}
