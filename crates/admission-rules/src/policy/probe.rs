//! A probe that shows whether policies are in force, and not only stored: an API server follows a change of policies a moment later.
//!
//! One more policy denies a single invented name, and the probe is a request with this name. The name is in the policy and in its binding, and
//! follows from the state of all other policies, so both are written after those. An API server applies changes in the order in which they were
//! stored, so a request that this policy denies has met the others, too. The policy denies nothing else: no object with this name is ever stored.

use serde_json::{Value, json};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE};

use super::{API_VERSION, POLICY_PREFIX};

/// The policy's name, without the common prefix.
const NAME: &str = "probe";
/// The prefix of the probe's name.
const ASKED: &str = "tenure-probe-";

/// Returns the name that the probe's policy and its binding have.
#[must_use]
pub fn probe_name() -> String {
    format!("{POLICY_PREFIX}{NAME}")
}

/// Returns the policy that denies the object of [`make_probe`], and its binding. `state` describes the other policies, in letters that a
/// name may have.
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

/// Returns the object of the probe, which is sent as a dry run.
#[must_use]
pub fn make_probe(platform: &str, state: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": format!("{ASKED}{state}"), "namespace": platform }
    })
}

/// Checks whether an error message is the denial by the probe's policy for this state.
#[must_use]
pub fn is_probe_denial(message: &str, state: &str) -> bool {
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

    /// The policy and its binding match the Lease that the probe creates.
    #[test]
    fn probe_denial_is_recognised_for_its_state_only() {
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
        assert!(is_probe_denial(&answer, "0a1b") && !is_probe_denial(&answer, "0a1c"));
        assert!(!is_probe_denial(
            "leases is forbidden: User \"x\" cannot create",
            "0a1b"
        ));
    }
}
