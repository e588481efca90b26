//! A Tenant's namespaces outlive deletions beside them, and a process that is killed between two writes loses none of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tenure_api::{ObjectId, ObjectMeta};
use tenure_planner::answer::{Answer, DeleteAnswer};
use tenure_planner::plan::FinalizerChange;
use tenure_planner::tenant::{Attempt, Memory, Plan, Snapshot, plan};
use tenure_planner::{Live, Next, Object, Request, WriteAnswer, invariants};
use tenure_tenancy::{NamespaceFacts, TenantFacts};

use crate::tenant::{make_snapshot, now, record_namespaces, run_until_settled, settle_at, with_policies};

/// A server that holds the namespaces and the Tenant, and a process that may be killed after any write.
pub(crate) struct World {
    pub(crate) snapshot: Snapshot,
    pub(crate) namespaces: BTreeMap<String, Value>,
    pub(crate) objects: BTreeMap<ObjectId, Value>,
    /// The answers to this attempt's reads.
    answers: BTreeMap<ObjectId, Live>,
    pub(crate) writes: usize,
    /// The writes after which the process is killed.
    pub(crate) killed_after: Vec<usize>,
    /// The Tenant is deleted after this write. The running attempt ends first, unless it is killed.
    pub(crate) deleted_after: Option<usize>,
    processes: usize,
}

