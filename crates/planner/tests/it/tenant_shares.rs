//! Quotas for all namespaces of a Tenant together, if no admission checks the sum: the share of each namespace, for any behaviour of its owner.

use std::collections::{BTreeMap, BTreeSet};

use go_words::quantity::Quantity;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_planner::answer::{Answer, DeleteAnswer, Failure, Reason};
use tenure_planner::tenant::{Attempt, Memory, Plan, Snapshot, plan};
use tenure_planner::{Live, Next, Object, Request, WriteAnswer, invariants};

use crate::tenant::{make_snapshot, now, record_namespaces};

/// An API server, its quota controller, and a watch that is behind: the stored quotas of the namespaces, and the used amounts.
struct Server {
    snapshot: Snapshot,
    stored: BTreeMap<String, Value>,
    used: BTreeMap<String, i64>,
    revision: u64,
    writes: usize,
    bindings: BTreeSet<String>,
    answers_get_lost: bool,
    clock: Timestamp,
}

fn make_id(namespace: &str) -> String {
    format!("{namespace}_capsule-blue-0__ResourceQuota")
}

impl Server {
    /// A Tenant that may use so many Services in these namespaces.
    fn start(limit: i64, namespaces: &[&str]) -> Self {
        let spec = json!({
            "owners": [{ "kind": "User", "name": "alice" }],
            "resourceQuotas": { "items": [{ "hard": { "services": limit.to_string() } }] }
        });
        let mut server = Self {
            snapshot: make_snapshot(spec, json!([])),
            stored: BTreeMap::new(),
            used: BTreeMap::new(),
            revision: 1,
            writes: 0,
            bindings: BTreeSet::new(),
            answers_get_lost: false,
            clock: now(),
        };
        server.set_namespaces(namespaces, &[]);
        server
    }

    fn set_namespaces(&mut self, open: &[&str], ending: &[&str]) {
        let owners = json!([{ "name": "blue", "uid": "t" }]);
        let all: Vec<&str> = open.iter().chain(ending).copied().collect();
        let facts = all.iter().map(|name| {
            json!({ "name": name, "uid": format!("n-{name}"), "tenantLabel": "blue", "tenantOwners": owners, "deleting": ending.contains(name) })
        });
        let tenants = json!([{ "name": "blue", "uid": "t" }]);
        let tenancy = json!({ "tenants": tenants, "namespaces": facts.collect::<Value>() });
        self.snapshot.tenancy = std::sync::Arc::new(serde_json::from_value(tenancy).unwrap());
        let uids: Vec<(String, String)> = all
            .iter()
            .map(|name| ((*name).to_owned(), format!("n-{name}")))
            .collect();
        let recorded: Vec<(&str, &str)> = uids.iter().map(|(name, uid)| (name.as_str(), uid.as_str())).collect();
        record_namespaces(&mut self.snapshot, &recorded);
        self.used.retain(|name, _| all.contains(&name.as_str()));
        self.stored.retain(|name, _| all.contains(&name.as_str()));
        self.snapshot.live.retain(|id, _| all.contains(&id.namespace.as_str()));
    }

    /// Runs one attempt of the controller with the state that its watch has reported.
    fn reconcile(&mut self) {
        self.snapshot.attempt = Attempt::new(self.clock, &self.snapshot.tenant.metadata);
        for _ in 0..10 {
            let plan = self.plan();
            assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
            self.snapshot.memory = plan.memory.clone();
            if plan.next != Next::Again {
                return;
            }
            for step in &plan.steps {
                self.carry_out(step);
            }
        }
        panic!("it never ends");
    }

    fn plan(&self) -> Plan {
        plan(&self.snapshot, self.clock)
    }

    fn wait(&mut self, milliseconds: i64) {
        self.clock += SignedDuration::from_millis(milliseconds);
    }

