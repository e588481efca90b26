//! The bounding objects and the labels of a Tenant's namespaces: written once, put back, and removed.

use std::sync::Arc;

use go_words::quantity::Quantity;
use serde_json::{Value, json};
use tenure_planner::tenant::{Attempt, LARGEST_ITEM, MOST_ITEMS, Snapshot};
use tenure_planner::{Live, Object};
use tenure_tenancy::quotas::QuotaUse;
use tenure_tenancy::{TenantFacts, Usages};

use crate::tenant::{now, record_namespaces, run_until_settled};

/// A Tenant with two namespaces.
fn make_snapshot(spec: Value, namespaces: Value) -> Snapshot {
    let mut snapshot = crate::tenant::make_snapshot(spec, namespaces);
    record_namespaces(&mut snapshot, &[("blue", "n1"), ("blue-dev", "n2")]);
    snapshot
}

fn make_namespaces() -> Value {
    let owners = json!([{ "name": "blue", "uid": "t" }]);
    json!([
        { "name": "blue", "uid": "n1", "tenantLabel": "blue", "tenantOwners": owners },
        { "name": "blue-dev", "uid": "n2", "tenantLabel": "blue", "tenantOwners": owners },
    ])
}

/// Makes a namespace of the tenant as a watch reports it.
fn see_namespace(snapshot: &mut Snapshot, name: &str, labels: Value) {
    let mut all = labels;
    all["capsule.clastix.io/tenant"] = json!("blue");
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": all } });
    let id = format!("_{name}__Namespace").parse().unwrap();
    snapshot.live.insert(id, Live::Present(Object(object)));
}

fn plan_again(snapshot: &mut Snapshot) -> Vec<String> {
    snapshot.attempt = Attempt::new(now(), &snapshot.tenant.metadata);
    let (steps, plan) = run_until_settled(snapshot);
    snapshot.memory = plan.memory;
    if plan.status.is_some() {
        snapshot.tenant.status = plan.status;
    }
    steps
}

fn find<'a>(snapshot: &'a mut Snapshot, id: &str) -> &'a mut Value {
    match snapshot.live.get_mut(&id.parse().unwrap()) {
        Some(Live::Present(Object(object))) => object,
        other => panic!("{id}: {other:?}"),
    }
}

fn set_spec(snapshot: &mut Snapshot, key: &str, value: Value) {
    let mut spec = serde_json::to_value(&snapshot.tenant.spec).unwrap();
    spec[key] = value;
    snapshot.tenant.spec = serde_json::from_value(spec).unwrap();
}

fn make_bounded_spec() -> Value {
    json!({
        "limitRanges": { "items": [{ "limits": [{ "type": "Container", "max": { "cpu": "1000m" }, "min": { "memory": 1024 } }] }] },
        "networkPolicies": { "items": [{ "podSelector": {}, "ingress": [{ "from": [{ "podSelector": {} }], "ports": [{ "port": 80 }] }] }] },
        "resourceQuotas": { "scope": "Namespace", "items": [{ "hard": { "limits.cpu": 8, "pods": "10" } }, { "hard": { "services": "5" } }] },
    })
}

#[test]
fn each_namespace_gets_tenant_contents_once() {
    let mut snapshot = make_snapshot(make_bounded_spec(), make_namespaces());
    let steps = plan_again(&mut snapshot);
    for namespace in ["blue", "blue-dev"] {
        for name in [
            format!("apply LimitRange/{namespace}/capsule-blue-0"),
            format!("apply NetworkPolicy/{namespace}/capsule-blue-0"),
            format!("apply ResourceQuota/{namespace}/capsule-blue-0"),
            format!("apply ResourceQuota/{namespace}/capsule-blue-1"),
        ] {
            assert!(steps.iter().any(|step| step.starts_with(&name)), "{name}: {steps:#?}");
        }
    }
    let quota = find(&mut snapshot, "blue-dev_capsule-blue-1__ResourceQuota").clone();
    assert_eq!(quota["spec"], json!({ "hard": { "services": "5" } }));
    assert_eq!(
        quota["metadata"]["labels"],
        json!({
            "capsule.clastix.io/tenant": "blue", "app.kubernetes.io/managed-by": "tenure",
            "projectcapsule.dev/tenant": "blue", "projectcapsule.dev/managed-by": "controller",
            "capsule.clastix.io/resource-quota": "1",
        })
    );
    assert_eq!(quota["metadata"]["ownerReferences"][0]["uid"], "t");
    assert_eq!(plan_again(&mut snapshot), Vec::<String>::new());
}

