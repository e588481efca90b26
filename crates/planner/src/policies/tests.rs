#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use tenure_tenancy::placement::TenantOwnerReference;
use tenure_tenancy::{NamespaceFacts, TenantFacts};

use super::*;

fn make_snapshot() -> Snapshot {
    let mut facts = FactIndex::new(Settings {
        has_policies: true,
        ..Settings::default()
    });
    facts.set_tenant(TenantFacts {
        name: "blue".to_owned(),
        uid: "t".to_owned(),
        recorded: BTreeMap::from([("blue".to_owned(), "n".to_owned())]),
        ..TenantFacts::default()
    });
    facts.set_namespace(NamespaceFacts {
        name: "blue".to_owned(),
        uid: "n".to_owned(),
        tenant_label: Some("blue".to_owned()),
        tenant_owners: vec![TenantOwnerReference {
            name: "blue".to_owned(),
            uid: "t".to_owned(),
        }],
        ..NamespaceFacts::default()
    });
    let seen = |name: &str| ObservedNamespace {
        name: name.to_owned(),
        uid: "n".to_owned(),
        annotations: BTreeMap::from([("others".to_owned(), "stay".to_owned())]),
    };
    Snapshot {
        facts,
        namespaces: vec![seen("blue"), seen("nobody")],
        ..Snapshot::default()
    }
}

/// Returns the snapshot after the planned writes.
fn carry_out(snapshot: &mut Snapshot, writes: Vec<Write>) {
    for write in writes {
        match write {
            Write::Facts { namespace, patch } => {
                let seen = snapshot
                    .namespaces
                    .iter_mut()
                    .find(|seen| seen.name == namespace)
                    .unwrap();
                for (key, value) in patch["metadata"]["annotations"].as_object().unwrap() {
                    match value.as_str() {
                        Some(value) => seen.annotations.insert(key.clone(), value.to_owned()),
                        None => seen.annotations.remove(key),
                    };
                }
            }
            Write::Create { object, event } => {
                assert_eq!(event, None);
                snapshot.live.push(object);
            }
            Write::Repair {
                object, event: None, ..
            } => {
                let target = Target::from_object(&object);
                let known = snapshot
                    .live
                    .iter_mut()
                    .find(|known| Target::from_object(known) == target);
                *known.unwrap() = object;
            }
            other => panic!("nothing was changed: {other:?}"),
        }
    }
}

/// Lets a request meet the present policies.
fn test_policies(snapshot: &mut Snapshot) {
    let writes = plan(snapshot).writes;
    carry_out(snapshot, writes);
    let asked = plan(snapshot);
    assert!(!asked.part_state.is_in_force && asked.writes.is_empty(), "{asked:#?}");
    snapshot.met = Some(asked.probe.unwrap().state);
    assert!(plan(snapshot).part_state.is_in_force);
}

#[test]
fn policies_are_written_once_after_facts() {
    let mut snapshot = make_snapshot();
    let first = plan(&snapshot).writes;
    let [Write::Facts { namespace, patch }] = first.as_slice() else {
        panic!("{first:?}")
    };
    assert_eq!((namespace.as_str(), &patch["metadata"]["uid"]), ("blue", &json!("n")));
    assert_eq!(
        patch["metadata"]["annotations"]["facts.tenure.dev/account"],
        "blue-gitops"
    );
    // A namespace that makes the server refuse the facts delays no policy.
    let mut full = snapshot.clone();
    full.refused = first.iter().map(Write::target).collect();
    let creates = |writes: &[Write]| {
        writes
            .iter()
            .filter(|write| matches!(write, Write::Create { .. }))
            .count()
    };
    assert!(creates(&first) == 0 && creates(&plan(&full).writes) >= 30);
    carry_out(&mut snapshot, first);
    let second = plan(&snapshot).writes;
    assert!(second.len() >= 30 && second.iter().all(|write| matches!(write, Write::Create { .. })));
    carry_out(&mut snapshot, second);
    test_policies(&mut snapshot);
    assert_eq!(plan(&snapshot).writes, []);
    // Annotations that are no facts any more are removed, and no others.
    snapshot.namespaces[1]
        .annotations
        .insert("facts.tenure.dev/tenant".to_owned(), "blue".to_owned());
    let stale = plan(&snapshot).writes;
    let [Write::Facts { patch, .. }] = stale.as_slice() else {
        panic!("{stale:?}")
    };
    assert_eq!(
        patch["metadata"]["annotations"],
        json!({ "facts.tenure.dev/tenant": null })
    );
}

