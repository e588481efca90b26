//! A Tenant's record: the namespaces that enter and leave it, and the deletion of a Tenant with its recorded namespaces.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_planner::answer::{Answer, DeleteAnswer, Failure, Reason};
use tenure_planner::plan::FinalizerChange;
use tenure_planner::tenant::{Attempt, Plan, Snapshot, plan};
use tenure_planner::{Live, Next, Object, Request, invariants};

use crate::tenant::{make_snapshot, now, record_namespaces, run_until_settled};

const FINALIZER: &str = "tenure.dev/finalizer";

/// A namespace that names the Tenant by its label and with its uid.
fn make_claim(name: &str, uid: &str) -> Value {
    json!({ "name": name, "uid": uid, "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "t" }] })
}

fn set_namespaces(snapshot: &mut Snapshot, namespaces: Value) {
    let tenancy = Arc::make_mut(&mut snapshot.tenancy);
    tenancy.namespaces = serde_json::from_value(namespaces).unwrap();
}

/// The uids that the status records, by name, once nothing is left to do.
fn list_recorded(snapshot: &mut Snapshot) -> Vec<(String, String)> {
    let (_, plan) = run_until_settled(snapshot);
    apply_plan(snapshot, plan);
    let status = snapshot.tenant.status.clone().unwrap_or_default();
    let spaces = status.spaces.into_iter();
    spaces
        .map(|space| (space.name, space.uid.unwrap_or_default()))
        .collect()
}

fn apply_plan(snapshot: &mut Snapshot, plan: Plan) {
    snapshot.memory = plan.memory;
    if plan.status.is_some() {
        snapshot.tenant.status = plan.status;
    }
    snapshot.attempt = Attempt::new(now(), &snapshot.tenant.metadata);
}

fn describe_condition(snapshot: &Snapshot, type_: &str) -> String {
    let status = snapshot.tenant.status.clone().unwrap_or_default();
    let found = status.conditions.into_iter().find(|condition| condition.type_ == type_);
    let found = found.expect("the condition");
    format!("{} {}: {}", found.status.as_str(), found.reason, found.message)
}

fn make_pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter()
        .map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned()))
        .collect()
}

#[test]
fn namespace_claims_count_only_where_admission_judges() {
    let all = json!([make_claim("blue", "n1"), make_claim("forged", "n2"), { "name": "labelled", "uid": "n3", "tenantLabel": "blue" }]);
    // No admission checks writes: the home namespace is recorded if nothing is recorded yet.
    let mut unjudged = make_snapshot(json!({}), all.clone());
    assert_eq!(list_recorded(&mut unjudged), make_pairs(&[("blue", "n1")]));
    let recorded = describe_condition(&unjudged, "NamespacesRecorded");
    assert!(
        recorded.starts_with("False AdoptionNeeded: not taken: forged, labelled."),
        "{recorded}"
    );
    assert!(
        describe_condition(&unjudged, "Ready").starts_with("True"),
        "who writes namespaces makes no Tenant unready"
    );
    // If admission or policies check writes, all namespaces were checked.
    for by_policy in [false, true] {
        let mut judged = make_snapshot(json!({}), all.clone());
        let settings = &mut Arc::make_mut(&mut judged.tenancy).settings;
        (settings.is_guarded, settings.has_policies) = (!by_policy, by_policy);
        let names: Vec<String> = list_recorded(&mut judged).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["blue", "forged", "labelled"]);
        assert!(describe_condition(&judged, "NamespacesRecorded").starts_with("True Recorded"));
    }
    // A re-created namespace is another one, also the home namespace.
    let mut again = make_snapshot(
        json!({}),
        json!([make_claim("blue", "n-new"), make_claim("shop", "n-new")]),
    );
    record_namespaces(&mut again, &[("blue", "n1"), ("shop", "n2")]);
    assert_eq!(list_recorded(&mut again), make_pairs(&[]));
    assert!(describe_condition(&again, "Ready").contains("home namespace blue names the Tenant"));
    // A namespace that the Tenant itself creates belongs to it, also in a later attempt.
    let mut made = make_snapshot(json!({}), json!([]));
    record_namespaces(&mut made, &[]);
    let first = plan(&made, now());
    let Some(Request::Apply(apply)) = first.steps.first() else {
        panic!("{first}")
    };
    let mut object = apply.object.clone();
    object.0["metadata"]["uid"] = json!("n9");
    made.attempt.record_answer(Answer::Applied(
        apply.id.clone(),
        tenure_planner::WriteAnswer::Done(object),
    ));
    made.attempt.generation = Some(0);
    let restarted = plan(&made, now());
    assert_eq!(restarted.next, Next::Restart);
    apply_plan(&mut made, restarted);
    set_namespaces(&mut made, json!([make_claim("blue", "n9")]));
    assert_eq!(list_recorded(&mut made), make_pairs(&[("blue", "n9")]));
}

