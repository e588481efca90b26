//! An owner's namespace that fits the pattern of an AccessProvider. A tenant chooses the name, so it may not receive the platform's credential by it.
//!
//! No request is refused here: the controllers say of the platform's FluxAccess which namespaces it does not reach.

use serde_json::{Value, json};
use tenure_api::access::provider::EntryProblem;
use tenure_api::access::{GROUP, REQUESTED_BY};
use tenure_tenancy::make_owner_reference;

use super::Names;
use super::verdict::{AttackResult, Outcome};

/// The name of the line.
const NAME: &str = "namespace-that-fits-a-pattern";
/// The mechanism that stops the attack.
const STOP: &str = "controllers";
/// The entry of the FluxAccess that requests the owner's namespace, and the entry that requests the listed tenant's.
const ENTRIES: [&str; 2] = ["spec.projects[0]", "spec.projects[1]"];

/// Lists an AccessProvider and a FluxAccess. The provider's pattern fits a namespace that the owner made, and its list has the other tenant. The platform's FluxAccess
/// requests both tenants' namespaces. `user` writes them. No host gets a request: the provider is `static`.
#[must_use]
pub fn list_pattern_attack_targets(names: &Names, namespace: &str, user: &str) -> [(String, Value); 2] {
    let tenant = names.tenant();
    let metadata = || {
        json!({
            "name": tenant, "ownerReferences": [make_owner_reference(&tenant, &names.tenant_uid)], "annotations": { REQUESTED_BY: user },
        })
    };
    let path = |plural: &str| format!("/apis/{GROUP}/v1alpha1/namespaces/{}/{plural}", names.platform);
    let entry = |id: &str, namespace: &str| json!({ "id": format!("attest/{id}"), "namespaces": [namespace], "secretName": "attest" });
    [
        (
            path("accessproviders"),
            json!({
                "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "AccessProvider", "metadata": metadata(),
                "spec": {
                    "kind": "static", "address": "https://git.attest.invalid", "topLevelGroup": "attest",
                    "namespaces": [format!("{tenant}-*")], "tenants": [names.neighbour()],
                },
            }),
        ),
        (
            path("fluxaccesses"),
            json!({
                "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "FluxAccess", "metadata": metadata(),
                "spec": {
                    "provider": tenant, "projects": [entry("private", namespace), entry("listed", &names.neighbour())],
                },
            }),
        ),
    ]
}

/// Finds the path of that FluxAccess.
#[must_use]
pub fn find_pattern_status(names: &Names) -> String {
    let (platform, name) = (names.platform.as_str(), names.tenant());
    format!("/apis/{GROUP}/v1alpha1/namespaces/{platform}/fluxaccesses/{name}")
}

/// Judges the controllers' report about the platform's request: `problems` of the FluxAccess, or the reason for a missing report.
#[must_use]
pub fn assess_pattern(problems: Result<&[EntryProblem], &str>) -> AttackResult {
    let untried = "correct the cause, and run tenure attest again";
    let [own, listed] = ENTRIES.map(|entry| {
        let mut problems = problems.unwrap_or_default().iter();
        let found = problems.find(|problem| problem.entry == entry);
        found.map(|problem| problem.message.as_str())
    });
    // A problem of the whole FluxAccess says nothing about either namespace.
    let mut others = problems.unwrap_or_default().iter();
    let other = others.find(|problem| !ENTRIES.contains(&problem.entry.as_str()));
    let failed = other.map(|problem| problem.message.as_str()).or(listed);
    let (outcome, message, remedy) = match (problems, own, failed) {
        (Err(why), ..) => (Outcome::NotTried, why.to_owned(), untried),
        (Ok(_), _, Some(why)) => {
            let message = format!("the allowed request of the control failed, so a refusal proves nothing: {why}");
            (Outcome::NotTried, message, untried)
        }
        (Ok(_), Some(why), None) => (Outcome::Held, why.to_owned(), ""),
        (Ok(_), None, None) => (
            Outcome::NotHeld,
            "the namespace receives the credential".to_owned(),
            "list namespaces by their names in spec.namespaces of AccessProviders, not by patterns, and upgrade Tenure",
        ),
    };
    AttackResult {
        name: NAME.to_owned(),
        tries:
            "an owner creates a namespace that fits an AccessProvider's pattern, to receive the platform's credential"
                .to_owned(),
        stop: STOP.to_owned(),
        outcome,
        message,
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(entry: &str, message: &str) -> EntryProblem {
        EntryProblem {
            entry: entry.to_owned(),
            message: message.to_owned(),
            ..EntryProblem::default()
        }
    }

    #[test]
    fn pattern_holds_if_only_unlisted_tenant_is_refused() {
        let own = problem("spec.projects[0]", "belongs to a tenant that is not listed");
        let listed = problem("spec.projects[1]", "isn't there");
        for (problems, outcome, message) in [
            (Ok(vec![own.clone()]), Outcome::Held, "not listed"),
            (Ok(vec![]), Outcome::NotHeld, "receives the credential"),
            (Ok(vec![own, listed.clone()]), Outcome::NotTried, "isn't there"),
            (Ok(vec![listed]), Outcome::NotTried, "isn't there"),
            (
                Ok(vec![problem("", "it doesn't say who wrote it")]),
                Outcome::NotTried,
                "doesn't say who",
            ),
            (
                Err("no AccessProvider is served"),
                Outcome::NotTried,
                "no AccessProvider",
            ),
        ] {
            let judged = assess_pattern(problems.as_ref().map(Vec::as_slice).map_err(|why| *why));
            assert_eq!(judged.outcome, outcome, "{judged:?}");
            assert!(judged.message.contains(message), "{judged:?}");
            assert_eq!(judged.remedy.is_empty(), outcome == Outcome::Held);
        }
    }
}
