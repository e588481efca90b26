//! How it is found out that policies are in force, and not just stored: an API server follows a change of policies a moment later.
//!
//! Owns one more policy that refuses a single made-up name, and the object that is asked about. The name is in the policy and in its binding, and
//! follows from how all others are, so that both are written after those: an API server takes changes in the order in which they were stored, and who
//! is refused by this one has met the others, too. Refuses nothing else, and to nobody else: no object of this name is ever stored.

use serde_json::{Value, json};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE};

use super::{API_VERSION, POLICY_PREFIX};

/// The policy's name, without what all begin with.
const NAME: &str = "probe";
/// How the name of the object begins that is asked about.
const ASKED: &str = "tenure-probe-";

/// The name of the policy and of its binding.
#[must_use]
pub fn probe_name() -> String {
    format!("{POLICY_PREFIX}{NAME}")
}

/// The policy that refuses what [`make_probe`] makes, and its binding. `state` says how the others are, in letters that a name may have.
#[must_use]
pub fn list_probe(platform: &str, state: &str) -> Vec<Value> {
    let metadata = json!({ "name": probe_name(), "labels": { MANAGED_BY: MANAGED_BY_TENURE } });
    let about = json!({
        "matchPolicy": "Equivalent",
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": platform } },
        "objectSelector": {},
        "resourceRules": [{
            "apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "resources": ["leases"], "operations": ["CREATE"],
            "resourceNames": [format!("{ASKED}{state}")], "scope": "Namespaced"
        }]
    });
    let validation = json!({
        "expression": "false", "reason": "Forbidden", "message": format!("{ASKED}{state}: policies are in force")
    });
    vec![
        json!({
            "apiVersion": API_VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
            "spec": { "failurePolicy": "Fail", "matchConstraints": about, "validations": [validation] }
        }),
        json!({
            "apiVersion": API_VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
            "spec": { "policyName": probe_name(), "matchResources": about, "validationActions": ["Deny"] }
        }),
    ]
}

/// What is asked about, as a dry run.
#[must_use]
pub fn make_probe(platform: &str, state: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": format!("{ASKED}{state}"), "namespace": platform }
    })
}

/// Whether an answer is the refusal of that policy.
#[must_use]
pub fn has_met_probe(message: &str, state: &str) -> bool {
    message.contains(&format!("ValidatingAdmissionPolicy '{}'", probe_name()))
        && message.contains(&format!("{ASKED}{state}: policies are in force"))
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        clippy::allow_attributes,
        reason = "tests may panic"
    )]

    use super::*;

    #[test]
    fn what_is_asked_about_is_what_both_are_about_and_no_other_state() {
        let [policy, binding] = <[Value; 2]>::try_from(list_probe("tenure-system", "0a1b")).unwrap();
        let asked = make_probe("tenure-system", "0a1b");
        for about in [&policy["spec"]["matchConstraints"], &binding["spec"]["matchResources"]] {
            assert_eq!(
                about["resourceRules"][0]["resourceNames"],
                json!([asked["metadata"]["name"]])
            );
        }
        let message = policy["spec"]["validations"][0]["message"].as_str().unwrap();
        let answer = format!(
            "leases \"x\" is forbidden: ValidatingAdmissionPolicy 'tenure-probe' with binding 'tenure-probe' denied request: {message}"
        );
        assert!(has_met_probe(&answer, "0a1b") && !has_met_probe(&answer, "0a1c"));
        assert!(!has_met_probe("leases is forbidden: User \"x\" cannot create", "0a1b"));
    }
}
