//! Policies for Tenants and their records, as far as one object shows. No object alone shows which home is another
//! Tenant's.

use tenure_api::condition::NAMESPACES_RECORDED;
use tenure_api::metadata::HOME_NAMESPACE;

use super::namespace::{is_protected, is_reserved};
use super::{Policy, PolicyScope, ResourceRule, USER, Validation, phrase, quote, variable, write_tenant_check};
use crate::Rule;
use tenure_tenancy::rights::ADOPT;
use tenure_tenancy::settings::Settings;

pub(super) fn make_tenant_policy(settings: &Settings) -> Policy {
    let home = |object: &str| {
        format!(
            "{object}.?metadata.?annotations[?{}].orValue({object}.?metadata.?name.orValue(request.?name.orValue('')))",
            quote(HOME_NAMESPACE)
        )
    };
    // The names and uids, and whether the status counts as a record.
    let record = |object: &str| {
        format!(
            "{object} == null ? [] : {object}.?status.?spaces.orValue([])\
             .map(space, string(space.?name.orValue('')) + '/' + string(space.?uid.orValue(''))) + \
             {object}.?status.?conditions.orValue([]).filter(condition, condition.type == {}).map(condition, '')",
            quote(NAMESPACES_RECORDED)
        )
    };
    Policy {
        name: "tenants".to_owned(),
        action: super::Action::Deny,
        place: PolicyScope::Anywhere,
        about: vec![ResourceRule {
            groups: vec!["capsule.clastix.io"],
            resources: vec!["tenants", "tenants/status"],
            operations: vec!["CREATE", "UPDATE", "DELETE"],
        }],
        conditions: Vec::new(),
        variables: vec![
            variable("home", format!("object == null ? '' : {}", home("object"))),
            variable(
                "name",
                "object == null ? request.?name.orValue('') : object.?metadata.?name.orValue(request.?name.orValue(''))",
            ),
            variable("isStatus", "request.?subResource.orValue('') == 'status'"),
            variable("recorded", record("object")),
            variable("recordedBefore", record("oldObject")),
            variable("before", format!("oldObject == null ? '' : {}", home("oldObject"))),
        ],
        validations: vec![
            Validation {
                holds: format!(
                    "!variables.isStatus || request.operation != 'UPDATE' || variables.recorded == variables.recordedBefore || {}",
                    write_tenant_check(ADOPT, Some("request.?name.orValue('')"))
                ),
                rule: Rule::Tenant,
                why: phrase(
                    "{} may not change which namespaces Tenant {} has recorded (status.spaces)",
                    &[USER, "request.?name.orValue('')"],
                ),
                remedy: phrase(
                    &format!("leave that to Tenure, or ask an administrator to do it (verb {ADOPT} on tenants/{{}})"),
                    &["request.?name.orValue('')"],
                ),
            },
            Validation {
                holds: "request.operation != 'DELETE' || !oldObject.?spec.?preventDeletion.orValue(false)".to_owned(),
                rule: Rule::Tenant,
                why: phrase(
                    "Tenant {} may not be deleted: its spec.preventDeletion is true",
                    &["request.?name.orValue('')"],
                ),
                remedy: quote("set it to false first"),
            },
            Validation {
                holds: format!(
                    "request.operation == 'DELETE' || variables.isStatus || variables.home == variables.before || !({})",
                    is_protected("variables.home", settings)
                ),
                rule: Rule::Tenant,
                why: phrase(
                    "Tenant {} can't have {} as its home namespace: it belongs to Kubernetes or the platform",
                    &["request.?name.orValue('')", "variables.home"],
                ),
                remedy: quote(&format!("name another one in the annotation {HOME_NAMESPACE}")),
            },
            Validation {
                holds: format!(
                    "request.operation == 'DELETE' || variables.isStatus || variables.home == variables.before || !({}) || {}",
                    is_reserved("variables.home", settings),
                    write_tenant_check(ADOPT, Some("variables.name"))
                ),
                rule: Rule::Tenant,
                why: phrase(
                    "Tenant {} can't have {} as its home namespace: it has a reserved name (--reserved-namespaces): rights and webhooks of an add-on may refer to it",
                    &["variables.name", "variables.home"],
                ),
                remedy: phrase(
                    &format!(
                        "name another one in the annotation {HOME_NAMESPACE}, or ask an administrator to write the Tenant (verb {ADOPT} on tenants/{{}})"
                    ),
                    &["variables.name"],
                ),
            },
        ],
    }
}