#[test]
fn deleted_and_weakened_policies_are_restored_and_reported() {
    let mut snapshot = make_snapshot();
    let facts = plan(&snapshot).writes;
    carry_out(&mut snapshot, facts);
    let policies = plan(&snapshot).writes;
    carry_out(&mut snapshot, policies);
    test_policies(&mut snapshot);
    let gone = snapshot.live.remove(3);
    let weakened = |object: &mut Value| {
        object["spec"]["matchConstraints"]["excludeResourceRules"] = json!([{ "resources": ["*"] }])
    };
    weakened(&mut snapshot.live[0]);
    snapshot.live[1]["spec"]["validationActions"] = json!(["Audit"]);
    let Plan { writes, part_state, .. } = plan(&snapshot);
    let [
        Write::Repair {
            patch: rules,
            event: Some(one),
            ..
        },
        Write::Repair {
            patch: actions,
            event: Some(other),
            ..
        },
        Write::Create {
            object,
            event: Some(third),
        },
    ] = writes.as_slice()
    else {
        panic!("{writes:#?}");
    };
    assert_eq!(
        rules["spec"],
        json!({ "matchConstraints": { "excludeResourceRules": null } })
    );
    assert_eq!(actions["spec"], json!({ "validationActions": ["Deny"] }));
    assert_eq!(*object, gone);
    assert_eq!(
        one.message,
        "ValidatingAdmissionPolicy tenure-namespaces was changed (spec.matchConstraints), and is put back: writes that it refuses may have been allowed meanwhile"
    );
    assert!(
        other
            .message
            .contains("Binding tenure-namespaces was changed (spec.validationActions)")
    );
    assert!(third.message.contains("was missing, and is created again"));
    assert_eq!((part_state.is_in_force, part_state.reason), (false, "Weakened"));
    assert!(
        part_state
            .message
            .starts_with("ValidatingAdmissionPolicy tenure-namespaces, "),
        "{part_state:?}"
    );
}

/// Sets up a cluster in which all policies are written, and a request has met them.
fn put_in_force() -> Snapshot {
    let mut snapshot = make_snapshot();
    for _ in 0..2 {
        let writes = plan(&snapshot).writes;
        carry_out(&mut snapshot, writes);
    }
    test_policies(&mut snapshot);
    snapshot
}

#[test]
fn policies_are_in_force_after_probe_meets_them() {
    let mut snapshot = put_in_force();
    assert!(plan(&snapshot).part_state.message.ends_with(" policies are in force"));
    // Another client changed a binding, and it was put back: the new state is not the one that the request met.
    let binding = snapshot.live.iter_mut().find(|object| {
        object["kind"] == "ValidatingAdmissionPolicyBinding" && object["metadata"]["name"] == "tenure-cordoned"
    });
    binding.unwrap()["metadata"]["generation"] = json!(3);
    let again = plan(&snapshot);
    assert_eq!(
        (again.part_state.is_in_force, again.part_state.reason),
        (false, "NotMetYet")
    );
    // The policy that answers the probe is written first, without an event, and the probe follows.
    assert_eq!(again.probe, None);
    assert!(again.writes.len() == 2 && again.writes.iter().all(|write| write.find_event().is_none()));
    carry_out(&mut snapshot, again.writes);
    let asked = plan(&snapshot);
    assert_eq!(asked.part_state.reason, "NotMetYet");
    let probe = asked.probe.unwrap();
    assert!(Some(&probe.state) != snapshot.met.as_ref());
    snapshot.met = Some(probe.state);
    let met = plan(&snapshot);
    assert!(met.part_state.is_in_force && met.probe.is_none() && met.writes.is_empty());
    // The policy that answers the probe may be missing: the others are as the request met them, and this one comes back.
    snapshot
        .live
        .retain(|object| object["metadata"]["name"] != "tenure-probe");
    let gone = plan(&snapshot);
    assert!(gone.part_state.is_in_force && gone.writes.len() == 2);
    // On its way out.
    snapshot.live[0]["metadata"]["deletionTimestamp"] = json!("2026-11-25T00:00:00Z");
    assert_eq!(plan(&snapshot).part_state.reason, "Weakened");
}

