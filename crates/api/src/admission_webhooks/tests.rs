//! What the configurations promise of themselves.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn webhooks() -> Vec<Value> {
    let configurations = configurations(&WebhookPlace::Service, "authority");
    configurations
        .iter()
        .flat_map(|configuration| configuration["webhooks"].as_array().unwrap().clone())
        .collect()
}

fn conditions(webhook: &Value) -> String {
    webhook["matchConditions"].to_string()
}

#[test]
fn what_fails_is_narrow_and_lets_through_who_repairs() {
    let all = webhooks();
    let failing: Vec<&Value> = all
        .iter()
        .filter(|webhook| webhook["failurePolicy"] != "Ignore")
        .collect();
    assert_eq!(failing.len(), 9);
    for webhook in failing {
        let name = &webhook["name"];
        let conditions = conditions(webhook);
        assert!(conditions.contains("may-not-repair"), "{name}");
        // What quotas count over a Tenant's namespaces fails for whoever makes it, whatever it is, and there alone.
        let is_of_quotas = name == "quotas.admission.tenure.dev";
        assert_ne!(conditions.contains("system:nodes"), is_of_quotas, "{name}");
        for rule in webhook["rules"].as_array().unwrap() {
            let everything = json!(["*"]);
            let selector = webhook["namespaceSelector"].to_string();
            assert_eq!(selector.contains(COUNTED_LABEL), is_of_quotas, "{name}");
            assert!(rule["apiGroups"] != everything || is_of_quotas, "{name}");
            if rule["scope"] == "Cluster" {
                let of_tenancy = [
                    json!("tenants"),
                    json!("tenants/status"),
                    json!("namespaces"),
                    json!("namespaces/status"),
                ];
                assert!(of_tenancy.contains(&rule["resources"][0]), "{name}");
            } else {
                assert!(selector.contains(TENANT_LABEL) && selector.contains("Exists"), "{name}");
                assert!(
                    selector.contains("kube-system") && selector.contains("tenure-system"),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn everybody_else_is_asked_about_by_another_one() {
    let all = webhooks();
    for webhook in &all {
        let conditions = conditions(webhook);
        let (one, other) = ("may-not-repair", "may-repair");
        let twin = |word: &str| {
            all.iter().any(|twin| {
                twin["rules"] == webhook["rules"] && twin["clientConfig"] == webhook["clientConfig"] && {
                    twin["matchConditions"].to_string().contains(word)
                }
            })
        };
        if conditions.contains(one) {
            assert!(twin(other), "{}", webhook["name"]);
        }
    }
}

#[test]
fn every_field_is_said() {
    let fields = [
        "name",
        "admissionReviewVersions",
        "clientConfig",
        "failurePolicy",
        "matchConditions",
        "matchPolicy",
        "namespaceSelector",
        "objectSelector",
        "rules",
        "sideEffects",
        "timeoutSeconds",
    ];
    let mut names = BTreeSet::new();
    for webhook in webhooks() {
        for field in fields {
            assert!(webhook.get(field).is_some(), "{field} of {}", webhook["name"]);
        }
        let path = webhook.pointer("/clientConfig/service/path").unwrap();
        assert!(names.insert((path.to_string(), webhook["name"].to_string())));
        assert_eq!(webhook["clientConfig"]["caBundle"], "YXV0aG9yaXR5");
        assert_eq!(path == MUTATE_PATH, webhook.get("reinvocationPolicy").is_some());
    }
}