impl World {
    pub(crate) fn new(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            namespaces: BTreeMap::new(),
            objects: BTreeMap::new(),
            answers: BTreeMap::new(),
            writes: 0,
            killed_after: Vec::new(),
            deleted_after: None,
            processes: 1,
        }
    }

    pub(crate) fn store_namespace(&mut self, name: &str, metadata: Value) {
        let mut metadata = metadata;
        metadata["name"] = json!(name);
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{name}"));
        }
        metadata["resourceVersion"] = json!("1");
        self.namespaces.insert(name.to_owned(), json!({ "metadata": metadata }));
    }

    fn observe(&mut self) {
        let tenancy = Arc::make_mut(&mut self.snapshot.tenancy);
        tenancy.namespaces = self
            .namespaces
            .values()
            .map(|found| {
                let metadata: ObjectMeta = serde_json::from_value(found["metadata"].clone()).unwrap();
                NamespaceFacts::from(&metadata)
            })
            .collect();
        tenancy.tenants = vec![TenantFacts::from(&self.snapshot.tenant)];
        self.snapshot.live = self.answers.clone();
        let objects = self.objects.iter();
        let present = objects.map(|(id, object)| (id.clone(), Live::Present(Object(object.clone()))));
        self.snapshot.live.extend(present);
        for (name, found) in &self.namespaces {
            let id = format!("_{name}__Namespace").parse().unwrap();
            self.snapshot.live.insert(id, Live::Present(Object(found.clone())));
        }
    }

    /// Counts a write. True: the process dies of it, before it hears the answer.
    fn is_killed(&mut self) -> bool {
        self.writes += 1;
        let dies = self.killed_after.contains(&self.writes);
        if dies {
            self.processes += 1;
            self.snapshot.creation_proof = format!("proof-{}", self.processes);
            self.snapshot.memory = Memory::default();
        }
        dies
    }

    fn delete_tenant(&mut self) {
        if self.deleted_after.is_some_and(|after| after <= self.writes) {
            self.snapshot.tenant.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        }
    }

    fn store_status(&mut self, plan: &Plan) -> bool {
        let Some(status) = &plan.status else { return false };
        self.snapshot.tenant.status = Some(status.clone());
        self.is_killed()
    }

    fn perform_step(&mut self, step: &Request) -> Answer {
        match step {
            Request::Read(target) => {
                let found = self.snapshot.live.get(&target.id).cloned();
                Answer::Live(target.id.clone(), found.unwrap_or(Live::Absent))
            }
            Request::Apply(apply) => {
                let mut object = apply.object.0.clone();
                if apply.id.kind == "Namespace" {
                    let old = self.namespaces.get(&apply.id.name).cloned();
                    let mut metadata = old.map_or(json!({}), |old| old["metadata"].clone());
                    for field in ["labels", "annotations"] {
                        for (key, value) in object["metadata"][field].as_object().into_iter().flatten() {
                            metadata[field][key] = value.clone();
                        }
                    }
                    self.store_namespace(&apply.id.name, metadata);
                    object = self.namespaces[&apply.id.name].clone();
                } else {
                    self.objects.insert(apply.id.clone(), object.clone());
                }
                Answer::Applied(apply.id.clone(), WriteAnswer::Done(Object(object)))
            }
            Request::Disown(disown) => {
                let name = &disown.target.id.name;
                let found = self.namespaces.get_mut(name).unwrap();
                assert_eq!(found["metadata"]["uid"], disown.patch["metadata"]["uid"]);
                found["metadata"]["ownerReferences"] = disown.patch["metadata"]["ownerReferences"].clone();
                Answer::Disowned(disown.target.id.clone(), WriteAnswer::Done(Object(found.clone())))
            }
            Request::Delete(delete) => {
                let name = &delete.target.id.name;
                if delete.target.id.kind == "Namespace" {
                    assert_eq!(self.namespaces[name]["metadata"]["uid"].as_str(), delete.uid.as_deref());
                    self.namespaces.remove(name);
                } else {
                    self.objects.remove(&delete.target.id);
                }
                Answer::Deleted(delete.target.id.clone(), DeleteAnswer::Accepted)
            }
            other => panic!("{other}"),
        }
    }

    /// Runs processes, one after the other, until no step is left. Returns false if the Tenant is gone.
    pub(crate) fn run(&mut self) -> bool {
        'processes: for _ in 0..40 {
            self.answers.clear();
            self.delete_tenant();
            self.observe();
            self.snapshot.attempt = Attempt::new(now(), &self.snapshot.tenant.metadata);
            for _ in 0..20 {
                self.observe();
                let plan = plan(&self.snapshot, now());
                assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
                self.snapshot.memory = plan.memory.clone();
                match &plan.finalizer {
                    Some(FinalizerChange::Remove(_)) => return false,
                    Some(FinalizerChange::Add(finalizer)) => {
                        let finalizers = &mut self.snapshot.tenant.metadata.finalizers;
                        finalizers.get_or_insert_default().push(finalizer.clone());
                    }
                    None => {}
                }
                if plan.status_first && self.store_status(&plan) {
                    continue 'processes;
                }
                let mut answers = Vec::new();
                for step in &plan.steps {
                    answers.push(self.perform_step(step));
                    if !matches!(step, Request::Read(_)) && self.is_killed() {
                        continue 'processes;
                    }
                }
                for answer in answers {
                    if let Some((id, Live::Absent)) = self.snapshot.attempt.record_answer(answer) {
                        self.answers.insert(id, Live::Absent);
                    }
                }
                if !plan.status_first && self.store_status(&plan) {
                    continue 'processes;
                }
                match plan.next {
                    Next::Again => {}
                    Next::Done(_) if plan.status.is_some() => continue 'processes,
                    Next::Done(_) => return true,
                    Next::Forget => return false,
                    Next::Restart => continue 'processes,
                    other => panic!("{other:?}"),
                }
            }
            panic!("it never ends");
        }
        panic!("it comes to no rest: {:?}", self.snapshot.tenant.status);
    }

    pub(crate) fn list_recorded(&self) -> Vec<String> {
        let status = self.snapshot.tenant.status.clone().unwrap_or_default();
        let spaces = status.spaces.into_iter();
        spaces
            .map(|space| format!("{}={}", space.name, space.uid.unwrap_or_default()))
            .collect()
    }

    pub(crate) fn read_ready(&self) -> String {
        let status = self.snapshot.tenant.status.clone().unwrap_or_default();
        let mut conditions = status.conditions.into_iter();
        let ready = conditions.find(|found| found.type_ == "Ready").expect("Ready");
        format!("{} {}", ready.status.as_str(), ready.message)
    }

    fn read_owners(&self, name: &str) -> Value {
        self.namespaces[name]["metadata"]["ownerReferences"].clone()
    }
}

fn make_owner(uid: &str) -> Value {
    json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": "blue", "uid": uid, "controller": true })
}

fn make_labels() -> Value {
    json!({ "capsule.clastix.io/tenant": "blue" })
}

pub(crate) fn make_guarded(mut snapshot: Snapshot) -> Snapshot {
    Arc::make_mut(&mut snapshot.tenancy).settings.is_guarded = true;
    snapshot
}

#[test]
fn a_kill_after_any_write_leaves_no_namespace_unrecorded() {
    for is_known in [false, true] {
        let begin = || {
            let spec = json!({ "owners": [{ "kind": "User", "name": "alice" }] });
            let mut snapshot = make_snapshot(spec, json!([]));
            // The home namespace was deleted, and is re-created.
            if is_known {
                record_namespaces(&mut snapshot, &[("blue", "earlier")]);
            }
            World::new(snapshot)
        };
        let mut whole = begin();
        whole.run();
        assert!(whole.writes > 4, "{}", whole.writes);
        for after in 1..=whole.writes {
            let mut world = begin();
            world.killed_after = vec![after];
            world.run();
            assert_eq!(
                world.list_recorded(),
                ["blue=uid-blue"],
                "killed after {after}, known before: {is_known}"
            );
            assert!(
                world.read_ready().starts_with("True"),
                "{after}: {}",
                world.read_ready()
            );
            let status = world.snapshot.tenant.status.clone().unwrap();
            assert!(status.creating.is_empty(), "{status:?}");
        }
    }
}

