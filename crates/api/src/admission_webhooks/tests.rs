//! The properties that the configurations promise.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn webhooks() -> Vec<Value> {
    webhooks_beside(Surroundings::default())
}

fn webhooks_beside(surroundings: Surroundings<'_>) -> Vec<Value> {
    let configurations = configurations(&WebhookPlace::Service, "authority", surroundings);
    configurations
        .iter()
        .flat_map(|configuration| configuration["webhooks"].as_array().unwrap().clone())
        .collect()
}

fn conditions(webhook: &Value) -> String {
    webhook["matchConditions"].to_string()
}

#[test]
fn fail_closed_webhooks_are_narrow_and_exempt_repairers() {
    let all = webhooks();
    let failing: Vec<&Value> = all
        .iter()
        .filter(|webhook| webhook["failurePolicy"] != "Ignore")
        .collect();
    assert_eq!(failing.len(), 17);
    for webhook in failing {
        let name = &webhook["name"];
        let conditions = conditions(webhook);
        assert!(conditions.contains("may-not-repair"), "{name}");
        // Webhooks for quotas over a Tenant's namespaces fail closed for all users and all objects, but only there.
        let is_of_quotas = name == "quotas.admission.tenure.dev";
        assert_ne!(conditions.contains("not-exempt"), is_of_quotas, "{name}");
        // An account that its Tenant keeps exclusive is recognised by a right, in every namespace.
        if name == "spoken-for-exclusive.admission.tenure.dev" {
            assert!(conditions.contains("check('show-token')"), "{conditions}");
            continue;
        }
        // A platform works without access to hosts, so its kinds are checked in all namespaces.
        if name.as_str().unwrap().starts_with("access") {
            for rule in webhook["rules"].as_array().unwrap() {
                assert_eq!(rule["apiGroups"], json!(["tenure.dev"]), "{name}");
                let resources = rule["resources"].as_array().unwrap();
                let is_of_access = |resource: &Value| {
                    let resource = resource.as_str().unwrap();
                    resource.starts_with("fluxaccess") || resource.starts_with("accessproviders/")
                };
                assert!(resources.iter().all(is_of_access), "{name}");
            }
            continue;
        }
        for rule in webhook["rules"].as_array().unwrap() {
            let everything = json!(["*"]);
            let selector = webhook["namespaceSelector"].to_string();
            assert_eq!(selector.contains(COUNTED_LABEL), is_of_quotas, "{name}");
            let is_cordoned = selector.contains(CORDONED_LABEL);
            // Only for objects that Tenure manages.
            let is_managed = webhook["objectSelector"] == json!({"matchLabels": {MANAGED_BY: MANAGED_BY_TENURE}});
            assert!(
                rule["apiGroups"] != everything || is_of_quotas || is_cordoned || is_managed,
                "{name}"
            );
            if rule["scope"] == "Cluster" {
                let of_tenancy = [
                    json!("tenants"),
                    json!("tenants/status"),
                    json!("namespaces"),
                    json!("namespaces/status"),
                    json!("persistentvolumes"),
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

/// Policies enforce some topics completely, so these need no answer. All other webhooks are as without policies.
#[test]
fn policies_make_only_covered_webhooks_fail_open() {
    let beside = Surroundings {
        has_policies: true,
        ..Surroundings::default()
    };
    let (without, with) = (webhooks(), webhooks_beside(beside));
    let is_left = |webhook: &Value| webhook["name"].as_str().unwrap().starts_with("left-");
    let (left, with): (Vec<Value>, Vec<Value>) = with.into_iter().partition(is_left);
    assert!(!without.iter().any(is_left));
    assert_eq!(without.len(), with.len());
    let mut changed = Vec::new();
    for (without, with) in without.into_iter().zip(with) {
        let mut like_before = with.clone();
        for field in ["failurePolicy", "timeoutSeconds"] {
            like_before[field] = without[field].clone();
        }
        assert_eq!(like_before, without);
        if with != without {
            assert_eq!(
                (&without["failurePolicy"], &with["failurePolicy"]),
                (&json!("Fail"), &json!("Ignore"))
            );
            changed.push(with["name"].as_str().unwrap().to_owned());
        }
    }
    // Some topics have webhooks in both phases.
    let topics = [
        "flux",
        "access-asked",
        "objects",
        "accounts",
        "flux",
        "access-asked",
        "access",
        "objects",
        "isolation",
        "cordoned",
        "managed-objects",
        "spoken-for-exclusive",
    ];
    assert_eq!(changed, topics.map(|topic| format!("{topic}.admission.tenure.dev")));
    // Where policies leave a part, a label says so, and a dead webhook blocks it.
    let failing: Vec<&Value> = left
        .iter()
        .filter(|webhook| webhook["failurePolicy"] == "Fail")
        .collect();
    assert_eq!((left.len(), failing.len()), (6, 3));
    for (webhook, label) in failing
        .iter()
        .zip([LEFT_PODS_LABEL, LEFT_CLAIMS_LABEL, LEFT_INGRESSES_LABEL])
    {
        let selector = webhook["namespaceSelector"].to_string();
        assert!(
            selector.contains(label) && selector.contains(TENANT_LABEL),
            "{selector}"
        );
    }
}

/// Returns the condition of a webhook that exempts accounts, as an expression.
fn read_exemption(name: &str) -> String {
    let all = webhooks();
    let found = all
        .iter()
        .rev()
        .find(|webhook| webhook["name"] == format!("{name}.admission.tenure.dev"));
    let conditions = found.unwrap()["matchConditions"].as_array().unwrap().clone();
    let exemption = conditions.iter().find(|condition| condition["name"] == "not-exempt");
    exemption.unwrap()["expression"].as_str().unwrap().to_owned()
}

#[test]
fn controllers_are_exempt_only_for_updates() {
    let only_updates = "request.operation == 'UPDATE' && (";
    for name in [
        "objects",
        "isolation",
        "accounts",
        "namespaces",
        "tenants",
        "flux",
        "access",
    ] {
        let exemption = read_exemption(name);
        let controllers = exemption.find("system:serviceaccount:kube-system:").unwrap();
        assert!(exemption[..controllers].contains(only_updates), "{name}: {exemption}");
        assert!(
            !exemption.contains("system:serviceaccounts:kube-system"),
            "{name}: {exemption}"
        );
    }
    // By name, so another account of kube-system is not exempt.
    assert!(read_exemption("objects").contains("'persistent-volume-binder'"));
}

#[test]
fn namespace_without_tenant_waits_for_no_answer() {
    let named = |name: &str| {
        let all = webhooks();
        let found = all
            .iter()
            .rev()
            .find(|webhook| webhook["name"] == format!("{name}.admission.tenure.dev"));
        found.unwrap().clone()
    };
    let of_tenants = conditions(&named("namespaces"));
    assert!(
        of_tenants.contains("(request.operation == 'CREATE' && authorizer"),
        "{of_tenants}"
    );
    assert!(!of_tenants.contains("request.operation == 'CREATE' ||"), "{of_tenants}");
    let others = named("new-namespaces");
    assert_eq!(others["failurePolicy"], "Ignore");
}

#[test]
fn webhooks_skip_namespaces_that_no_tenant_gets() {
    let names = ["ops".to_owned(), "cozy-*".to_owned(), "default".to_owned()];
    let beside = Surroundings {
        protected_namespaces: &names,
        ..Surroundings::default()
    };
    let of_tenants = |webhook: &Value| webhook["namespaceSelector"].to_string().contains("\"Exists\"");
    let all: Vec<Value> = webhooks_beside(beside).into_iter().filter(of_tenants).collect();
    assert!(all.len() > 10);
    for webhook in all {
        let never = webhook["namespaceSelector"]["matchExpressions"]
            .as_array()
            .unwrap()
            .last()
            .unwrap();
        let never = never["values"].as_array().unwrap();
        assert!(
            never.contains(&json!("ops")) && !never.contains(&json!("cozy-*")),
            "{never:?}"
        );
        assert_eq!(never.iter().filter(|name| **name == "default").count(), 1);
    }
}

#[test]
fn each_fail_closed_webhook_has_twin_for_repairers() {
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
fn each_webhook_sets_every_field() {
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
