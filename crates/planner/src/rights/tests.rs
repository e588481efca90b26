//! A lane's rights in a namespace, round by round, against a cluster that is a map.

use serde_json::json;
use tenure_tenancy::{Lane, TenancyFacts, TenantPlacement};

use super::minting::MINTING_REVIEWS;
use super::*;
use crate::answer::{Answer, DeleteAnswer, Failure, Reason};
use crate::object::Object;

mod shared_lanes;

const BINDING: &str = "team_tenure:lane_rbac.authorization.k8s.io_RoleBinding";

fn pool_account() -> ObjectId {
    "tenure-system_tenure-lane-pool__ServiceAccount".parse().unwrap()
}

fn binding_id() -> ObjectId {
    BINDING.parse().unwrap()
}

fn time_at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

/// A change of the rights by another client.
type Tamper = fn(&mut World);

/// A cluster with one namespace, and the planner of the lane's rights there.
struct World {
    snapshot: Snapshot,
    now: Timestamp,
    /// The API server's answer to the lane's review.
    allows: bool,
    /// Administrators whose tokens the lane gets.
    minting: Result<Vec<String>, String>,
    /// The executed steps, in order.
    done: Vec<String>,
    events: Vec<(String, String)>,
    version: u32,
    /// Deleted objects whose deletion a watch reports later.
    gone: Vec<ObjectId>,
}

impl World {
    fn new() -> Self {
        Self {
            snapshot: Snapshot {
                namespace: "team".to_owned(),
                state: NamespaceState::Present,
                is_worked_in: true,
                placement: Placement::Unclaimed {
                    default_service_account: "default".to_owned(),
                    is_protected: false,
                },
                owner: None,
                judges_writes: true,
                live: BTreeMap::new(),
                attempt: Attempt::new(time_at(0)),
                memory: Memory::default(),
            },
            now: time_at(0),
            allows: true,
            minting: Ok(Vec::new()),
            done: Vec::new(),
            events: Vec::new(),
            version: 0,
            gone: Vec::new(),
        }
    }

    fn store_object(&mut self, id: &ObjectId, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["uid"] = json!("uid");
        self.snapshot.live.insert(id.clone(), Live::Present(Object(object)));
    }

    fn live(&mut self, id: &ObjectId) -> &mut Value {
        match self.snapshot.live.get_mut(id) {
            Some(Live::Present(object)) => &mut object.0,
            other => panic!("{id}: {other:?}"),
        }
    }

    /// Runs an attempt to its end, and returns the time of the next one.
    fn run(&mut self) -> Option<Timestamp> {
        self.snapshot.attempt = Attempt::new(self.now);
        for id in self.gone.drain(..) {
            self.snapshot.live.remove(&id);
        }
        for _ in 0..20 {
            let plan = plan(&self.snapshot, self.now);
            self.snapshot.memory = plan.memory;
            for event in plan.events {
                self.events.push((event.reason, event.message));
            }
            for step in plan.steps {
                self.done.push(step.to_string());
                self.perform_step(step);
            }
            match plan.next {
                Next::Again => {}
                Next::Done(at) => return at,
                Next::Forget => return None,
                other => panic!("{other:?}"),
            }
        }
        panic!("it comes to no end: {:?}", self.done);
    }

