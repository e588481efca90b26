//! Managed objects that are being deleted and stay because a finalizer holds them: they are corrected, emptied when unwanted, and reported.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_planner::answer::{Answer, DeleteAnswer};
use tenure_planner::tenant::{Attempt, Plan, Snapshot, plan};
use tenure_planner::{Live, Next, Object, Request, WriteAnswer};

use crate::tenant::{now, record_namespaces, run_until_settled};

const HOLD: &str = "example.org/hold";

fn make_namespaces(is_deleting: bool) -> Value {
    let owners = json!([{ "name": "blue", "uid": "t" }]);
    json!([{ "name": "blue", "uid": "n1", "tenantLabel": "blue", "tenantOwners": owners, "deleting": is_deleting }])
}

/// A settled Tenant with an owner, a NetworkPolicy and a quota.
fn make_settled(is_guarded: bool) -> Snapshot {
    let spec = json!({
        "owners": [{ "kind": "User", "name": "alice", "clusterRoles": ["admin"] }],
        "networkPolicies": { "items": [{ "podSelector": {}, "policyTypes": ["Ingress"] }] },
        "resourceQuotas": { "scope": "Namespace", "items": [{ "hard": { "pods": "2" } }] },
    });
    let mut snapshot = crate::tenant::make_snapshot(spec, make_namespaces(false));
    record_namespaces(&mut snapshot, &[("blue", "n1")]);
    Arc::make_mut(&mut snapshot.tenancy).settings.is_guarded = is_guarded;
    run_until_settled(&mut snapshot);
    for live in snapshot.live.values_mut() {
        if let Live::Present(Object(object)) = live {
            object["metadata"]["resourceVersion"] = json!("1");
        }
    }
    snapshot
}

fn find(snapshot: &Snapshot, part: &str) -> tenure_api::ObjectId {
    let mut ids = snapshot.live.keys();
    let id = ids.find(|id| format!("{}/{}", id.kind, id.name).contains(part));
    id.unwrap_or_else(|| panic!("{part}: {:?}", snapshot.live.keys()))
        .clone()
}

/// Sets a finalizer on an object and deletes the object.
fn add_finalizers(snapshot: &mut Snapshot, part: &str, finalizers: &[&str]) -> tenure_api::ObjectId {
    let id = find(snapshot, part);
    let Some(Live::Present(Object(object))) = snapshot.live.get_mut(&id) else {
        panic!("{id}")
    };
    object["metadata"]["finalizers"] = json!(finalizers);
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    id
}

fn edit_object(snapshot: &mut Snapshot, id: &tenure_api::ObjectId, pointer: &str, value: Value) {
    let Some(Live::Present(Object(object))) = snapshot.live.get_mut(id) else {
        panic!("{id}")
    };
    *object.pointer_mut(pointer).unwrap() = value;
}

/// Runs an attempt against a server that keeps objects with finalizers.
fn run(snapshot: &mut Snapshot) -> (Vec<String>, Plan) {
    snapshot.attempt = Attempt::new(now(), &snapshot.tenant.metadata);
    let mut steps = Vec::new();
    for _ in 0..10 {
        let plan = plan(snapshot, now());
        if plan.next != Next::Again {
            return (steps, plan);
        }
        for step in &plan.steps {
            let (id, answer) = match step {
                Request::Apply(apply) => {
                    let mut object = apply.object.0.clone();
                    let old = snapshot.live.get(&apply.id).and_then(Live::object);
                    for field in ["finalizers", "deletionTimestamp", "uid", "resourceVersion"] {
                        if let Some(value) = old.and_then(|old| old["metadata"].get(field)) {
                            object["metadata"][field] = value.clone();
                        }
                    }
                    (
                        &apply.id,
                        Answer::Applied(apply.id.clone(), WriteAnswer::Done(Object(object))),
                    )
                }
                Request::Release(release) => {
                    let mut object = snapshot.live[&release.target.id].object().unwrap().clone();
                    object["metadata"]["finalizers"] = release.patch["metadata"]["finalizers"].clone();
                    let answer = WriteAnswer::Done(Object(object));
                    (&release.target.id, Answer::Released(release.target.id.clone(), answer))
                }
                Request::Read(target) => (&target.id, Answer::Live(target.id.clone(), Live::Absent)),
                Request::Delete(delete) => (
                    &delete.target.id,
                    Answer::Deleted(delete.target.id.clone(), DeleteAnswer::Accepted),
                ),
                other => panic!("{other}"),
            };
            if !matches!(step, Request::Read(_)) {
                steps.push(step.to_string());
            }
            assert!(!id.name.is_empty());
            let implied = snapshot.attempt.record_answer(answer);
            snapshot.live.extend(implied);
        }
    }
    panic!("it never ends: {steps:?}")
}

