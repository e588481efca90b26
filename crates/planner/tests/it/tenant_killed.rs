//! A process that reconciles a Tenant is killed after any of its writes, or after two of them. The next one begins with empty memory, needs no administrator, and
//! reaches the result of a process without a kill.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_api::ObjectId;

use crate::tenant::{make_snapshot, record_namespaces};
use crate::tenant_namespaces::{World, make_guarded};

/// A Tenant with each kind of object that the controllers write for one.
fn first_spec() -> Value {
    json!({
        "owners": [
            { "kind": "User", "name": "alice", "clusterRoles": ["admin"] },
            { "kind": "Group", "name": "devs", "clusterRoles": ["edit"] },
        ],
        "additionalRoleBindings": [{ "clusterRoleName": "view", "subjects": [{ "kind": "Group", "name": "auditors" }] }],
        "namespaceOptions": { "additionalMetadata": { "labels": { "example.org/zone": "a" } } },
        "networkPolicies": { "items": [{ "podSelector": {}, "policyTypes": ["Ingress"] }, { "podSelector": {}, "policyTypes": ["Egress"] }] },
        "limitRanges": { "items": [{ "limits": [{ "type": "Pod", "max": { "cpu": "1" } }] }] },
        "resourceQuotas": { "scope": "Namespace", "items": [{ "hard": { "pods": "2" } }] },
    })
}

/// The spec after an owner, a binding and a NetworkPolicy were removed, and after a quota was changed.
fn second_spec() -> Value {
    let mut spec = first_spec();
    spec["owners"].as_array_mut().unwrap().remove(0);
    spec["additionalRoleBindings"] = json!([]);
    spec["networkPolicies"]["items"].as_array_mut().unwrap().pop();
    spec["resourceQuotas"]["items"][0]["hard"]["pods"] = json!("3");
    spec
}

/// Runs both specs, one after the other.
fn run_with_kills(is_guarded: bool, killed_after: &[usize]) -> World {
    let snapshot = make_snapshot(first_spec(), json!([]));
    let mut world = World::new(if is_guarded { make_guarded(snapshot) } else { snapshot });
    world.killed_after = killed_after.to_vec();
    world.run();
    world.snapshot.tenant.spec = serde_json::from_value(second_spec()).unwrap();
    world.snapshot.tenant.metadata.generation = Some(2);
    world.run();
    world
}

/// Describes the final state, without the parts that differ between processes.
fn describe_world(world: &World) -> (BTreeMap<ObjectId, Value>, Vec<Value>, Vec<String>, String) {
    let namespaces = world.namespaces.values().map(|namespace| {
        let mut namespace = namespace.clone();
        if let Some(annotations) = namespace["metadata"]["annotations"].as_object_mut() {
            annotations.remove("tenure.dev/creation-proof");
        }
        namespace
    });
    (
        world.objects.clone(),
        namespaces.collect(),
        world.list_recorded(),
        world.read_ready(),
    )
}

#[test]
fn a_tenant_converges_after_a_kill_at_any_write() {
    for is_guarded in [false, true] {
        let whole = run_with_kills(is_guarded, &[]);
        let wanted = describe_world(&whole);
        assert!(wanted.3.starts_with("True"), "{}", wanted.3);
        assert!(whole.writes > 15, "{}", whole.writes);
        let has = |text: &str| wanted.0.values().any(|object| object.to_string().contains(text));
        assert!(has("devs") && !has("alice") && !has("auditors"), "{:?}", wanted.0);
        for after in 1..=whole.writes {
            assert_eq!(
                describe_world(&run_with_kills(is_guarded, &[after])),
                wanted,
                "killed after write {after}"
            );
            // The next process is killed by its first write, and the one after it by its third.
            let again = [after, after + 1, after + 4];
            assert_eq!(
                describe_world(&run_with_kills(is_guarded, &again)),
                wanted,
                "killed after writes {again:?}"
            );
        }
    }
}

/// A Tenant with a recorded namespace `shop`, beside a foreign namespace. The Tenant is deleted after the n-th write.
fn play_deletion(is_guarded: bool, deleted_after: usize, killed_after: &[usize]) -> World {
    let mut snapshot = make_snapshot(first_spec(), json!([]));
    record_namespaces(&mut snapshot, &[("shop", "uid-shop")]);
    snapshot.tenant.metadata.finalizers = Some(vec!["tenure.dev/finalizer".to_owned()]);
    let mut world = World::new(if is_guarded { make_guarded(snapshot) } else { snapshot });
    world.store_namespace("shop", json!({ "labels": { "capsule.clastix.io/tenant": "blue" } }));
    world.store_namespace("strange", json!({}));
    world.killed_after = killed_after.to_vec();
    world.deleted_after = Some(deleted_after);
    world
}

/// The Tenant is deleted after any write, and the controllers are killed at that write or soon after.
#[test]
fn tenant_deletion_leaves_no_namespace_after_kills() {
    for is_guarded in [false, true] {
        let mut whole = play_deletion(is_guarded, usize::MAX, &[]);
        assert!(whole.run());
        assert_eq!(whole.list_recorded(), ["blue=uid-blue", "shop=uid-shop"]);
        assert!(whole.writes > 15, "{}", whole.writes);
        let mut kinds_of_kill = 0;
        for deleted_after in 0..=whole.writes {
            let next = deleted_after + 1;
            for killed_after in [
                vec![],
                vec![deleted_after],
                vec![deleted_after, next],
                vec![next],
                vec![next, next + 1],
            ] {
                let mut world = play_deletion(is_guarded, deleted_after, &killed_after);
                let is_gone = (0..6).any(|_| !world.run());
                let case =
                    format!("deleted after write {deleted_after}, killed after {killed_after:?}, judged: {is_guarded}");
                assert!(is_gone, "{case}: {}", world.read_ready());
                assert_eq!(world.namespaces.keys().collect::<Vec<_>>(), ["strange"], "{case}");
                kinds_of_kill += 1;
            }
        }
        assert!(kinds_of_kill > 80, "{kinds_of_kill}");
    }
}