#[test]
fn a_held_policy_is_put_back_and_reported() {
    let mut snapshot = put_in_force();
    // A finalizer holds it, and it refuses nothing any more.
    let held = snapshot
        .live
        .iter_mut()
        .find(|object| object["kind"] == "ValidatingAdmissionPolicy" && object["metadata"]["name"] == "tenure-cordoned")
        .unwrap();
    held["metadata"]["deletionTimestamp"] = json!("2026-11-25T00:00:00Z");
    held["metadata"]["finalizers"] = json!(["example.org/hold"]);
    held["spec"]["validations"] = json!([]);
    let put_back = plan(&snapshot);
    assert!(
        matches!(put_back.writes.as_slice(), [Write::Repair { object, .. }] if object["metadata"]["name"] == "tenure-cordoned"),
        "{:?}",
        put_back.writes
    );
    let silent = put_back.writes.into_iter().map(Write::without_event).collect();
    carry_out(&mut snapshot, silent);
    let held = snapshot
        .live
        .iter_mut()
        .find(|object| object["kind"] == "ValidatingAdmissionPolicy" && object["metadata"]["name"] == "tenure-cordoned")
        .unwrap();
    held["metadata"]["deletionTimestamp"] = json!("2026-11-25T00:00:00Z");
    let after = plan(&snapshot);
    assert!(after.writes.is_empty(), "{:?}", after.writes);
    let message = &after.part_state.message;
    assert!(message.contains("tenure-cordoned is being deleted"), "{message}");
    // A policy of another version: it was deleted, and still refuses.
    snapshot.live.iter_mut().for_each(|object| {
        object["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    });
    snapshot.live.push(json!({
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {
            "name": "tenure-of-tomorrow", "uid": "u", "labels": { "app.kubernetes.io/managed-by": "tenure" },
            "deletionTimestamp": "2026-11-25T00:00:00Z", "finalizers": ["example.org/hold"]
        }
    }));
    let left = plan(&snapshot);
    assert!(
        left.writes.is_empty() && left.part_state.message.contains("example.org/hold"),
        "{}",
        left.part_state.message
    );
}

#[test]
fn only_policies_of_other_versions_are_removed() {
    let mut snapshot = put_in_force();
    let policy = |name: &str, labels: Value| {
        json!({
            "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": name, "uid": format!("u-{name}"), "labels": labels }
        })
    };
    let ours = json!({ "app.kubernetes.io/managed-by": "tenure" });
    snapshot.live.extend([
        policy("tenure-of-tomorrow", ours.clone()),
        // A policy of another author with a similar name, and the policy that the controllers don't keep.
        policy("tenure-by-hand", json!({})),
        policy("tenure-controller-rights", ours.clone()),
        policy("others", ours),
    ]);
    let plan = plan(&snapshot);
    let [Write::Delete { object, uid, event }] = plan.writes.as_slice() else {
        panic!("{:#?}", plan.writes);
    };
    assert_eq!(
        (object["metadata"]["name"].as_str(), uid.as_str()),
        (Some("tenure-of-tomorrow"), "u-tenure-of-tomorrow")
    );
    assert!(event.message.contains("made by another version"), "{}", event.message);
    assert_eq!(
        (plan.part_state.is_in_force, plan.part_state.reason),
        (false, "LeftOver")
    );
}