    fn perform_step(&mut self, step: Step) {
        match step {
            Step::Request(Request::Read(target)) => {
                self.snapshot.live.entry(target.id).or_insert(Live::Absent);
            }
            Step::Request(Request::Apply(apply)) => {
                let is_new = self.snapshot.live.get(&apply.id).is_none_or(Live::is_gone);
                let answer = if is_new && self.snapshot.state == NamespaceState::Ending && apply.id == binding_id() {
                    WriteAnswer::Failed(Failure {
                        reason: Reason::Forbidden,
                        message: "it is being terminated".to_owned(),
                        ..Failure::default()
                    })
                } else {
                    let going = self
                        .snapshot
                        .live
                        .get(&apply.id)
                        .and_then(Live::object)
                        .and_then(|live| live.pointer("/metadata/deletionTimestamp").cloned());
                    let mut object = apply.object.0;
                    if let Some(going) = going {
                        object["metadata"]["deletionTimestamp"] = going;
                    }
                    self.store_object(&apply.id, object.clone());
                    WriteAnswer::Done(Object(object))
                };
                self.snapshot
                    .attempt
                    .asked
                    .record_answer(Answer::Applied(apply.id, answer));
            }
            Step::Request(Request::Delete(delete)) => {
                let id = delete.target.id;
                self.live(&id)["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                self.snapshot
                    .attempt
                    .asked
                    .record_answer(Answer::Deleted(id, DeleteAnswer::Accepted));
            }
            Step::Request(other) => panic!("{other}"),
            Step::Release(release) => {
                assert_eq!(release.patch["metadata"]["uid"], "uid");
                assert!(self.live(&release.target.id)["metadata"]["deletionTimestamp"].is_string());
                // The removed finalizer was the last one.
                self.gone.push(release.target.id);
                self.snapshot.attempt.released = Some(WriteAnswer::Done(Object(json!({}))));
            }
            Step::Review(_) => self.snapshot.attempt.reviewed = Some(Ok(self.allows)),
            Step::ReviewMinting(_) => self.snapshot.attempt.minting = Some(self.minting.clone()),
        }
    }

    fn read_admitted(&self) -> Option<String> {
        self.snapshot
            .memory
            .admitted_account()
            .map(|lane| lane.name().to_owned())
    }

    fn take_done(&mut self) -> Vec<String> {
        std::mem::take(&mut self.done)
    }
}

fn make_placement(name: &str) -> Placement {
    Placement::Tenant(TenantPlacement {
        tenant: tenure_api::names::TenantName::new(name).unwrap(),
        home: tenure_api::names::NamespaceName::new("team").unwrap(),
        namespaces: std::collections::BTreeSet::new(),
        gitops: Ok(tenure_api::names::ServiceAccountName::new("x").unwrap()),
        applier: None,
        default_service_account: "default".to_owned(),
    })
}

#[test]
fn lane_starts_once_api_server_allows_it() {
    let mut world = World::new();
    world.allows = false;
    let next = world.run().unwrap();
    assert_eq!(
        world.take_done(),
        [
            "read ServiceAccount/tenure-system/tenure-lane-pool",
            "read RoleBinding/team/tenure:lane",
            "apply ServiceAccount/tenure-system/tenure-lane-pool (Lane)",
            "apply RoleBinding/team/tenure:lane (Lane)",
            "ask whether system:serviceaccount:tenure-system:tenure-lane-pool may work here",
        ]
    );
    assert_eq!(world.read_admitted(), None);
    assert!(next > world.now && next < time_at(1));
    assert_eq!(world.live(&binding_id())["roleRef"]["name"], "tenure-lane");
    world.now = next;
    world.allows = true;
    let review = add_duration(next, MINTING_REVIEWS.0);
    assert_eq!(world.run(), Some(review));
    assert_eq!(world.read_admitted().as_deref(), Some("tenure-lane-pool"));
    world.take_done();
    // Afterwards no request is made, until the review of the lane's administrator tokens is due.
    assert_eq!(world.run(), Some(review));
    assert!(world.take_done().is_empty() && world.events.is_empty());
}

#[test]
fn tampered_rights_are_restored_with_growing_pauses() {
    let tampers: [(&str, Tamper); 3] = [
        ("deletes it", |world| {
            world.snapshot.live.remove(&binding_id());
        }),
        ("binds nobody", |world| {
            world.live(&binding_id())["subjects"] = json!([])
        }),
        ("takes the finalizer", |world| {
            world.live(&binding_id())["metadata"]["finalizers"] = json!([]);
        }),
    ];
    for (what, tamper) in tampers {
        let mut world = World::new();
        world.run();
        world.take_done();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            tamper(&mut world);
            let began = world.now;
            loop {
                let next = world.run();
                if world.read_admitted().is_some() {
                    break;
                }
                // During the pause, no request is made, however often a watch wakes the planner.
                assert!(world.take_done().is_empty(), "{what}");
                world.now = next.unwrap();
            }
            assert!(world.read_admitted().is_some(), "{what}");
            assert_eq!(
                world.live(&binding_id())["subjects"][0]["name"],
                "tenure-lane-pool",
                "{what}"
            );
            assert_eq!(
                world.live(&binding_id())["metadata"]["finalizers"][0],
                "tenure.dev/lane",
                "{what}"
            );
            world.take_done();
            pauses.push(world.now.duration_since(began).as_secs());
        }
        assert_eq!(pauses, [0, 0, 1, 2, 4, 8, 16, 32, 60, 60], "{what}");
        assert_eq!(world.events.len(), 10, "{what}");
        assert!(
            world.events.iter().all(|(reason, _)| reason == "LaneRightsPutBack"),
            "{what}"
        );
        // After ten minutes of peace it is as at first.
        world.now = add_duration(world.now, Duration::from_secs(601));
        tamper(&mut world);
        world.run();
        assert!(world.read_admitted().is_some(), "{what}");
    }
}

