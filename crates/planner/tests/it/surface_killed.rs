//! A process that reconciles a Surface is killed after any of its writes. The next one knows nothing of the first, makes no second key, and reaches the result of a
//! process without a kill.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_api::ObjectId;
use tenure_planner::answer::{Answer, DeleteAnswer};
use tenure_planner::surface::deploy_key::{Work, apply_answer, begin_attempt, list_due};
use tenure_planner::surface::{Attempt, Memory, Snapshot, plan};
use tenure_planner::{Live, Next, Object, Request, WriteAnswer, invariants};

use crate::deploy_keys::{self, list_fingerprints, make_source, start};

/// The cluster, and how many writes there were.
struct Play {
    snapshot: Snapshot,
    keys: deploy_keys::World,
    children: BTreeMap<ObjectId, Value>,
    writes: usize,
    killed_after: Vec<usize>,
    now: Timestamp,
}

impl Play {
    fn new(spec: Value, killed_after: &[usize]) -> Self {
        Self {
            snapshot: deploy_keys::make_snapshot("blue", spec),
            keys: deploy_keys::World::default(),
            children: BTreeMap::new(),
            writes: 0,
            killed_after: killed_after.to_vec(),
            now: start(),
        }
    }

    /// Counts a write. True: the process dies of it, before it hears the answer.
    fn is_killed(&mut self) -> bool {
        self.writes += 1;
        let dies = self.killed_after.contains(&self.writes);
        if dies {
            self.snapshot.memory = Memory::default();
            self.snapshot.keys.clear();
        }
        dies
    }

    /// Runs one attempt. Returns true if it came to its end and wrote nothing.
    fn run_attempt(&mut self) -> bool {
        let before = self.writes;
        self.now += SignedDuration::from_secs(3600);
        self.snapshot.attempt = Attempt::new(self.now, &self.snapshot.surface.metadata);
        begin_attempt(&mut self.snapshot);
        let mut absent = BTreeMap::new();
        for _ in 0..50 {
            self.snapshot.live = absent.clone();
            let children = self.children.iter();
            let children = children.map(|(id, object)| (id.clone(), Live::Present(Object(object.clone()))));
            self.snapshot.live.extend(children);
            let due = list_due(&self.snapshot, self.now);
            for step in &due {
                let answer = self.keys.answer_step(step);
                if !matches!(step.work, Work::Look { .. }) && self.is_killed() {
                    return false;
                }
                apply_answer(&mut self.snapshot.keys, step, answer, self.now);
            }
            if !due.is_empty() {
                continue;
            }
            let plan = plan(&self.snapshot, self.now);
            assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
            self.snapshot.memory = plan.memory.clone();
            for step in &plan.steps {
                let answer = match step {
                    Request::Read(target) => {
                        absent.insert(target.id.clone(), Live::Absent);
                        continue;
                    }
                    Request::Apply(apply) => {
                        let mut object = apply.object.0.clone();
                        object["metadata"]["uid"] = json!("child");
                        self.children.insert(apply.id.clone(), object.clone());
                        Answer::Applied(apply.id.clone(), WriteAnswer::Done(Object(object)))
                    }
                    Request::Delete(delete) => {
                        self.children.remove(&delete.target.id);
                        Answer::Deleted(delete.target.id.clone(), DeleteAnswer::Accepted)
                    }
                    other => panic!("{other}"),
                };
                if self.is_killed() {
                    return false;
                }
                self.snapshot.attempt.record_answer(answer);
            }
            if let Some(status) = &plan.status {
                self.snapshot.surface.status = Some(status.clone());
                if self.is_killed() {
                    return false;
                }
            }
            if plan.next != Next::Again {
                return self.writes == before;
            }
        }
        panic!("it never ends");
    }

    fn run(&mut self) {
        for _ in 0..40 {
            if self.run_attempt() {
                return;
            }
        }
        panic!("it comes to no rest: {:?}", self.snapshot.surface.status);
    }

    fn describe_state(&self) -> (Vec<Value>, Vec<Value>, u32, Vec<String>, Vec<Value>) {
        let conditions = self
            .snapshot
            .surface
            .status
            .iter()
            .flat_map(|status| &status.conditions);
        let conditions = conditions.map(|found| json!([found.type_, found.reason, found.message]));
        (
            self.children.values().cloned().collect(),
            self.keys.access.values().cloned().collect(),
            self.keys.made,
            list_fingerprints(&self.snapshot),
            conditions.collect(),
        )
    }
}

/// A Surface with a key and two sources; then without the key and the second source.
fn run_with_kills(killed_after: &[usize]) -> Play {
    let mut plain = make_source();
    plain.as_object_mut().unwrap().remove("deployKey");
    let other = json!({ "name": "other", "url": "https://git.example/blue/other.git" });
    let mut play = Play::new(json!({ "sources": [make_source(), other] }), killed_after);
    play.run();
    let sources = |play: &Play| play.children.keys().filter(|id| id.kind == "GitRepository").count();
    assert_eq!(
        (play.keys.made, sources(&play)),
        (1, 2),
        "killed after {killed_after:?}"
    );
    assert_eq!(
        list_fingerprints(&play.snapshot),
        ["SHA256:1"],
        "killed after {killed_after:?}"
    );
    plain["url"] = json!("https://git.example/blue/app.git");
    play.snapshot.surface.spec = serde_json::from_value(json!({ "sources": [plain] })).unwrap();
    play.snapshot.surface.metadata.generation = Some(2);
    play.run();
    assert_eq!(sources(&play), 1);
    play
}

#[test]
fn a_surface_converges_after_a_kill_at_any_write() {
    let whole = run_with_kills(&[]);
    let wanted = whole.describe_state();
    assert!(whole.writes > 10, "{}", whole.writes);
    // No object of the key is left.
    assert!(wanted.1.is_empty() && wanted.3.is_empty(), "{wanted:?}");
    for after in 1..=whole.writes {
        assert_eq!(
            run_with_kills(&[after]).describe_state(),
            wanted,
            "killed after write {after}"
        );
        let again = [after, after + 1, after + 4];
        assert_eq!(
            run_with_kills(&again).describe_state(),
            wanted,
            "killed after writes {again:?}"
        );
    }
}