/// The additions of a real server are no difference, and nothing has to be remembered for them.
#[test]
fn server_defaults_are_no_difference() {
    let mut snapshot = make_snapshot(make_bounded_spec(), make_namespaces());
    plan_again(&mut snapshot);
    snapshot.memory = tenure_planner::tenant::Memory::default();
    let range = find(&mut snapshot, "blue_capsule-blue-0__LimitRange");
    assert_eq!(
        range["spec"]["limits"][0],
        json!({
            "type": "Container", "max": { "cpu": "1" }, "min": { "memory": "1024" },
            "default": { "cpu": "1" }, "defaultRequest": { "cpu": "1", "memory": "1024" },
        })
    );
    let policy = find(&mut snapshot, "blue_capsule-blue-0_networking.k8s.io_NetworkPolicy");
    assert_eq!(
        policy["spec"],
        json!({
            "podSelector": {}, "policyTypes": ["Ingress"], "egress": [],
            "ingress": [{ "from": [{ "podSelector": {} }], "ports": [{ "port": 80, "protocol": "TCP" }] }],
        })
    );
    // Lists without an entry are not stored.
    policy["spec"].as_object_mut().unwrap().remove("egress");
    assert_eq!(plan_again(&mut snapshot), Vec::<String>::new());
}

#[test]
fn edits_and_additions_are_reverted() {
    let mut snapshot = make_snapshot(make_bounded_spec(), make_namespaces());
    plan_again(&mut snapshot);
    let id = "blue_capsule-blue-0_networking.k8s.io_NetworkPolicy";
    let edits: [fn(&mut Value); 4] = [
        |policy| policy["spec"]["podSelector"]["matchLabels"] = json!({ "none": "such" }),
        |policy| policy["spec"]["ingress"][0]["from"][0] = json!({ "namespaceSelector": {} }),
        |policy| policy["spec"]["egress"] = json!([{}]),
        |policy| policy["metadata"]["labels"]["projectcapsule.dev/tenant"] = json!("red"),
    ];
    for edit in edits {
        edit(find(&mut snapshot, id));
        let steps = plan_again(&mut snapshot);
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert!(
            steps[0].starts_with("apply NetworkPolicy/blue/capsule-blue-0"),
            "{steps:?}"
        );
        assert_eq!(plan_again(&mut snapshot), Vec::<String>::new());
    }
}

/// The server's result of a write stays valid, although it differs from the request.
#[test]
fn result_of_write_is_not_written_again() {
    let mut snapshot = make_snapshot(make_bounded_spec(), make_namespaces());
    plan_again(&mut snapshot);
    let id = "blue_capsule-blue-0__ResourceQuota";
    let wanted: tenure_api::ObjectId = id.parse().unwrap();
    snapshot.attempt = Attempt::new(now(), &snapshot.tenant.metadata);
    find(&mut snapshot, id)["spec"]["more"] = json!("from a webhook");
    let plan = tenure_planner::tenant::plan(&snapshot, now());
    assert_eq!(plan.steps.len(), 1, "{plan}");
    let answered = find(&mut snapshot, id).clone();
    let answer = tenure_planner::answer::Answer::Applied(wanted, tenure_planner::WriteAnswer::Done(Object(answered)));
    snapshot.attempt.record_answer(answer);
    snapshot.memory = tenure_planner::tenant::plan(&snapshot, now()).memory;
    assert_eq!(plan_again(&mut snapshot), Vec::<String>::new());
    // Another edit is another matter.
    find(&mut snapshot, id)["spec"]["hard"]["pods"] = json!("1000");
    assert_eq!(plan_again(&mut snapshot).len(), 1);
}