    fn carry_out(&mut self, step: &Request) {
        match step {
            Request::Read(target) => {
                self.snapshot.live.entry(target.id.clone()).or_insert(Live::Absent);
            }
            Request::Apply(apply) => {
                let mut object = apply.object.0.clone();
                self.revision += 1;
                object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
                let is_quota = apply.id.kind == "ResourceQuota";
                if is_quota {
                    self.writes += 1;
                    let known = self.stored.get(&apply.id.namespace);
                    if let Some(status) = known.and_then(|known| known.get("status")) {
                        object["status"] = status.clone();
                    }
                    self.stored.insert(apply.id.namespace.clone(), object.clone());
                }
                if apply.id.kind == "RoleBinding" && apply.id.name.starts_with("capsule:managed:") {
                    self.bindings.insert(apply.id.namespace.clone());
                }
                let answer = match is_quota && self.answers_get_lost {
                    true => WriteAnswer::Failed(Failure {
                        reason: Reason::Unknown,
                        message: "the connection was cut".to_owned(),
                        ..Failure::default()
                    }),
                    false => WriteAnswer::Done(Object(object)),
                };
                let implied = self
                    .snapshot
                    .attempt
                    .record_answer(Answer::Applied(apply.id.clone(), answer));
                // The watch reports quotas late.
                self.snapshot
                    .live
                    .extend(implied.filter(|(id, _)| id.kind != "ResourceQuota"));
            }
            Request::Delete(delete) => {
                assert_ne!(delete.target.id.kind, "ResourceQuota", "{delete:?}");
                self.snapshot
                    .attempt
                    .record_answer(Answer::Deleted(delete.target.id.clone(), DeleteAnswer::Absent));
                self.snapshot.live.remove(&delete.target.id);
            }
            other => panic!("{other}"),
        }
    }

    /// The watch catches up with one namespace.
    fn update_watch(&mut self, namespace: &str) {
        if let Some(quota) = self.stored.get(namespace) {
            let live = Live::Present(Object(quota.clone()));
            self.snapshot.live.insert(make_id(namespace).parse().unwrap(), live);
        }
    }

    /// Runs Kubernetes' quota controller: it takes over the written quota, and counts the use.
    fn count_use(&mut self, namespace: &str) {
        let used = self.used.get(namespace).copied().unwrap_or(0);
        if let Some(quota) = self.stored.get_mut(namespace) {
            self.revision += 1;
            quota["metadata"]["resourceVersion"] = json!(self.revision.to_string());
            quota["status"] = json!({ "hard": quota["spec"]["hard"], "used": { "services": used.to_string() } });
        }
    }