/// A change at the moment of the write is seen before the answer to the write, and no watch reports it again.
#[test]
fn rights_are_checked_again_after_write() {
    let mut world = World::new();
    let next = world.run().unwrap();
    assert_eq!(next, add_duration(world.now, LOOK_AGAIN));
    world.take_done();
    world.snapshot.live.remove(&binding_id());
    world.now = next;
    world.run();
    assert!(
        world
            .take_done()
            .contains(&"apply RoleBinding/team/tenure:lane (Lane)".to_owned())
    );
}

#[test]
fn deleted_binding_gives_rights_until_it_is_recreated() {
    let mut world = World::new();
    world.run();
    world.take_done();
    world.live(&binding_id())["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.run();
    assert_eq!(world.take_done(), ["let RoleBinding/team/tenure:lane go"]);
    assert!(world.read_admitted().is_some());
    world.run();
    assert!(world.read_admitted().is_some());
    assert!(world.live(&binding_id())["metadata"]["deletionTimestamp"].is_null());
}

#[test]
fn binding_in_ending_namespace_stays_until_work_ends() {
    let mut world = World::new();
    world.snapshot.placement = make_placement("blue");
    world.snapshot.owner = Some(LaneOwner {
        name: "blue".to_owned(),
        uid: "tenant-uid".to_owned(),
    });
    world.run();
    world.take_done();
    assert_eq!(world.read_admitted().as_deref(), Some("tenure-lane-tenant-blue"));
    world.snapshot.state = NamespaceState::Ending;
    world.live(&binding_id())["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(world.run(), Some(add_duration(world.now, MINTING_REVIEWS.0)));
    assert!(world.take_done().is_empty());
    assert_eq!(world.read_admitted().as_deref(), Some("tenure-lane-tenant-blue"));
    // The Tenant is deleted, and its lane's account with it: the pool finishes the remaining work.
    world.snapshot.placement = Placement::Disputed {
        message: "the Tenant is gone".to_owned(),
    };
    world.snapshot.owner = None;
    world.run();
    assert_eq!(world.read_admitted().as_deref(), Some("tenure-lane-pool"));
    assert_eq!(world.live(&binding_id())["subjects"][0]["name"], "tenure-lane-pool");
    world.take_done();
    world.snapshot.is_worked_in = false;
    world.run();
    assert_eq!(world.take_done(), ["let RoleBinding/team/tenure:lane go"]);
    assert_eq!(world.read_admitted(), None);
    assert_eq!(world.run(), None);
}

/// The event goes to the platform, and is sent once.
#[test]
fn ending_namespace_without_lane_rights_is_reported() {
    let mut world = World::new();
    world.snapshot.state = NamespaceState::Ending;
    assert!(world.run().is_some());
    assert_eq!(world.read_admitted(), None);
    let [(reason, message)] = world.events.as_slice() else {
        panic!("{:?}", world.events)
    };
    assert_eq!(reason, "LaneWithoutRights");
    assert!(message.contains("remove the finalizers"), "{message}");
    // The event is sent once.
    world.run();
    assert_eq!(world.events.len(), 1);
}

#[test]
fn binding_is_deleted_when_work_ends() {
    let mut world = World::new();
    world.run();
    world.take_done();
    world.snapshot.is_worked_in = false;
    world.run();
    assert_eq!(
        world.take_done(),
        [
            "delete RoleBinding/team/tenure:lane: nothing is reconciled in the namespace any more",
            "let RoleBinding/team/tenure:lane go"
        ]
    );
    assert_eq!(world.read_admitted(), None);
    // The account stays: others are of the same lane.
    assert!(world.live(&pool_account()).is_object());
}

/// With its finalizer the RoleBinding would keep its namespace for ever, so a missing answer doesn't release it.
#[test]
fn unreadable_binding_is_not_considered_deleted() {
    let mut world = World::new();
    world.run();
    world.take_done();
    world.snapshot.is_worked_in = false;
    // The label is missing, so watches don't report the RoleBinding; and no answer comes.
    let there = world
        .snapshot
        .live
        .insert(binding_id(), Live::Failed(Failure::default()));
    let next = world.run();
    assert!(next.is_some(), "it is looked again");
    assert_eq!(world.take_done(), Vec::<String>::new());
    world.snapshot.live.extend(there.map(|there| (binding_id(), there)));
    world.run();
    assert_eq!(world.take_done().len(), 2, "deleted, and let go");
}

#[test]
fn a_binding_of_another_role_is_left_and_reported() {
    let mut world = World::new();
    world.store_object(
        &binding_id(),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "tenure:lane", "namespace": "team" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" },
        }),
    );
    assert!(world.run().is_some());
    assert_eq!(world.read_admitted(), None);
    assert!(
        !world
            .done
            .iter()
            .any(|step| step.contains("RoleBinding/team/tenure:lane (Lane)")),
        "{:?}",
        world.done
    );
    assert!(world.events[0].1.contains("binds another role"), "{:?}", world.events);
    // Nor is it deleted when nothing is reconciled there.
    world.take_done();
    world.snapshot.is_worked_in = false;
    assert_eq!(world.run(), None);
    assert!(world.take_done().is_empty());
}