#[test]
fn contents_removed_from_tenant_are_deleted() {
    let mut snapshot = make_snapshot(make_bounded_spec(), make_namespaces());
    plan_again(&mut snapshot);
    set_spec(
        &mut snapshot,
        "resourceQuotas",
        json!({ "scope": "Namespace", "items": [{ "hard": { "pods": "10" } }] }),
    );
    let steps = plan_again(&mut snapshot);
    let begins = |name: &str| steps.iter().filter(|step| step.starts_with(name)).count();
    assert_eq!(begins("apply ResourceQuota/"), 2, "{steps:?}");
    assert_eq!(begins("delete ResourceQuota/"), 2, "{steps:?}");
    assert_eq!(steps.len(), 4, "{steps:?}");
    for field in ["resourceQuotas", "limitRanges", "networkPolicies"] {
        set_spec(&mut snapshot, field, Value::Null);
    }
    let steps = plan_again(&mut snapshot);
    assert_eq!(steps.len(), 6, "{steps:?}");
    assert!(steps.iter().all(|step| step.starts_with("delete ")), "{steps:?}");
    assert!(snapshot.memory.settled.is_empty(), "{:?}", snapshot.memory.settled);
}

/// Each namespace of the Tenant is marked as counted.
#[test]
fn tenant_quota_is_written_where_admission_judges_sum() {
    let quotas = json!({ "items": [{ "hard": { "pods": "10" }, "scopes": ["NotTerminating"] }] });
    let mut snapshot = make_snapshot(json!({ "resourceQuotas": quotas }), make_namespaces());
    Arc::make_mut(&mut snapshot.tenancy).settings.is_guarded = true;
    for namespace in ["blue", "blue-dev"] {
        see_namespace(&mut snapshot, namespace, json!({}));
    }
    plan_again(&mut snapshot);
    for namespace in ["blue", "blue-dev"] {
        let quota = find(&mut snapshot, &format!("{namespace}_capsule-blue-0__ResourceQuota"));
        assert_eq!(
            quota["spec"],
            json!({ "hard": { "pods": "10" }, "scopes": ["NotTerminating"] })
        );
        let mut seen = Usages::default();
        let mut counted = quota.clone();
        counted["status"] = json!({ "used": { "pods": "3" } });
        seen.set_quota(namespace, "capsule-blue-0", Some(&counted));
        let facts = TenantFacts::from(&snapshot.tenant);
        let item = &facts.quotas.items()[0];
        let found = seen.find(namespace, (&facts.name, &facts.uid), item, "pods", false);
        assert_eq!(
            found,
            QuotaUse::Counted(Quantity::whole(3)),
            "admission knows what is written"
        );
    }
    let spaces = &snapshot.tenant.status.as_ref().unwrap().spaces;
    for space in spaces {
        let marks = space.metadata.as_ref().unwrap();
        assert_eq!(marks.labels["tenure.dev/counted"], "true", "{}", space.name);
    }
    assert_eq!(spaces.len(), 2);
    let (_, plan) = run_until_settled(&mut snapshot);
    assert!(!plan.to_string().contains("resourceQuotas"), "{plan}");
}

