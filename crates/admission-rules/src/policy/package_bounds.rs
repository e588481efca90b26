//! Allow list of the controller's own account for Packages: of a Package it changes its own finalizer and the status.
//!
//! RBAC can't limit a right on an object to its finalizers. Another account, which an administrator names, writes what Packages generate.

use tenure_api::metadata::TENURE_FINALIZER;

use super::own_account::{by_controller, refuse};
use super::{Action, Policy, PolicyScope, ResourceRule, quote, variable};

/// Name of the policy, without the common prefix.
pub(super) const NAME: &str = "controller-packages";

pub(super) fn make_policy(platform: &str) -> Policy {
    let same = |path: &str, none: &str| format!("object.?{path}.orValue({none}) == oldObject.?{path}.orValue({none})");
    let finalizers = |object: &str| {
        format!(
            "{object}.metadata.?finalizers.orValue([]).filter(finalizer, finalizer != {})",
            quote(TENURE_FINALIZER)
        )
    };
    let kept = [
        same("spec", "dyn({})"),
        same("metadata.?labels", "{}"),
        same("metadata.?annotations", "{}"),
        same("metadata.?ownerReferences", "[]"),
        format!("{} == {}", finalizers("object"), finalizers("oldObject")),
    ];
    Policy {
        name: NAME.to_owned(),
        action: Action::Deny,
        place: PolicyScope::Anywhere,
        about: vec![ResourceRule {
            groups: vec!["cozystack.io"],
            resources: vec!["*"],
            operations: vec!["CREATE", "UPDATE", "DELETE"],
        }],
        conditions: vec![by_controller(platform)],
        variables: vec![
            variable("kind", "request.resource.resource"),
            variable("name", "request.?name.orValue('')"),
        ],
        validations: vec![refuse(
            format!(
                "request.operation == 'UPDATE' && object != null && oldObject != null && variables.kind == 'packages' && {}",
                kept.join(" && ")
            ),
            "of a Package it changes its own finalizer and the status",
        )],
    }
}
