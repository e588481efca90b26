//! A process that reconciles a Tenant is killed after any of its writes, or after two of them. The next one begins with empty memory, needs no
//! administrator, and comes to what a process without a kill comes to.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_api::ObjectId;

use crate::tenant::snapshot;
use crate::tenant_namespaces::{World, guarded};

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

/// The same after an owner, a binding and a NetworkPolicy were removed, and after a quota was changed.
fn second_spec() -> Value {
    let mut spec = first_spec();
    spec["owners"].as_array_mut().unwrap().remove(0);
    spec["additionalRoleBindings"] = json!([]);
    spec["networkPolicies"]["items"].as_array_mut().unwrap().pop();
    spec["resourceQuotas"]["items"][0]["hard"]["pods"] = json!("3");
    spec
}

/// Both specs, one after the other.
fn play(is_guarded: bool, killed_after: &[usize]) -> World {
    let snapshot = snapshot(first_spec(), json!([]));
    let mut world = World::new(if is_guarded { guarded(snapshot) } else { snapshot });
    world.killed_after = killed_after.to_vec();
    world.run();
    world.snapshot.tenant.spec = serde_json::from_value(second_spec()).unwrap();
    world.snapshot.tenant.metadata.generation = Some(2);
    world.run();
    world
}

/// What is left in the end, without what tells one process from another.
fn describe(world: &World) -> (BTreeMap<ObjectId, Value>, Vec<Value>, Vec<String>, String) {
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
        world.recorded(),
        world.ready(),
    )
}

#[test]
fn a_tenant_converges_after_a_kill_at_any_write() {
    for is_guarded in [false, true] {
        let whole = play(is_guarded, &[]);
        let wanted = describe(&whole);
        assert!(wanted.3.starts_with("True"), "{}", wanted.3);
        assert!(whole.writes > 15, "{}", whole.writes);
        let has = |text: &str| wanted.0.values().any(|object| object.to_string().contains(text));
        assert!(has("devs") && !has("alice") && !has("auditors"), "{:?}", wanted.0);
        for after in 1..=whole.writes {
            assert_eq!(
                describe(&play(is_guarded, &[after])),
                wanted,
                "killed after write {after}"
            );
            // The next process is killed by its first write, and the one after it by its third.
            let again = [after, after + 1, after + 4];
            assert_eq!(
                describe(&play(is_guarded, &again)),
                wanted,
                "killed after writes {again:?}"
            );
        }
    }
}