    /// Creates one more object in the namespace, and returns whether the quota allows it.
    fn create_object(&mut self, namespace: &str) -> bool {
        let used = self.used.get(namespace).copied().unwrap_or(0);
        let enforced = self.stored.get(namespace).map(|quota| enforced_of(quota, "services"));
        if enforced.is_none_or(|enforced| used >= enforced) {
            return false;
        }
        self.used.insert(namespace.to_owned(), used + 1);
        let quota = self.stored.get_mut(namespace).unwrap();
        self.revision += 1;
        quota["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        quota["status"]["used"] = json!({ "services": (used + 1).to_string() });
        true
    }

    fn remove(&mut self, namespace: &str) {
        if let Some(used) = self.used.get_mut(namespace).filter(|used| **used > 0) {
            *used -= 1;
        }
        self.count_use(namespace);
    }

    fn run_until_settled(&mut self) {
        for _ in 0..8 {
            // Time passes after a refusal.
            self.snapshot.memory.refused.clear();
            self.wait(3_000);
            let names: Vec<String> = self.stored.keys().cloned().collect();
            for name in &names {
                self.count_use(name);
                self.update_watch(name);
            }
            self.reconcile();
            self.wait(3_000);
            self.reconcile();
        }
    }

    fn sum_limits(&self) -> i64 {
        self.used.values().sum()
    }
}

fn enforced_of(quota: &Value, resource: &str) -> i64 {
    let text = quota["status"]["hard"][resource].as_str().unwrap_or("0");
    Quantity::parse(text).unwrap().as_integer().unwrap()
}

#[test]
fn namespaces_together_use_exactly_tenant_quota() {
    let names = ["blue", "blue-a", "blue-b"];
    let mut server = Server::start(10, &names);
    server.run_until_settled();
    let mut made = 0;
    while names.iter().any(|name| server.create_object(name)) {
        made += 1;
        server.run_until_settled();
    }
    assert_eq!((made, server.sum_limits()), (10, 10));
    // If one namespace releases something, another one gets it.
    for _ in 0..6 {
        server.remove("blue");
    }
    server.run_until_settled();
    assert!(server.create_object("blue-b"));
    server.run_until_settled();
    assert!(server.sum_limits() <= 10);
}

#[test]
fn one_namespace_gets_unused_shares_of_others() {
    let mut server = Server::start(16, &["blue", "blue-a", "blue-b", "blue-c"]);
    server.run_until_settled();
    let mut made = 0;
    while server.create_object("blue-a") {
        made += 1;
        server.run_until_settled();
    }
    // The last few are the others', so that each can begin something.
    assert_eq!(made, 13);
    for name in ["blue", "blue-b", "blue-c"] {
        assert!(server.create_object(name), "{name}");
    }
}

#[test]
fn owners_are_bound_only_after_quota_counts() {
    let mut server = Server::start(4, &["blue", "blue-a"]);
    server.reconcile();
    assert_eq!(server.bindings, BTreeSet::new());
    assert_eq!(server.stored.len(), 2);
    let plan = server.plan();
    assert!(plan.to_string().contains("no owner gets rights before"), "{plan}");
    server.count_use("blue-a");
    server.update_watch("blue-a");
    server.reconcile();
    assert_eq!(server.bindings, BTreeSet::from(["blue-a".to_owned()]));
    server.run_until_settled();
    assert_eq!(server.bindings.len(), 2);
}

#[test]
fn share_of_ending_namespace_stays_until_deletion() {
    let mut server = Server::start(6, &["blue", "blue-a"]);
    server.run_until_settled();
    while server.create_object("blue-a") {
        server.run_until_settled();
    }
    let full = server.used["blue-a"];
    // The namespace's quota is deleted first, and an object in it stays.
    server.set_namespaces(&["blue", "blue-b"], &["blue-a"]);
    server.stored.remove("blue-a");
    server.snapshot.live.remove(&make_id("blue-a").parse().unwrap());
    server.run_until_settled();
    while server.create_object("blue") || server.create_object("blue-b") {
        server.run_until_settled();
    }
    assert!(server.sum_limits() <= 6, "{:?}", server.used);
    let plan = server.plan();
    assert!(
        plan.to_string()
            .contains("before these are gone, whose remaining use is unknown: blue-a"),
        "{plan}"
    );
    server.set_namespaces(&["blue", "blue-b"], &[]);
    server.run_until_settled();
    let mut freed = 0;
    while server.create_object("blue") || server.create_object("blue-b") {
        freed += 1;
        server.run_until_settled();
    }
    assert!(
        freed >= full && server.sum_limits() == 6,
        "{freed} of {full}, {:?}",
        server.used
    );
}

#[test]
fn deleted_quota_is_restored_within_limit() {
    let mut server = Server::start(8, &["blue", "blue-a"]);
    server.run_until_settled();
    server.create_object("blue-a");
    server.run_until_settled();
    // The quota is deleted before the watch reported the last write.
    server.stored.remove("blue-a");
    server.snapshot.live.remove(&make_id("blue-a").parse().unwrap());
    server.snapshot.memory.given.insert(
        make_id("blue-a").parse().unwrap(),
        serde_json::from_value(json!({ "hard": { "services": "4" }, "most": { "services": "4" }, "revision": 9999 }))
            .unwrap(),
    );
    server.run_until_settled();
    assert!(server.stored.contains_key("blue-a"));
    assert_eq!(
        server.snapshot.memory.given.len(),
        0,
        "{:?}",
        server.snapshot.memory.given
    );
    while server.create_object("blue") || server.create_object("blue-a") {
        server.run_until_settled();
    }
    assert_eq!(server.sum_limits(), 8);
}

#[test]
fn unanswered_write_counts_against_sum() {
    let mut server = Server::start(10, &["blue", "blue-a"]);
    server.run_until_settled();
    for _ in 0..4 {
        server.create_object("blue");
    }
    server.run_until_settled();
    server.answers_get_lost = true;
    // A namespace asks for more and gets it. No watch reports this yet, and the other namespace asks, too.
    server.create_object("blue");
    server.create_object("blue");
    server.update_watch("blue");
    server.reconcile();
    server.reconcile();
    server.answers_get_lost = false;
    server.count_use("blue");
    while server.create_object("blue") {}
    for _ in 0..3 {
        server.create_object("blue-a");
        server.update_watch("blue-a");
        server.reconcile();
        server.count_use("blue-a");
    }
    assert!(server.sum_limits() <= 10, "{:?}", server.used);
}

#[test]
fn failed_read_is_not_missing_quota() {
    let mut server = Server::start(10, &["blue", "blue-a"]);
    server.run_until_settled();
    for _ in 0..4 {
        server.create_object("blue");
    }
    // No watch tells of the other one's any more, and it can't be read.
    let failure = Failure {
        reason: Reason::Unknown,
        message: "the connection was cut".to_owned(),
        ..Failure::default()
    };
    let unread = || Live::Failed(failure.clone());
    for _ in 0..4 {
        server.count_use("blue");
        server.update_watch("blue");
        server
            .snapshot
            .live
            .insert(make_id("blue-a").parse().unwrap(), unread());
        server.wait(3_000);
        server.reconcile();
    }
    assert_eq!(server.stored["blue"]["spec"]["hard"]["services"], "5");
    server.run_until_settled();
    assert_eq!(
        server.stored["blue"]["spec"]["hard"]["services"], "7",
        "it was only that"
    );
}

#[test]
fn shares_move_once_nothing_changes_or_after_a_while() {
    let mut server = Server::start(12, &["blue", "blue-a"]);
    server.run_until_settled();
    let at_rest = server.writes;
    for _ in 0..5 {
        server.create_object("blue");
    }
    server.update_watch("blue");
    server.reconcile();
    assert_eq!(server.writes, at_rest, "something was made a moment ago");
    assert_eq!(
        server.plan().next,
        Next::Done(Some(server.clock + SignedDuration::from_secs(2)))
    );
    server.wait(2_000);
    server.reconcile();
    assert_eq!(server.writes, at_rest + 1, "the other one's share is lowered");
    // A user who creates without a pause has to wait for half a minute, and the others don't wait longer because of that user.
    server.run_until_settled();
    let at_rest = server.writes;
    let mut waited = 0;
    while server.writes == at_rest {
        assert!(waited < 40, "{waited}");
        if !server.create_object("blue") {
            server.remove("blue");
        }
        server.update_watch("blue");
        server.reconcile();
        server.wait(1_000);
        waited += 1;
    }
    assert!(waited >= 25, "{waited}");
}

/// Numbers by chance, the same ones in every run.
struct Chance(u64);

impl Chance {
    fn draw(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(below).unwrap()).unwrap()
    }
}