fn read_ready(plan: &Plan) -> String {
    let status = plan.status.as_ref().expect("a status");
    let ready = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .unwrap();
    format!("{:?} {}", ready.status, ready.message)
}

#[test]
fn a_held_binding_is_corrected_and_reported() {
    let mut snapshot = make_settled(true);
    let id = add_finalizers(&mut snapshot, "capsule:managed", &[HOLD]);
    edit_object(
        &mut snapshot,
        &id,
        "/subjects",
        json!([{ "kind": "User", "name": "mallory" }]),
    );
    let (steps, plan) = run(&mut snapshot);
    assert_eq!(steps, [format!("apply RoleBinding/blue/{} (Tenant)", id.name)]);
    assert_eq!(snapshot.live[&id].object().unwrap()["subjects"][0]["name"], "alice");
    let message = read_ready(&plan);
    assert!(
        message.starts_with("False") && message.contains(HOLD) && message.contains(&id.name),
        "{message}"
    );
}

#[test]
fn a_removed_owner_loses_a_held_binding_at_once() {
    let mut snapshot = make_settled(true);
    let id = add_finalizers(&mut snapshot, "capsule:managed", &[HOLD]);
    snapshot.tenant.spec.owners.clear();
    let (_, plan) = run(&mut snapshot);
    let live = snapshot.live[&id].object().unwrap();
    assert_eq!(live["subjects"], json!([]));
    // The labels that identify the object stay.
    assert_eq!(live["metadata"]["labels"]["capsule.clastix.io/tenant"], "blue");
    assert!(read_ready(&plan).contains(HOLD), "{}", read_ready(&plan));
    let (steps, plan) = run(&mut snapshot);
    assert_eq!(steps, Vec::<String>::new());
    assert!(read_ready(&plan).starts_with("False"), "{}", read_ready(&plan));
}

#[test]
fn a_held_policy_and_a_held_quota_are_corrected() {
    for (part, pointer, wrong) in [
        ("NetworkPolicy", "/spec/ingress", json!([{}])),
        ("ResourceQuota", "/spec/hard/pods", json!("200")),
    ] {
        let mut snapshot = make_settled(true);
        let id = add_finalizers(&mut snapshot, part, &[HOLD]);
        edit_object(&mut snapshot, &id, pointer, wrong);
        let (steps, plan) = run(&mut snapshot);
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert!(steps[0].starts_with(&format!("apply {part}/blue/")), "{steps:?}");
        assert!(read_ready(&plan).contains(HOLD), "{}", read_ready(&plan));
    }
}

#[test]
fn an_unwanted_held_policy_allows_nothing() {
    let mut snapshot = make_settled(true);
    let id = add_finalizers(&mut snapshot, "NetworkPolicy", &[HOLD]);
    edit_object(&mut snapshot, &id, "/spec/ingress", json!([{}]));
    snapshot.tenant.spec.network_policies = None;
    run(&mut snapshot);
    let spec = &snapshot.live[&id].object().unwrap()["spec"];
    assert_eq!(spec["ingress"], json!([]));
    assert_ne!(spec["podSelector"], json!({}));
}