#[test]
fn existing_namespaces_are_recorded_once_except_protected() {
    let mut snapshot = make_snapshot(
        json!({}),
        json!([
            make_claim("blue", "n1"), make_claim("shop", "n2"), make_claim("kube-system", "k"), make_claim("default", "d"), make_claim("tenure-system", "p"),
            { "name": "labelled", "uid": "n3", "tenantLabel": "blue" }
        ]),
    );
    let earlier = json!({ "size": 1, "state": "Active", "namespaces": ["blue"], "spaces": [{ "name": "blue" }] });
    snapshot.tenant.status = serde_json::from_value(earlier).unwrap();
    let (_, plan) = run_until_settled(&mut snapshot);
    let events: Vec<&str> = plan.events.iter().map(|event| event.message.as_str()).collect();
    assert!(
        plan.events.iter().any(|event| event.reason == "AdoptionNeeded"),
        "{events:?}"
    );
    apply_plan(&mut snapshot, plan);
    assert_eq!(
        list_recorded(&mut snapshot),
        make_pairs(&[("blue", "n1"), ("shop", "n2")])
    );
    // The record existed once, so the next namespace needs an administrator.
    set_namespaces(
        &mut snapshot,
        json!([
            make_claim("blue", "n1"),
            make_claim("shop", "n2"),
            make_claim("late", "n4")
        ]),
    );
    assert_eq!(
        list_recorded(&mut snapshot),
        make_pairs(&[("blue", "n1"), ("shop", "n2")])
    );
    assert!(describe_condition(&snapshot, "NamespacesRecorded").contains("not taken: late."));
}

#[test]
fn a_takeover_is_reported_once_and_stays_readable() {
    let mut snapshot = make_snapshot(json!({}), json!([make_claim("blue", "n1"), make_claim("shop", "n2")]));
    let earlier = json!({ "size": 2, "state": "Active", "namespaces": ["blue", "shop"] });
    snapshot.tenant.status = serde_json::from_value(earlier).unwrap();
    let (_, plan) = run_until_settled(&mut snapshot);
    assert!(
        plan.events
            .iter()
            .any(|event| event.reason == "TakenOver" && event.message.ends_with("were recorded: blue, shop")),
        "{plan}"
    );
    apply_plan(&mut snapshot, plan);
    let (_, plan) = run_until_settled(&mut snapshot);
    assert!(plan.status.is_none() && plan.events.is_empty(), "{plan}");
    assert!(describe_condition(&snapshot, "NamespacesRecorded").starts_with("True TakenOver"));
}

/// RoleBindings, quotas and NetworkPolicies bound users: a lost record removes none of them.
#[test]
fn lost_record_leaves_bounds_in_place() {
    let spec = json!({ "owners": [{ "kind": "User", "name": "alice" }] });
    let mut snapshot = make_snapshot(spec, json!([make_claim("blue", "n1"), make_claim("shop", "n2")]));
    record_namespaces(&mut snapshot, &[("blue", "n1"), ("shop", "n2")]);
    list_recorded(&mut snapshot);
    for object in snapshot.live.values_mut() {
        if let Live::Present(Object(object)) = object {
            object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("tenure");
        }
    }
    snapshot.tenant.status = None;
    let (steps, plan) = run_until_settled(&mut snapshot);
    assert_eq!(steps, Vec::<String>::new());
    apply_plan(&mut snapshot, plan);
    assert_eq!(list_recorded(&mut snapshot), make_pairs(&[("blue", "n1")]));
    // Were it known that it isn't the Tenant's, they would go.
    set_namespaces(&mut snapshot, json!([make_claim("blue", "n1")]));
    let (steps, _) = run_until_settled(&mut snapshot);
    assert!(
        !steps.is_empty() && steps.iter().all(|step| step.starts_with("delete RoleBinding/shop/")),
        "{steps:?}"
    );
}

#[test]
fn recorded_namespace_without_claim_stays_temporarily() {
    let mut snapshot = make_snapshot(
        json!({}),
        json!([make_claim("blue", "n1"), { "name": "shop", "uid": "n2" }]),
    );
    record_namespaces(&mut snapshot, &[("blue", "n1"), ("shop", "n2")]);
    let (_, plan) = run_until_settled(&mut snapshot);
    let Next::Done(Some(at)) = plan.next else {
        panic!("{plan}")
    };
    apply_plan(&mut snapshot, plan);
    let status = snapshot.tenant.status.clone().unwrap();
    assert_eq!((status.spaces.len(), status.namespaces), (2, vec!["blue".to_owned()]));
    // A namespace that an administrator has just recorded appears with its next report.
    set_namespaces(
        &mut snapshot,
        json!([make_claim("blue", "n1"), make_claim("shop", "n2")]),
    );
    assert_eq!(
        list_recorded(&mut snapshot),
        make_pairs(&[("blue", "n1"), ("shop", "n2")])
    );
    // A recorded namespace that keeps naming no Tenant leaves the record.
    set_namespaces(
        &mut snapshot,
        json!([make_claim("blue", "n1"), { "name": "shop", "uid": "n2" }]),
    );
    list_recorded(&mut snapshot);
    let late = plan_at(&snapshot, at.checked_add(SignedDuration::from_secs(31)).unwrap());
    let spaces = late.status.expect("a status").spaces;
    assert_eq!(spaces.len(), 1);
}