/// Events come in any order, and some answers are lost. The sum of the shares holds, and the writes are few.
#[test]
fn sum_of_shares_holds_in_random_stories() {
    let names = ["blue", "blue-a", "blue-b", "blue-c", "blue-d"];
    for seed in 1..60_u64 {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let limit = i64::try_from(chance.draw(40)).unwrap() + 1;
        let mut server = Server::start(limit, &names[..3]);
        let (mut asked, mut ended, mut begun) = (0, false, false);
        for _ in 0..300 {
            let name = names[chance.draw(if begun { 5 } else { 3 })];
            server.wait(i64::try_from(chance.draw(1_500)).unwrap());
            match chance.draw(10) {
                0..=3 => {
                    asked += 1;
                    server.create_object(name);
                }
                4 => {
                    asked += 1;
                    server.remove(name);
                }
                5 => server.count_use(name),
                6 | 7 => server.update_watch(name),
                8 => {
                    server.answers_get_lost = chance.draw(8) == 0;
                    server.reconcile();
                }
                _ if !begun && chance.draw(6) == 0 => {
                    begun = true;
                    server.set_namespaces(&names, &[]);
                }
                _ if begun && !ended && chance.draw(8) == 0 => {
                    ended = true;
                    server.set_namespaces(&names[..4], &names[4..]);
                }
                // A process that ends forgets everything, and the next one begins with the stored state.
                _ if chance.draw(30) == 0 => {
                    server.snapshot.memory = Memory::default();
                    names.iter().for_each(|name| server.update_watch(name));
                }
                _ => {}
            }
            assert!(
                server.sum_limits() <= limit,
                "seed {seed}: {:?} of {limit}",
                server.used
            );
        }
        server.answers_get_lost = false;
        // A namespace that disappeared without being counted has nothing left.
        if ended {
            server.set_namespaces(&names[..4], &[]);
        }
        server.run_until_settled();
        assert!(
            server.writes <= 3 * asked + 40,
            "seed {seed}: {} for {asked}",
            server.writes
        );
        let at_rest = server.writes;
        server.run_until_settled();
        assert_eq!(server.writes, at_rest, "seed {seed}: it comes to rest");
        // A namespace with nothing left gets something while enough for all remains.
        let open = if ended {
            4
        } else if begun {
            5
        } else {
            3
        };
        if limit - server.sum_limits() >= 5 {
            for name in &names[..open] {
                assert!(server.create_object(name), "seed {seed}: {name} of {:?}", server.used);
            }
        }
    }
}

/// Memory is shared in bytes.
#[test]
fn processor_time_is_shared_in_millicores() {
    let spec = json!({ "resourceQuotas": { "items": [{ "hard": {
        "limits.cpu": "1", "limits.memory": "3Gi", "pods": 2, "requests.storage": "many"
    } }] } });
    let mut server = Server::start(1, &["blue", "blue-a", "blue-b"]);
    server.snapshot.tenant.spec = serde_json::from_value(spec).unwrap();
    server.run_until_settled();
    let hard = |name: &str| server.stored[name]["spec"]["hard"].clone();
    assert_eq!(
        hard("blue"),
        json!({ "limits.cpu": "334m", "limits.memory": "1Gi", "pods": "1", "requests.storage": "many" })
    );
    assert_eq!(
        hard("blue-b"),
        json!({ "limits.cpu": "333m", "limits.memory": "1Gi", "pods": "0", "requests.storage": "many" })
    );
}
