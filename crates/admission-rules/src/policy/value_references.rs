//! The policy for values that a PackageValues takes from Secrets and ConfigMaps: the writer of a reference needs the right to `get` the object.
//!
//! helm-controller reads the object with rights of its own, and a chart may show a value to users without rights on Secrets. References that stay unchanged are not asked
//! about again, so a controller that changes a label needs no such right.

use super::{Action, Policy, PolicyScope, ResourceRule, USER, Validation, phrase, quote, variable};
use crate::Rule;

/// Name of the policy, without the common prefix.
pub(super) const NAME: &str = "value-references";
/// The most references of a PackageValues. Kubernetes bounds the cost of a policy at 28 questions to the authorizer, and that of an expression at two.
const MOST: usize = 16;

pub(super) fn make_policy() -> Policy {
    let list = |object: &str| format!("{object} == null ? [] : {object}.?spec.?valuesFrom.orValue([])");
    let refuse = |holds: String, why: String, remedy: String| Validation {
        holds,
        rule: Rule::ValueReferences,
        why,
        remedy,
    };
    let mut validations = vec![refuse(
        format!("variables.references.size() <= {MOST}"),
        quote(&format!("spec.valuesFrom has more than {MOST} entries")),
        quote("put the values into inline values, or into the chart"),
    )];
    validations.extend((0..MOST).map(|index| {
        let entry = format!("variables.added[{index}]");
        let (resource, namespace, name) = (
            format!("({entry}.kind == 'Secret' ? 'secrets' : 'configmaps')"),
            format!("string({entry}.namespace)"),
            format!("string({entry}.name)"),
        );
        refuse(
            format!(
                "variables.added.size() <= {index} || {namespace} != '' && {name} != '' && \
                 authorizer.group('').resource({resource}).namespace({namespace}).name({name}).check('get').allowed()"
            ),
            phrase(
                "{} may not get {} {} in namespace {}, so it may not make it a value",
                &[USER, &resource, &name, &namespace],
            ),
            quote("ask an administrator for the right, or to write the reference"),
        )
    }));
    Policy {
        name: NAME.to_owned(),
        action: Action::Deny,
        place: PolicyScope::Anywhere,
        about: vec![ResourceRule {
            groups: vec!["cozystack.io"],
            resources: vec!["packagevalues"],
            operations: vec!["CREATE", "UPDATE"],
        }],
        conditions: Vec::new(),
        variables: vec![
            variable("references", list("object")),
            variable("before", list("oldObject")),
            variable(
                "added",
                format!(
                    "variables.references.size() > {MOST} ? [] : variables.references.filter(reference, !(reference in variables.before))"
                ),
            ),
        ],
        validations,
    }
}