fn plan_at(snapshot: &Snapshot, at: Timestamp) -> Plan {
    let plan = plan(snapshot, at);
    assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
    plan
}

/// A namespace that names the Tenant by its label alone, as Tenure leaves it.
fn make_labelled(name: &str, uid: &str) -> Value {
    json!({ "name": name, "uid": uid, "tenantLabel": "blue" })
}

/// Makes a Tenant that is being deleted, with two namespaces in their observed state.
fn make_terminating(finalizers: &[&str]) -> Snapshot {
    let mut snapshot = make_snapshot(
        json!({}),
        json!([
            make_labelled("blue", "n1"),
            make_labelled("shop", "n2"),
            make_labelled("forged", "n3")
        ]),
    );
    record_namespaces(&mut snapshot, &[("blue", "n1"), ("shop", "n2")]);
    for (name, uid) in [("blue", "n1"), ("shop", "n2"), ("forged", "n3")] {
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "uid": uid, "resourceVersion": "5" } });
        snapshot.live.insert(
            format!("_{name}__Namespace").parse().unwrap(),
            Live::Present(Object(object)),
        );
    }
    let metadata = &mut snapshot.tenant.metadata;
    metadata.finalizers = Some(finalizers.iter().map(|name| (*name).to_owned()).collect());
    metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    snapshot
}

#[test]
fn tenant_is_deleted_after_its_namespaces() {
    let mut new = make_snapshot(json!({}), json!([]));
    assert_eq!(
        plan_at(&new, now()).finalizer,
        Some(FinalizerChange::Add(FINALIZER.to_owned()))
    );
    new.tenant.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    assert_eq!(plan_at(&new, now()).finalizer, None);

    let mut snapshot = make_terminating(&[FINALIZER, "foregroundDeletion"]);
    let first = plan_at(&snapshot, now());
    let mut deleted = Vec::new();
    for step in &first.steps {
        let Request::Delete(delete) = step else {
            panic!("{step}")
        };
        deleted.push((
            delete.target.id.name.as_str(),
            delete.uid.as_deref(),
            delete.resource_version.as_deref(),
        ));
        let answer = Answer::Deleted(delete.target.id.clone(), DeleteAnswer::Accepted);
        snapshot.attempt.record_answer(answer);
    }
    assert_eq!(
        deleted,
        [("blue", Some("n1"), Some("5")), ("shop", Some("n2"), Some("5"))]
    );
    // One of the namespaces hangs in its deletion.
    let mut terminating = make_labelled("shop", "n2");
    terminating["deleting"] = json!(true);
    set_namespaces(&mut snapshot, json!([terminating, make_labelled("forged", "n3")]));
    let waiting = plan_at(&snapshot, now());
    assert_eq!(
        (waiting.finalizer.clone(), waiting.next.clone()),
        (None, Next::Done(None))
    );
    apply_plan(&mut snapshot, waiting);
    let status = snapshot.tenant.status.clone().unwrap();
    assert_eq!(
        (status.state.as_str(), status.namespaces),
        ("Terminating", vec!["shop".to_owned()])
    );
    let ready = describe_condition(&snapshot, "Ready");
    assert!(
        ready.starts_with("False Terminating: ") && ready.contains("with it: shop still there"),
        "{ready}"
    );
    // The controllers were killed, and begin with the stored state.
    snapshot.memory = tenure_planner::tenant::Memory::default();
    assert!(plan_at(&snapshot, now()).status.is_none());
    set_namespaces(&mut snapshot, json!([make_labelled("forged", "n3")]));
    let last = plan_at(&snapshot, now());
    assert_eq!(last.finalizer, Some(FinalizerChange::Remove(FINALIZER.to_owned())));
    assert_eq!(last.next, Next::Forget);
}

