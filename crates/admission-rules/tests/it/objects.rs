//! A Tenant's bounds for objects in its namespaces, in situations that the table's cluster doesn't have: a class that is the
//! cluster's own default, a class that is missing, and large objects.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_admission_rules::{self as rules, Change, ClusterQueries, Decision, Question, Request};
use tenure_tenancy::mentions::Mention;
use tenure_tenancy::{FactIndex, TenantFacts};

/// A cluster with one Tenant and some classes.
struct Stage {
    facts: FactIndex,
    classes: Vec<(&'static str, Value)>,
}

impl ClusterQueries for Stage {
    fn is_allowed(&self, _: &Question<'_>) -> bool {
        false
    }

    fn may_account(&self, _: (&str, &str), _: &Question<'_>) -> bool {
        false
    }

    fn find(&self, _: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        assert_eq!(namespace, "");
        let mut found = self.classes.iter();
        let found = found.find(|(known, class)| *known == plural && class["metadata"]["name"] == name);
        found.map(|(_, class)| Arc::new(class.clone()))
    }

    fn find_mention(&self, _: &FactIndex, _: &TenantFacts, _: &str) -> Result<Option<Mention>, String> {
        Ok(None)
    }
}

impl Stage {
    fn new(bounds: &Value, classes: Vec<(&'static str, Value)>) -> Self {
        let tenancy = json!({
            "tenants": [{ "name": "blue", "uid": "t", "bounds": bounds }],
            "namespaces": [{ "name": "blue", "uid": "n", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "t" }] }]
        });
        let facts = FactIndex::from_facts(&serde_json::from_value(tenancy).unwrap());
        Self { facts, classes }
    }

    fn create(&self, (group, resource): (&str, &str), spec: &Value) -> Decision {
        let object = json!({ "metadata": { "name": "x" }, "spec": spec });
        let review = json!({
            "operation": "CREATE", "resource": { "group": group, "version": "v1", "resource": resource },
            "namespace": "blue", "name": "x", "userInfo": { "username": "somebody" }, "object": object
        });
        rules::decide(&self.facts, &Request::read(&review).unwrap(), self)
    }
}

fn set(fields: &[(&'static str, Value)]) -> Decision {
    let changes = fields.iter().map(|(key, value)| Change::SpecField {
        key,
        value: value.clone(),
    });
    Decision::Allow {
        changes: changes.collect(),
        warnings: Vec::new(),
        claim: None,
    }
}

#[track_caller]
fn check_denied(decision: &Decision, part: &str) {
    match decision {
        Decision::Deny(refusal) => assert!(refusal.to_string().contains(part), "{refusal}"),
        Decision::Allow { .. } => panic!("{decision:?}, not {part}"),
    }
}

#[test]
fn the_tenants_default_comes_before_the_clusters() {
    let is_default = |key: &str, name: &str| json!({ "metadata": { "name": name, "annotations": { key: "true" } } });
    let stage = Stage::new(
        &json!({
            "priorityClasses": { "default": "small" },
            "storageClasses": { "default": "fast", "allowed": ["slow", "other"] },
            "ingressOptions": { "allowedClasses": { "default": "web" } }
        }),
        vec![
            (
                "priorityclasses",
                json!({ "metadata": { "name": "small" }, "value": 7 }),
            ),
            (
                "priorityclasses",
                json!({ "metadata": { "name": "all" }, "value": 9, "globalDefault": true }),
            ),
            (
                "storageclasses",
                is_default("storageclass.kubernetes.io/is-default-class", "slow"),
            ),
            ("storageclasses", json!({ "metadata": { "name": "other" } })),
            (
                "ingressclasses",
                is_default("ingressclass.kubernetes.io/is-default-class", "all"),
            ),
        ],
    );
    let small = set(&[
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("priority", json!(7)),
        ("priorityClassName", json!("small")),
    ]);
    // The API server has set the cluster's default by then.
    let named = json!({ "priorityClassName": "all", "priority": 9, "preemptionPolicy": "Never" });
    assert_eq!(stage.create(("", "pods"), &named), small);
    assert_eq!(stage.create(("", "pods"), &json!({})), small);
    let claims = ("", "persistentvolumeclaims");
    let fast = set(&[("storageClassName", json!("fast"))]);
    assert_eq!(stage.create(claims, &json!({ "storageClassName": "slow" })), fast);
    assert_eq!(stage.create(claims, &json!({ "storageClassName": "other" })), set(&[]));
    let ingresses = ("networking.k8s.io", "ingresses");
    let web = set(&[("ingressClassName", json!("web"))]);
    assert_eq!(stage.create(ingresses, &json!({ "ingressClassName": "all" })), web);
    check_denied(
        &stage.create(ingresses, &json!({ "ingressClassName": "gone" })),
        "doesn't allow IngressClass 'gone'",
    );
}

#[test]
fn a_missing_default_class_is_reported() {
    let stage = Stage::new(&json!({ "priorityClasses": { "default": "gone" } }), Vec::new());
    check_denied(
        &stage.create(("", "pods"), &json!({})),
        "there is no PriorityClass 'gone', which is the default of Tenant blue: name another one, or ask an administrator (priority-classes)",
    );
}

#[test]
fn a_large_object_is_described_briefly() {
    let bounds = json!({
        "containerRegistries": { "allowed": (0..1000).map(|number| format!("r{number}.example.org")).collect::<Vec<_>>() },
        "ingressOptions": { "allowedHostnames": { "allowedRegex": "(a|aa)+" } }
    });
    let stage = Stage::new(&bounds, Vec::new());
    let many: Vec<Value> = (0..20_000)
        .map(|number| json!({ "name": format!("c{number}"), "image": "r1.example.org/x" }))
        .collect();
    let mut spec = json!({ "containers": many });
    assert_eq!(stage.create(("", "pods"), &spec), set(&[]));
    spec["containers"][19_999]["image"] = json!(format!("evil.org/{}", "é".repeat(1 << 20)));
    let decision = stage.create(("", "pods"), &spec);
    check_denied(&decision, "is not the name of an image");
    let Decision::Deny(refusal) = decision else {
        unreachable!()
    };
    let message = refusal.to_string();
    assert!(
        message.len() < 2048 && message.contains("and 992 more"),
        "{} bytes",
        message.len()
    );
    // A backtracking evaluator would never finish this expression.
    let host = format!("{}!", "a".repeat(1 << 20));
    let ingress = stage.create(
        ("networking.k8s.io", "ingresses"),
        &json!({ "rules": [{ "host": host }] }),
    );
    check_denied(&ingress, "doesn't allow hostname aaa");
}