#[test]
fn a_tenants_finalizer_is_removed_where_no_admission_checks() {
    let mut snapshot = make_settled(false);
    snapshot.tenant.metadata.annotations =
        Some([("tenure.dev/kept-finalizers".to_owned(), "ops.example.net/*".to_owned())].into());
    let id = add_finalizers(&mut snapshot, "capsule:managed", &[HOLD]);
    let (steps, plan) = run(&mut snapshot);
    assert_eq!(
        steps,
        [
            format!("remove finalizers {HOLD} from RoleBinding/blue/{}", id.name),
            format!("apply RoleBinding/blue/{} (Tenant)", id.name),
        ]
    );
    assert!(plan.status.is_none_or(|status| {
        status
            .conditions
            .iter()
            .all(|known| known.type_ != "Ready" || known.message.starts_with("1 namespace"))
    }));
    // A finalizer that an administrator lists stays, and is reported.
    let mut snapshot = make_settled(false);
    snapshot.tenant.metadata.annotations =
        Some([("tenure.dev/kept-finalizers".to_owned(), "ops.example.net/*".to_owned())].into());
    add_finalizers(&mut snapshot, "capsule:managed", &["ops.example.net/backup", HOLD]);
    let (steps, plan) = run(&mut snapshot);
    assert_eq!(steps.len(), 1, "{steps:?}");
    let message = read_ready(&plan);
    assert!(
        message.contains("ops.example.net/backup") && !message.contains(HOLD),
        "{message}"
    );
}

#[test]
fn a_finalizer_goes_before_the_object_is_deleted_too() {
    let mut snapshot = make_settled(false);
    let id = find(&snapshot, "NetworkPolicy");
    let Some(Live::Present(Object(object))) = snapshot.live.get_mut(&id) else {
        panic!()
    };
    object["metadata"]["finalizers"] = json!([HOLD, "networking.k8s.aws/resources"]);
    let (steps, _) = run(&mut snapshot);
    assert_eq!(
        steps,
        [format!("remove finalizers {HOLD} from NetworkPolicy/blue/{}", id.name)]
    );
    assert_eq!(
        snapshot.live[&id].object().unwrap()["metadata"]["finalizers"],
        json!(["networking.k8s.aws/resources"])
    );
}

#[test]
fn namespace_bounds_stay_until_namespace_is_gone() {
    let mut snapshot = make_settled(true);
    let mut tenancy = (*snapshot.tenancy).clone();
    tenancy.namespaces = serde_json::from_value(make_namespaces(true)).unwrap();
    snapshot.tenancy = Arc::new(tenancy);
    let id = find(&snapshot, "NetworkPolicy");
    edit_object(&mut snapshot, &id, "/spec/ingress", json!([{}]));
    let (steps, _) = run(&mut snapshot);
    assert!(
        steps.iter().any(|step| step.starts_with("apply NetworkPolicy/blue/")),
        "{steps:?}"
    );
    assert!(
        !steps
            .iter()
            .any(|step| step.starts_with("delete NetworkPolicy") || step.starts_with("delete ResourceQuota")),
        "{steps:?}"
    );
    assert!(
        steps
            .iter()
            .any(|step| step.starts_with("delete RoleBinding/blue/capsule:managed")),
        "{steps:?}"
    );
}

#[test]
fn a_held_binding_of_another_role_is_reported() {
    let mut snapshot = make_settled(true);
    let id = add_finalizers(&mut snapshot, "capsule:managed", &[HOLD]);
    edit_object(&mut snapshot, &id, "/roleRef/name", json!("cluster-admin"));
    let (steps, plan) = run(&mut snapshot);
    assert_eq!(steps, Vec::<String>::new());
    let message = read_ready(&plan);
    assert!(
        message.contains("binds another role") && message.contains(HOLD),
        "{message}"
    );
}