#[test]
fn excess_items_are_reported_and_remove_nothing() {
    let item = |pods: usize| json!({ "hard": { "pods": pods.to_string() } });
    let items = |count: usize| (0..count).map(item).collect::<Vec<_>>();
    let quotas = |items: Vec<Value>| json!({ "scope": "Namespace", "items": items });
    let mut snapshot = make_snapshot(
        json!({ "resourceQuotas": quotas(items(MOST_ITEMS)) }),
        make_namespaces(),
    );
    plan_again(&mut snapshot);
    let mut more = items(MOST_ITEMS + 1);
    more[0]["scopes"] = json!(["x".repeat(LARGEST_ITEM)]);
    set_spec(&mut snapshot, "resourceQuotas", quotas(more));
    assert_eq!(plan_again(&mut snapshot), Vec::<String>::new());
    let (_, plan) = run_until_settled(&mut snapshot);
    let written = plan.to_string();
    assert!(
        written.contains("17 items, of which the first 16 are written"),
        "{written}"
    );
    assert!(written.contains("spec.resourceQuotas.items[0]: more than"), "{written}");
}

/// An owner sets the labels of its namespaces. No such label chooses a weaker Pod Security level than that of the Tenant's other namespaces.
#[test]
fn owner_label_lowers_no_pod_security_level() {
    const LEVEL: &str = "pod-security.kubernetes.io/enforce";
    let by_label = |value: &str, level: &str| json!({ "namespaceSelector": { "matchLabels": { "tier": value } }, "labels": { LEVEL: level, "tier-is": value } });
    let by_name = json!({
        "namespaceSelector": { "matchExpressions": [{ "key": "kubernetes.io/metadata.name", "operator": "In", "values": ["blue"] }] },
        "labels": { LEVEL: "privileged" },
    });
    let but_one = json!({
        "namespaceSelector": { "matchExpressions": [{ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["blue"] }] },
        "labels": { LEVEL: "privileged" },
    });
    let entries = [
        by_label("system", "privileged"),
        by_label("hard", "restricted"),
        but_one,
        by_name,
        json!({ "labels": { LEVEL: "baseline" } }),
    ];
    let spec = json!({ "namespaceOptions": { "additionalMetadataList": entries } });
    for (name, labels, level) in [
        ("blue-dev", json!({}), "baseline"),
        ("blue-dev", json!({ "tier": "system" }), "baseline"),
        ("blue-dev", json!({ "tier": "hard" }), "restricted"),
        // A whole name is an administrator's word.
        ("blue", json!({}), "privileged"),
        ("blue", json!({ "tier": "hard" }), "restricted"),
    ] {
        let mut snapshot = make_snapshot(spec.clone(), make_namespaces());
        for other in ["blue", "blue-dev"] {
            let labels = if other == name { labels.clone() } else { json!({}) };
            see_namespace(&mut snapshot, other, labels);
        }
        plan_again(&mut snapshot);
        let id = format!("_{name}__Namespace").parse().unwrap();
        let written = match snapshot.attempt.applied.get(&id) {
            Some(tenure_planner::WriteAnswer::Done(object)) => object.0["metadata"]["labels"].clone(),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(written[LEVEL], level, "{name} {labels}: {written}");
        // Other labels are copied unchanged.
        assert_eq!(written["tier-is"], labels["tier"], "{name} {labels}: {written}");
    }
}

#[test]
fn namespaces_carry_exactly_metadata_of_tenant() {
    let spec = json!({
        "nodeSelector": { "pool": "blue", "disk": "fast" },
        "namespaceOptions": {
            "additionalMetadata": { "labels": { "cost": "42" }, "annotations": { "by": "{{ tenant.name }}" } },
            "additionalMetadataList": [
                { "namespaceSelector": { "matchLabels": { "env": "dev" } }, "labels": { "of": "{{ tenant.name }}.{{namespace}}", "cost": "43" } },
                // The selector matches a label that the entry itself adds: the entry is never applied, whether the label exists already or not.
                { "namespaceSelector": { "matchLabels": { "cost": "42" } }, "labels": { "flips": "yes" } },
                { "namespaceSelector": { "matchExpressions": [{ "key": "of", "operator": "DoesNotExist" }] }, "labels": { "stays": "yes" } },
            ],
        },
    });
    let mut snapshot = make_snapshot(spec, make_namespaces());
    see_namespace(&mut snapshot, "blue", json!({}));
    see_namespace(&mut snapshot, "blue-dev", json!({ "env": "dev" }));
    let steps = plan_again(&mut snapshot);
    let marked: Vec<&String> = steps
        .iter()
        .filter(|step| step.starts_with("apply Namespace/"))
        .collect();
    assert_eq!(marked.len(), 2, "{steps:?}");
    let written = |snapshot: &Snapshot, name: &str| {
        let id = format!("_{name}__Namespace").parse().unwrap();
        match snapshot.attempt.applied.get(&id) {
            Some(tenure_planner::WriteAnswer::Done(object)) => object.0["metadata"].clone(),
            other => panic!("{other:?}"),
        }
    };
    let dev = written(&snapshot, "blue-dev");
    assert_eq!(
        dev["labels"],
        json!({ "capsule.clastix.io/tenant": "blue", "cost": "42", "of": "blue.blue-dev", "stays": "yes" })
    );
    assert_eq!(
        dev["annotations"],
        json!({ "by": "{{ tenant.name }}", "scheduler.alpha.kubernetes.io/node-selector": "disk=fast,pool=blue" })
    );
    assert_eq!(
        written(&snapshot, "blue")["labels"],
        json!({ "capsule.clastix.io/tenant": "blue", "cost": "42", "stays": "yes" })
    );

    // Settings that are removed from the Tenant are removed from the namespaces, as far as they came from the Tenant.
    snapshot.tenant.spec.node_selector.clear();
    snapshot.tenant.spec.namespace_options = None;
    see_namespace(&mut snapshot, "blue", json!({ "own": "x" }));
    let labels = json!({ "cost": "42", "env": "dev" });
    see_namespace(&mut snapshot, "blue-dev", labels.clone());
    let steps = plan_again(&mut snapshot);
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(steps[0].starts_with("apply Namespace/blue-dev"), "{steps:?}");
    let written = written(&snapshot, "blue-dev")["labels"].clone();
    assert_eq!(written, json!({ "capsule.clastix.io/tenant": "blue" }));
    // Another manager has the label, too: it stays, and causes no write.
    see_namespace(&mut snapshot, "blue-dev", labels);
    assert_eq!(plan_again(&mut snapshot), Vec::<String>::new());
}

#[test]
fn additional_labels_never_move_namespace_to_other_tenant() {
    let spec = json!({ "namespaceOptions": { "additionalMetadataList": [{ "labels": { "capsule.clastix.io/tenant": "red" } }] } });
    let mut given = make_snapshot(spec, make_namespaces());
    see_namespace(&mut given, "blue", json!({}));
    let steps = plan_again(&mut given);
    assert!(!steps.iter().any(|step| step.contains("Namespace/")), "{steps:?}");
    let (_, plan) = run_until_settled(&mut given);
    assert!(
        plan.to_string().contains("it names the tenant of the namespace"),
        "{plan}"
    );

    // A watch doesn't know the namespace yet, so it is read first. A namespace that has disappeared meanwhile is not re-created.
    let spec = json!({ "namespaceOptions": { "additionalMetadata": { "labels": { "a": "b" } } } });
    let mut gone = make_snapshot(spec, make_namespaces());
    let steps = plan_again(&mut gone);
    assert!(!steps.iter().any(|step| step.contains("Namespace/")), "{steps:?}");
}

/// A namespace that bears every label by which its children are known is no child.
#[test]
fn namespace_with_child_labels_is_never_deleted() {
    let mut snapshot = make_snapshot(json!({}), make_namespaces());
    let labels = json!({ "app.kubernetes.io/managed-by": "tenure" });
    see_namespace(&mut snapshot, "stray", labels);
    let owner = json!([{ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": "blue", "uid": "t" }]);
    find(&mut snapshot, "_stray__Namespace")["metadata"]["ownerReferences"] = owner;
    let steps = plan_again(&mut snapshot);
    assert!(!steps.iter().any(|step| step.contains("stray")), "{steps:?}");
}