#[test]
fn a_namespace_with_a_forged_proof_is_not_taken() {
    let mut world = World::new(make_snapshot(json!({}), json!([])));
    record_namespaces(&mut world.snapshot, &[]);
    let digest = tenure_tenancy::record::digest_proof("proof-1");
    let status = world.snapshot.tenant.status.as_mut().unwrap();
    status.creating = serde_json::from_value(json!([{ "name": "blue", "proofDigest": digest }])).unwrap();
    // An owner reads the digest in the status, and is faster.
    for proof in [digest.as_str(), "proof-2", ""] {
        world.store_namespace(
            "blue",
            json!({ "labels": make_labels(), "annotations": { "tenure.dev/creation-proof": proof } }),
        );
        world.run();
        assert_eq!(world.list_recorded(), Vec::<String>::new(), "{proof}");
        assert!(
            world.read_ready().contains("tenure adopt blue blue"),
            "{}",
            world.read_ready()
        );
    }
    // The control.
    world.store_namespace(
        "blue",
        json!({ "labels": make_labels(), "annotations": { "tenure.dev/creation-proof": "proof-1" } }),
    );
    world.run();
    assert_eq!(world.list_recorded(), ["blue=uid-blue"]);
}

#[test]
fn no_namespace_keeps_an_owner_reference_to_its_tenant() {
    for is_guarded in [false, true] {
        let mut snapshot = make_snapshot(json!({}), json!([]));
        record_namespaces(&mut snapshot, &[("blue", "uid-blue"), ("shop", "uid-shop")]);
        let mut world = World::new(if is_guarded { make_guarded(snapshot) } else { snapshot });
        let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c" });
        world.store_namespace(
            "blue",
            json!({ "labels": make_labels(), "ownerReferences": [make_owner("t")] }),
        );
        world.store_namespace(
            "shop",
            json!({ "labels": make_labels(), "ownerReferences": [other, make_owner("t")] }),
        );
        for name in ["cozy-system", "flux-system", "strange"] {
            world.store_namespace(name, json!({ "ownerReferences": [make_owner("t")] }));
        }
        world.store_namespace(
            "cozy-labelled",
            json!({ "labels": make_labels(), "ownerReferences": [make_owner("t")] }),
        );
        world.run();
        assert_eq!(world.read_owners("shop"), json!([other]));
        for name in ["blue", "cozy-system", "cozy-labelled", "flux-system", "strange"] {
            assert_eq!(world.read_owners(name), json!([]), "{name}");
        }
        assert_eq!(world.list_recorded(), ["blue=uid-blue", "shop=uid-shop"]);
    }
}

#[test]
fn deleted_tenant_deletes_only_recorded_namespaces() {
    for is_guarded in [false, true] {
        for killed_after in [None, Some(1), Some(2), Some(3), Some(4)] {
            let mut snapshot = make_snapshot(json!({}), json!([]));
            record_namespaces(&mut snapshot, &[("blue", "uid-blue"), ("shop", "uid-shop")]);
            let metadata = &mut snapshot.tenant.metadata;
            metadata.finalizers = Some(vec!["tenure.dev/finalizer".to_owned(), "foregroundDeletion".to_owned()]);
            metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            let mut world = World::new(if is_guarded { make_guarded(snapshot) } else { snapshot });
            world.killed_after = killed_after.into_iter().collect();
            world.store_namespace("blue", json!({ "labels": make_labels() }));
            world.store_namespace(
                "shop",
                json!({ "labels": make_labels(), "ownerReferences": [make_owner("t")] }),
            );
            for name in ["cozy-system", "flux-system", "strange"] {
                world.store_namespace(
                    name,
                    json!({ "labels": make_labels(), "ownerReferences": [make_owner("t")] }),
                );
            }
            world.store_namespace("labelled", json!({ "labels": make_labels() }));
            let mut is_there = true;
            for _ in 0..5 {
                is_there = world.run();
                if !is_there {
                    break;
                }
            }
            assert!(!is_there, "{killed_after:?}");
            let left: Vec<&str> = world.namespaces.keys().map(String::as_str).collect();
            assert_eq!(
                left,
                ["cozy-system", "flux-system", "labelled", "strange"],
                "{killed_after:?}"
            );
            for name in left {
                assert!(world.read_owners(name).as_array().is_none_or(Vec::is_empty), "{name}");
            }
        }
    }
}

