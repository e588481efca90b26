//! Claims in tenants' namespaces that name or select volumes. A policy sees no volume, so that it refuses each that is named by who may not adopt the
//! Tenant. Kubernetes' volume binder names one by an update.

use tenure_api::metadata::TENANT_LABEL;

use super::super::volume::{NAME, NAME_FIELD, SELECTOR};
use super::{About, Action, Policy, Validation, Where, kubernetes, may, namespace_facts, phrase, quote, variable};
use crate::admission::Rule;
use crate::admission::rights::ADOPT;

pub(super) fn claims(platform: &str) -> Policy {
    let mut variables = namespace_facts();
    for (name, field) in [("named", NAME), ("selector", SELECTOR)] {
        let read = |object: &str| format!("{object}.?spec.?{field}");
        // What is there already stays.
        variables.push(variable(
            name,
            format!(
                "oldObject != null && {} == {} ? optional.none() : {}",
                read("oldObject"),
                read("object"),
                read("object")
            ),
        ));
    }
    variables.push(variable("volume", "string(variables.named.orValue(''))"));
    variables.push(variable(
        "free",
        format!("variables.tenant == '' || {}", may(ADOPT, Some("variables.tenant"))),
    ));
    let mut conditions = vec![(
        "names-volumes",
        format!("has(object.spec.{NAME}) || has(object.spec.{SELECTOR})"),
    )];
    conditions.extend(kubernetes::not_api_server_or_tenure(platform));
    let label = quote(TENANT_LABEL);
    Policy {
        name: "persistent-volumes".to_owned(),
        action: Action::Deny,
        place: Where::InTenants,
        about: vec![About {
            groups: vec![""],
            resources: vec!["persistentvolumeclaims"],
            operations: vec!["CREATE", "UPDATE"],
        }],
        conditions,
        variables,
        validations: vec![
            Validation {
                holds: format!(
                    "variables.free || !variables.selector.hasValue() || \
                     variables.selector.value().?matchLabels[?{label}].orValue('') == variables.tenant"
                ),
                rule: Rule::PersistentVolumes,
                why: quote(&format!(
                    "spec.{SELECTOR}: it may select another tenant's PersistentVolumes"
                )),
                remedy: phrase(
                    &format!("add {TENANT_LABEL}: {{}} to its matchLabels"),
                    &["variables.tenant"],
                ),
            },
            Validation {
                holds: format!(
                    "variables.free || variables.volume == '' || {}",
                    kubernetes::may_change(Rule::PersistentVolumes, NAME_FIELD)
                ),
                rule: Rule::PersistentVolumes,
                why: phrase(
                    &format!("spec.{NAME}: PersistentVolume {{}} isn't known to be Tenant {{}}'s"),
                    &["variables.volume", "variables.tenant"],
                ),
                remedy: phrase(
                    &format!("leave it away, or let an administrator label the volume {TENANT_LABEL}={{}}"),
                    &["variables.tenant"],
                ),
            },
        ],
    }
}
