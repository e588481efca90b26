//! Tenants themselves, as far as one of them tells: whose home is another's is told by no object alone.

use tenure_api::metadata::HOME_NAMESPACE;

use super::namespace::is_protected;
use super::{About, Policy, Validation, Where, phrase, quote, variable};
use crate::admission::Rule;

pub(super) fn tenants(platform: &str) -> Policy {
    let home = |object: &str| {
        format!(
            "{object}.?metadata.?annotations[?{}].orValue({object}.?metadata.?name.orValue(request.?name.orValue('')))",
            quote(HOME_NAMESPACE)
        )
    };
    Policy {
        name: "tenants".to_owned(),
        place: Where::Anywhere,
        about: vec![About {
            groups: vec!["capsule.clastix.io"],
            resources: vec!["tenants"],
            operations: vec!["CREATE", "UPDATE", "DELETE"],
        }],
        conditions: Vec::new(),
        variables: vec![
            variable("home", format!("object == null ? '' : {}", home("object"))),
            variable("before", format!("oldObject == null ? '' : {}", home("oldObject"))),
        ],
        validations: vec![
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
                    "request.operation == 'DELETE' || variables.home == variables.before || !({})",
                    is_protected("variables.home", platform)
                ),
                rule: Rule::Tenant,
                why: phrase(
                    "Tenant {} can't have {} as its home namespace: it is Kubernetes' or the platform's own",
                    &["request.?name.orValue('')", "variables.home"],
                ),
                remedy: quote(&format!("name another one in the annotation {HOME_NAMESPACE}")),
            },
        ],
    }
}
