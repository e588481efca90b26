//! Policies for claims in tenants' namespaces that name or select volumes, and for volumes that are given to claims.
//!
//! A policy for claims sees no volume, so a user without `adopt` on the Tenant may name none. Kubernetes' volume binder names one by
//! an update. The policy for volumes has namespaces as [parameters](super::parameters), so it knows the tenant of the claim's
//! namespace.

use tenure_api::metadata::TENANT_LABEL;

use super::super::volume::{NAME, NAME_FIELD, SELECTOR};
use super::{
    Action, Policy, PolicyScope, ResourceRule, Validation, kubernetes, namespace_facts, phrase, quote, variable,
    write_tenant_check,
};
use crate::Rule;
use tenure_tenancy::rights::ADOPT;

pub(super) fn make_claim_policy(platform: &str) -> Policy {
    let mut variables = namespace_facts();
    for (name, field) in [("named", NAME), ("selector", SELECTOR)] {
        let read = |object: &str| format!("{object}.?spec.?{field}");
        // A value that the stored claim already has stays allowed.
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
        format!(
            "variables.tenant == '' || {}",
            write_tenant_check(ADOPT, Some("variables.tenant"))
        ),
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
        place: PolicyScope::InTenants,
        about: vec![ResourceRule {
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
                    &format!("spec.{NAME}: PersistentVolume {{}} is not known to belong to Tenant {{}}"),
                    &["variables.volume", "variables.tenant"],
                ),
                remedy: phrase(
                    &format!("remove it, or ask an administrator to label the volume {TENANT_LABEL}={{}}"),
                    &["variables.tenant"],
                ),
            },
        ],
    }
}

/// Policy for volumes with a Tenant's label: only that Tenant's claims get them. Otherwise the volume binder would give one to
/// a claim that names no volume and selects none.
pub(super) fn make_volume_policy(platform: &str) -> Policy {
    let label = |object: &str| format!("{object}.metadata.?labels[?{}]", quote(TENANT_LABEL));
    let claimed = |object: &str| format!("{object}.?spec.?claimRef.?namespace.orValue('')");
    // Read from the old object: a removal of the label at the same time hides nothing.
    let tenant = format!(
        "(oldObject == null ? optional.none() : {}).or({}).orValue('')",
        label("oldObject"),
        label("object")
    );
    let mut conditions = vec![(
        "is-given",
        format!(
            "{new} != '' && (oldObject == null || {old} != {new}) && {tenant} != ''",
            new = claimed("object"),
            old = claimed("oldObject"),
        ),
    )];
    conditions.extend(kubernetes::not_api_server_or_tenure(platform));
    Policy {
        name: "given-volumes".to_owned(),
        action: Action::Deny,
        place: PolicyScope::Anywhere,
        about: vec![ResourceRule {
            groups: vec![""],
            resources: vec!["persistentvolumes"],
            operations: vec!["CREATE", "UPDATE"],
        }],
        conditions,
        variables: vec![variable("tenant", tenant), variable("space", claimed("object"))],
        validations: vec![Validation {
            holds: format!(
                "params.metadata.name != variables.space || {}.orValue('') == variables.tenant || {}",
                label("params"),
                write_tenant_check(ADOPT, Some("variables.tenant"))
            ),
            rule: Rule::PersistentVolumes,
            why: phrase(
                "spec.claimRef: the volume belongs to Tenant {}, and namespace {} doesn't",
                &["variables.tenant", "variables.space"],
            ),
            remedy: quote(&format!(
                "claim another volume, or ask an administrator to change the volume's label {TENANT_LABEL}"
            )),
        }],
    }
}