/// A Tenant once left its namespace behind: it was deleted after the controllers had created the namespace, and before they recorded it.
#[test]
fn tenant_deletion_includes_created_unrecorded_namespaces() {
    let mut snapshot = make_terminating(&[FINALIZER]);
    set_namespaces(&mut snapshot, json!([]));
    snapshot.live.clear();
    let proof = |text: &str| tenure_tenancy::record::digest_proof(text);
    let intents = json!([{ "name": "new", "proofDigest": proof("p") }, { "name": "other", "proofDigest": proof("q") }]);
    let status = snapshot.tenant.status.as_mut().unwrap();
    status.creating = serde_json::from_value(intents).unwrap();
    // No watch has reported the namespaces.
    let first = plan_at(&snapshot, now());
    assert_eq!((first.steps.len(), &first.finalizer), (2, &None), "{first}");
    let namespace = |name: &str, proof: &str, tenant: &str| {
        let (labels, annotations) = (
            json!({ "capsule.clastix.io/tenant": tenant }),
            json!({ "tenure.dev/creation-proof": proof }),
        );
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "uid": name, "resourceVersion": "5", "labels": labels, "annotations": annotations }
        });
        Live::Present(Object(object))
    };
    let id = |name: &str| format!("_{name}__Namespace").parse::<tenure_api::ObjectId>().unwrap();
    snapshot.live.insert(id("new"), Live::Failed(Failure::default()));
    snapshot.live.insert(id("other"), Live::Absent);
    let failed = plan_at(&snapshot, now());
    assert!(failed.steps.is_empty() && failed.finalizer.is_none(), "{failed}");
    let conditions = failed.status.unwrap().conditions;
    assert!(
        conditions.iter().any(|one| one.message.contains("read failed")),
        "{conditions:?}"
    );
    // With `--cascade=orphan` nothing is read.
    let mut orphaning = snapshot.clone();
    orphaning.tenant.metadata.finalizers = Some(vec![FINALIZER.to_owned(), "orphan".to_owned()]);
    assert_eq!(
        plan_at(&orphaning, now()).finalizer,
        Some(FinalizerChange::Remove(FINALIZER.to_owned()))
    );
    // An administrator gave the first one to another Tenant.
    snapshot.live.insert(id("new"), namespace("new", "p", "green"));
    assert!(plan_at(&snapshot, now()).steps.is_empty());
    // The first one is the Tenant's. The second one has another proof, so the controllers didn't create it.
    snapshot.live.insert(id("new"), namespace("new", "p", "blue"));
    snapshot.live.insert(id("other"), namespace("other", "p", "blue"));
    let second = plan_at(&snapshot, now());
    let deleted = second.steps.iter().map(|step| match step {
        Request::Delete(delete) => (delete.target.id.name.as_str(), delete.uid.as_deref()),
        other => panic!("{other}"),
    });
    assert_eq!(deleted.collect::<Vec<_>>(), [("new", Some("new"))]);
    assert_eq!(second.finalizer, None);
    // The namespace still exists, and is read again without a watch.
    snapshot
        .attempt
        .record_answer(Answer::Deleted(id("new"), DeleteAnswer::Accepted));
    let third = plan_at(&snapshot, now());
    assert!(matches!(third.next, Next::Done(Some(_))), "{third}");
    snapshot.live.insert(id("new"), Live::Absent);
    assert_eq!(
        plan_at(&snapshot, now()).finalizer,
        Some(FinalizerChange::Remove(FINALIZER.to_owned()))
    );
}

#[test]
fn orphaning_deletion_leaves_namespaces() {
    let orphaning = plan_at(&make_terminating(&[FINALIZER, "orphan"]), now());
    assert!(orphaning.steps.is_empty(), "{orphaning}");
    assert_eq!(orphaning.finalizer, Some(FinalizerChange::Remove(FINALIZER.to_owned())));
    // Neither does a Tenant that only another controller's finalizer keeps.
    let kept = plan_at(&make_terminating(&["example.org/kept"]), now());
    assert_eq!((kept.steps.len(), kept.finalizer, kept.next), (0, None, Next::Forget));
}

#[test]
fn a_namespace_that_may_not_be_deleted_is_reported() {
    let mut snapshot = make_terminating(&[FINALIZER]);
    for step in plan_at(&snapshot, now()).steps {
        let Request::Delete(delete) = step else {
            panic!("{step}")
        };
        let failure = Failure {
            code: 403,
            reason: Reason::Forbidden,
            message: "cannot delete namespaces".to_owned(),
            ..Failure::default()
        };
        snapshot
            .attempt
            .record_answer(Answer::Deleted(delete.target.id.clone(), DeleteAnswer::Failed(failure)));
    }
    let planned = plan_at(&snapshot, now());
    assert!(
        planned
            .to_string()
            .contains("Namespace/blue delete failed (Forbidden): cannot delete namespaces"),
        "{planned}"
    );
    let Next::Done(Some(at)) = planned.next else {
        panic!("{planned}")
    };
    assert!(at > now() && planned.finalizer.is_none());
}