/// Kubernetes' own namespaces belong to the platform's lane, with a role of their own.
#[test]
fn lanes_have_distinct_accounts() {
    let mut names: Vec<String> = ["platform", "pool", "tenant-platform", "a", &"x".repeat(63)]
        .into_iter()
        .map(|name| {
            identity::decide_for_lane(&make_placement(name), "team")
                .name()
                .to_owned()
        })
        .collect();
    let tenancy = TenancyFacts::default();
    names.push(
        identity::decide_for_lane(&tenancy.find_placement("tenure-system"), "tenure-system")
            .name()
            .to_owned(),
    );
    names.push(
        identity::decide_for_lane(&tenancy.find_placement("nobody"), "nobody")
            .name()
            .to_owned(),
    );
    for name in &names {
        assert!(
            tenure_api::names::ServiceAccountName::new(name.clone()).is_ok(),
            "{name}"
        );
        assert!(name.starts_with("tenure-lane-"), "{name}");
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
    for namespace in ["kube-system", "kube-public", "kube-node-lease"] {
        for placement in [make_placement("blue"), tenancy.find_placement(namespace)] {
            let lane = tenure_tenancy::lane::decide_lane(&placement, namespace);
            assert_eq!(lane, Lane::Platform, "{namespace}");
        }
        assert_eq!(tenure_tenancy::lane::decide_role(namespace), "tenure-lane-books");
    }
    assert_eq!(tenure_tenancy::lane::decide_role("default"), "tenure-lane");
}

#[test]
fn binding_held_by_finalizer_is_corrected_and_reported() {
    let mut world = World::new();
    world.run();
    world.take_done();
    let live = world.live(&binding_id());
    live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    live["metadata"]["finalizers"] = json!(["networking.k8s.aws/hold"]);
    live["subjects"] = json!([{ "kind": "User", "name": "mallory" }]);
    world.run();
    assert_eq!(world.take_done(), ["apply RoleBinding/team/tenure:lane (Lane)"]);
    let live = world.live(&binding_id());
    assert_eq!(live["subjects"][0]["name"], "tenure-lane-pool");
    // An API server refuses new finalizers on an object that is being deleted.
    assert_eq!(live["metadata"]["finalizers"], Value::Null);
    live["metadata"]["finalizers"] = json!(["networking.k8s.aws/hold"]);
    world.run();
    assert_eq!(world.take_done(), Vec::<String>::new());
    let (reason, message) = world.events.last().unwrap();
    assert_eq!(reason, "LaneRightsHeld");
    assert!(message.contains("networking.k8s.aws/hold"), "{message}");
    // The RoleBinding gives no rights after the lane has nothing to reconcile there.
    world.snapshot.is_worked_in = false;
    world.run();
    assert_eq!(world.live(&binding_id())["subjects"], json!([]));
}

#[test]
fn finalizer_in_namespace_without_tenant_is_removed() {
    let mut world = World::new();
    world.snapshot.judges_writes = true;
    world.run();
    world.take_done();
    let live = world.live(&binding_id());
    live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    live["metadata"]["finalizers"] = json!(["example.org/hold"]);
    world.run();
    assert_eq!(world.take_done()[0], "let RoleBinding/team/tenure:lane go");
}

#[test]
fn protected_namespace_has_a_lane_of_its_own() {
    let tenancy = tenure_tenancy::TenancyFacts {
        namespaces: ["flux-system", "cozy-system", "other", "another"]
            .map(|name| tenure_tenancy::NamespaceFacts {
                name: name.to_owned(),
                uid: name.to_owned(),
                ..tenure_tenancy::NamespaceFacts::default()
            })
            .into(),
        ..tenure_tenancy::TenancyFacts::default()
    };
    let name = |namespace: &str| {
        identity::decide_for_lane(&tenancy.find_placement(namespace), namespace)
            .name()
            .to_owned()
    };
    assert_eq!(name("flux-system"), "tenure-lane-protected-flux-system");
    assert_eq!(name("cozy-system"), "tenure-lane-protected-cozy-system");
    assert_eq!(
        (name("other"), name("another")),
        ("tenure-lane-pool".to_owned(), "tenure-lane-pool".to_owned())
    );
}