#[test]
fn restored_namespace_and_tenant_find_each_other() {
    // The namespace first: it bears an earlier Tenant's label and no ownerReference.
    let mut judged = World::new(make_guarded(make_snapshot(json!({}), json!([]))));
    judged.store_namespace("blue", json!({ "labels": make_labels() }));
    judged.store_namespace("shop", json!({ "labels": make_labels() }));
    judged.run();
    assert_eq!(judged.list_recorded(), ["blue=uid-blue", "shop=uid-shop"]);
    // If no admission checks writes, an administrator decides, and nothing is lost meanwhile.
    let mut unjudged = World::new(make_snapshot(json!({}), json!([])));
    unjudged.store_namespace("blue", json!({ "labels": make_labels() }));
    unjudged.run();
    assert!(
        unjudged.read_ready().contains("tenure adopt blue blue"),
        "{}",
        unjudged.read_ready()
    );
    assert!(unjudged.namespaces.contains_key("blue"));
    // The Tenant first, then its namespace again, with another uid.
    let mut again = make_guarded(make_snapshot(json!({}), json!([])));
    record_namespaces(&mut again, &[("blue", "uid-blue"), ("shop", "before")]);
    let mut again = World::new(again);
    again.store_namespace("blue", json!({ "labels": make_labels() }));
    again.store_namespace("shop", json!({ "labels": make_labels() }));
    again.run();
    assert_eq!(again.list_recorded(), ["blue=uid-blue", "shop=uid-shop"]);
}

#[test]
fn tenant_without_quota_gets_default_of_installation() {
    let more = json!([{ "name": "more", "uid": "n", "tenantLabel": "blue" }]);
    for (spec, default, quota, is_taken) in [
        (json!({}), 1, Some(1), false),
        (json!({}), 0, None, true),
        (json!({ "namespaceOptions": { "quota": 2 } }), 1, Some(2), true),
    ] {
        let mut snapshot = with_policies(make_snapshot(spec, more.clone()));
        Arc::make_mut(&mut snapshot.tenancy).settings.default_namespace_quota = default;
        let (_, plan) = run_until_settled(&mut snapshot);
        assert_eq!(!plan.to_string().contains("at most 1 namespace"), is_taken, "{plan}");
        let status = plan.status.or(snapshot.tenant.status).unwrap();
        assert_eq!(status.namespace_quota, quota);
    }
}

/// With policies alone, the owners' right to create namespaces ends after a burst, and comes back by itself.
#[test]
fn namespace_burst_pauses_creation_right_for_half_minute() {
    let spec = json!({ "owners": [{ "kind": "User", "name": "alice" }] });
    let mut snapshot = make_snapshot(spec, json!([]));
    let settings = &mut Arc::make_mut(&mut snapshot.tenancy).settings;
    (settings.has_policies, settings.default_namespace_quota) = (true, 0);
    let list_verbs = |snapshot: &Snapshot| {
        let mut objects = snapshot.live.values().filter_map(|live| match live {
            Live::Present(object) => Some(&object.0),
            _ => None,
        });
        let role =
            objects.find(|object| object["kind"] == "ClusterRole" && object["metadata"]["name"] == "tenure:blue:own");
        role.unwrap()["rules"][0]["verbs"].clone()
    };
    let mut names = 0;
    let mut create = |snapshot: &mut Snapshot, more: usize| {
        let range = names..names + more;
        names += more;
        let new = range.map(|number| NamespaceFacts {
            name: format!("blue-{number}"),
            uid: format!("uid-blue-{number}"),
            tenant_label: Some("blue".to_owned()),
            ..NamespaceFacts::default()
        });
        Arc::make_mut(&mut snapshot.tenancy).namespaces.extend(new);
        let (_, plan) = run_until_settled(snapshot);
        snapshot.memory = plan.memory.clone();
        snapshot.attempt = Attempt::new(now(), &snapshot.tenant.metadata);
    };
    // Namespaces that are there when a process begins are no burst.
    create(&mut snapshot, 200);
    create(&mut snapshot, 127);
    assert_eq!(list_verbs(&snapshot), json!(["own", "extend"]));
    create(&mut snapshot, 1);
    assert_eq!(list_verbs(&snapshot), json!(["own"]));
    let end = now() + jiff::SignedDuration::from_secs(30);
    settle_at(&mut snapshot, end);
    assert_eq!(list_verbs(&snapshot), json!(["own", "extend"]));
}
