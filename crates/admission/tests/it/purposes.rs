//! The purpose of each rule, the failure policies of the webhooks, and the table in the docs say the same.

use serde_json::Value;
use tenure_admission_rules::Rule;
use tenure_admission_rules::rule_enforcement::{PolicyCoverage, RulePurpose};
use tenure_api::admission_webhooks::{Surroundings, WebhookPlace, configurations};

const PAGE: &str = include_str!("../../../../docs/reference/admission.md");

/// The failure policies of a webhook, in both phases.
fn list_failures(webhooks: &[Value], name: &str) -> Vec<String> {
    let full = format!("{name}.admission.tenure.dev");
    let of_name = webhooks.iter().filter(|webhook| webhook["name"] == full.as_str());
    of_name
        .map(|webhook| webhook["failurePolicy"].as_str().unwrap().to_owned())
        .collect()
}

fn list_webhooks(has_policies: bool) -> Vec<Value> {
    let surroundings = Surroundings {
        has_policies,
        ..Surroundings::default()
    };
    let both = configurations(&WebhookPlace::Service, "authority", surroundings);
    both.iter()
        .flat_map(|configuration| configuration["webhooks"].as_array().unwrap().clone())
        .collect()
}

#[test]
fn rule_purpose_decides_failure_policy() {
    let alone = list_webhooks(false);
    for rule in Rule::ALL {
        let (closed, open) = (rule.closed_webhooks(), rule.open_webhooks());
        for name in closed {
            let failures = list_failures(&alone, name);
            assert!(
                !failures.is_empty() && failures.iter().all(|policy| policy == "Fail"),
                "{rule}: {name} {failures:?}"
            );
        }
        for name in open {
            let failures = list_failures(&alone, name);
            assert!(
                !failures.is_empty() && failures.iter().all(|policy| policy == "Ignore"),
                "{rule}: {name} {failures:?}"
            );
        }
        match rule.purpose() {
            RulePurpose::Convenience => assert!(!open.is_empty(), "{rule}"),
            // No rule that separates or bounds tenants fails open, except where policies of every installation
            // enforce it.
            RulePurpose::Isolation | RulePurpose::Bound => {
                let is_always_kept = rule.kept_by_policies() == PolicyCoverage::Always || rule == Rule::Minting;
                assert!(!closed.is_empty() && open.is_empty() || is_always_kept, "{rule}");
            }
        }
    }
}

#[test]
fn webhooks_fail_open_for_fully_covered_rules() {
    let beside = list_webhooks(true);
    for rule in Rule::ALL
        .into_iter()
        .filter(|rule| rule.kept_by_policies() == PolicyCoverage::Whole)
    {
        for name in rule.closed_webhooks() {
            let failures = list_failures(&beside, name);
            assert!(
                failures.iter().all(|policy| policy == "Ignore"),
                "{rule}: {name} {failures:?}"
            );
        }
    }
}

#[test]
fn the_page_lists_the_purpose_of_every_rule() {
    for rule in Rule::ALL {
        let webhooks: Vec<String> = rule.closed_webhooks().iter().map(|name| format!("`{name}`")).collect();
        let webhooks = match webhooks.as_slice() {
            [] => "none".to_owned(),
            webhooks => webhooks.join(", "),
        };
        let row = format!(
            "| `{rule}` | {} | {webhooks} | {} |",
            rule.purpose().as_str(),
            rule.kept_by_policies().as_str()
        );
        assert!(PAGE.contains(&row), "docs/reference/admission.md has no row: {row}");
    }
}
