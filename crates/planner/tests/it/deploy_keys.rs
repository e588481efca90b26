//! The keys of a Surface's sources: the order of the steps, the forbidden steps, and the status.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_planner::answer::{DeleteAnswer, Failure, Reason};
use tenure_planner::surface::deploy_key::{
    Answer, KeyPairFacts, SecretFacts, Step, Work, apply_answer, begin_attempt, is_ours, list_due, name_key,
};
use tenure_planner::surface::{Attempt, Plan, Snapshot, plan};
use tenure_planner::{Live, Next, Object, Request, WriteAnswer, invariants};

use crate::surface::snapshot_of;

const HOSTS: &str = "git.example ssh-ed25519 AAAA";

pub(crate) fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn time_after(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

pub(crate) fn make_source() -> Value {
    json!({ "name": "app", "url": "ssh://git@git.example/blue/app.git", "deployKey": { "knownHosts": HOSTS } })
}

pub(crate) fn make_snapshot(namespace: &str, spec: Value) -> Snapshot {
    snapshot_of(("shop", namespace), spec, start())
}

fn make_failure(code: u16, reason: Reason) -> Failure {
    Failure {
        code,
        reason,
        message: "no".to_owned(),
        ..Failure::default()
    }
}

/// A namespace as the account that writes credentials meets it.
#[derive(Default)]
pub(crate) struct World {
    secret: Option<Held>,
    pub(crate) access: BTreeMap<String, Value>,
    /// The forbidden steps: the beginning of each step's text.
    refused: Vec<&'static str>,
    /// The number of made keys.
    pub(crate) made: u32,
    done: Vec<String>,
}

#[derive(Clone)]
struct Held {
    is_foreign: bool,
    pair: Result<KeyPairFacts, String>,
    hosts: String,
    is_labelled: bool,
}

fn make_pair(number: u32) -> KeyPairFacts {
    KeyPairFacts {
        public_key: format!("ssh-ed25519 AAAA{number}"),
        fingerprint: format!("SHA256:{number}"),
    }
}

impl World {
    fn read_facts(&self) -> SecretFacts {
        match &self.secret {
            None => SecretFacts::Absent,
            Some(held) if held.is_foreign => SecretFacts::Foreign,
            Some(held) => SecretFacts::Ours {
                uid: "u".to_owned(),
                resource_version: "1".to_owned(),
                is_going: false,
                pair: held.pair.clone(),
                known_hosts: Some(held.hosts.clone()),
                is_labelled: held.is_labelled,
            },
        }
    }

    pub(crate) fn answer_step(&mut self, step: &Step) -> Answer {
        let forbidden = || make_failure(403, Reason::Forbidden);
        let words = step.work.describe();
        let is_refused = self.refused.iter().any(|refused| words.starts_with(refused));
        if !words.starts_with("look at") {
            self.done.push(words);
        }
        let read = |kind: &str| match self.access.get(kind) {
            Some(object) => Live::Present(Object(object.clone())),
            None => Live::Absent,
        };
        match &step.work {
            Work::Look { .. } if is_refused => {
                let live = Live::Failed(forbidden());
                Answer::Looked(SecretFacts::Failed(forbidden()), live.clone(), live)
            }
            Work::Look { .. } => Answer::Looked(self.read_facts(), read("Role"), read("RoleBinding")),
            Work::Make { .. } | Work::Patch { .. } if is_refused => Answer::Secret(Err(forbidden())),
            Work::Make { secret, .. } => {
                assert!(self.secret.is_none(), "made over one that is there");
                self.made += 1;
                self.secret = Some(Held {
                    is_foreign: false,
                    pair: Ok(make_pair(self.made)),
                    hosts: secret["stringData"]["known_hosts"].as_str().unwrap().to_owned(),
                    is_labelled: true,
                });
                Answer::Secret(Ok(self.read_facts()))
            }
            Work::Patch { patch, .. } => {
                let held = self.secret.as_mut().unwrap();
                held.hosts = patch["stringData"]["known_hosts"].as_str().unwrap().to_owned();
                held.is_labelled |= patch["metadata"]["labels"]["tenure.dev/credential"] == "deploy-key";
                Answer::Secret(Ok(self.read_facts()))
            }
            Work::Request(Request::Apply(apply)) => {
                self.access.insert(apply.id.kind.clone(), apply.object.0.clone());
                Answer::Written(WriteAnswer::Done(apply.object.clone()))
            }
            Work::Request(Request::Delete(delete)) => {
                if delete.target.id.kind == "Secret" {
                    self.secret = None;
                }
                self.access.remove(&delete.target.id.kind);
                Answer::Deleted(DeleteAnswer::Accepted)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Runs a round of the shell: keys first, then the plan, on a cluster that accepts its writes; the status is stored.
fn run_round(snapshot: &mut Snapshot, world: &mut World, now: Timestamp) -> Plan {
    snapshot.attempt = Attempt::new(now, &snapshot.surface.metadata);
    begin_attempt(snapshot);
    for _ in 0..50 {
        let due = list_due(snapshot, now);
        for step in &due {
            let answer = world.answer_step(step);
            apply_answer(&mut snapshot.keys, step, answer, now);
        }
        if !due.is_empty() {
            continue;
        }
        let plan = plan(snapshot, now);
        assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
        for step in &plan.steps {
            match step {
                Request::Read(target) => {
                    snapshot.live.entry(target.id.clone()).or_insert(Live::Absent);
                }
                Request::Apply(apply) => {
                    let mut object = apply.object.0.clone();
                    object["metadata"]["uid"] = json!("child");
                    let answer = tenure_planner::Answer::Applied(apply.id.clone(), WriteAnswer::Done(Object(object)));
                    snapshot.live.extend(snapshot.attempt.record_answer(answer));
                }
                other => panic!("{other}"),
            }
        }
        if plan.next == Next::Again {
            continue;
        }
        if let Some(status) = &plan.status {
            snapshot.surface.status = Some(status.clone());
        }
        return plan;
    }
    panic!("it never ends")
}

fn read_ready(snapshot: &Snapshot) -> (String, String) {
    let status = snapshot.surface.status.as_ref().unwrap();
    let ready = tenure_api::condition::find(&status.conditions, "Ready").unwrap();
    (ready.reason.clone(), ready.message.clone())
}

pub(crate) fn list_fingerprints(snapshot: &Snapshot) -> Vec<String> {
    let keys = snapshot.surface.status.iter().flat_map(|status| &status.deploy_keys);
    keys.map(|key| key.fingerprint.clone()).collect()
}

fn find_repository(snapshot: &mut Snapshot) -> &mut Value {
    let found = snapshot.live.iter_mut().find(|(id, _)| id.kind == "GitRepository");
    match found.unwrap().1 {
        Live::Present(object) => &mut object.0,
        other => panic!("{other:?}"),
    }
}

fn list_reasons(plan: &Plan) -> Vec<&str> {
    plan.events.iter().map(|event| event.reason.as_str()).collect()
}

/// A deploy key is made once. Its account may read the key's Secret and nothing else.
#[test]
fn account_of_deploy_key_reads_only_that_secret() {
    let mut snapshot = make_snapshot("blue", json!({ "sources": [make_source()] }));
    let mut world = World::default();
    let plan = run_round(&mut snapshot, &mut world, start());
    assert_eq!(
        world.done,
        [
            "create Secret/blue/shop-app-deploy-key",
            "apply Role/blue/shop-app-deploy-key (Surface)",
            "apply RoleBinding/blue/shop-app-deploy-key (Surface)",
        ]
    );
    assert_eq!(list_fingerprints(&snapshot), ["SHA256:1"]);
    assert!(list_reasons(&plan).contains(&"DeployKeyMade"), "{:?}", plan.events);
    let role = &world.access["Role"];
    assert_eq!(
        role["rules"],
        json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["shop-app-deploy-key"], "verbs": ["get"] }])
    );
    let binding = &world.access["RoleBinding"];
    assert_eq!(
        (
            &binding["roleRef"]["kind"],
            &binding["roleRef"]["name"],
            &binding["subjects"]
        ),
        (
            &json!("Role"),
            &json!("shop-app-deploy-key"),
            &json!([{ "kind": "ServiceAccount", "name": "blue-gitops", "namespace": "blue" }])
        )
    );
    assert!([role, binding].iter().all(|object| is_ours(object, &snapshot.surface)));

    // The repository is requested with the key. Until a server accepts it, the message says what to add, and where.
    let spec = find_repository(&mut snapshot)["spec"].clone();
    assert_eq!(spec["secretRef"]["name"], "shop-app-deploy-key");
    assert!(spec["suspend"].is_null(), "{spec}");
    find_repository(&mut snapshot)["status"] = json!({ "conditions": [{
        "type": "Ready", "status": "False", "reason": "AuthenticationFailed", "message": "the key was refused" }] });
    run_round(&mut snapshot, &mut world, time_after(1));
    let (reason, message) = read_ready(&snapshot);
    assert_eq!(reason, "AuthenticationFailed");
    assert!(
        message.contains(
            "add this deploy key, for reading only, to ssh://git.example/blue/app.git: ssh-ed25519 AAAA1 (SHA256:1)"
        ) && message.contains("the key was refused"),
        "{message}"
    );

    // After the key is taken, no further request is made, and no step is repeated.
    let asked = find_repository(&mut snapshot)["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"].clone();
    assert_eq!(asked, "SHA256:1");
    find_repository(&mut snapshot)["metadata"]["generation"] = json!(1);
    find_repository(&mut snapshot)["status"] = json!({ "observedGeneration": 1, "lastHandledReconcileAt": asked, "conditions": [{
        "type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored" }] });
    run_round(&mut snapshot, &mut world, time_after(2));
    let message = read_ready(&snapshot).1;
    assert!(!message.contains("add this deploy key"), "{message}");
    assert_eq!((world.done.len(), world.made), (3, 1));
}

#[test]
fn missing_right_is_reported_with_command() {
    let mut snapshot = make_snapshot("blue", json!({ "sources": [make_source()] }));
    let mut world = World {
        refused: vec!["look at"],
        ..World::default()
    };
    let plan = run_round(&mut snapshot, &mut world, start());
    let (reason, message) = read_ready(&snapshot);
    assert_eq!(reason, "DeployKeyUnavailable");
    assert!(
        message.contains("ServiceAccount tenure-system/tenure-secret-writer")
            && message.contains(
                "kubectl create rolebinding tenure-secret-writer -n blue --clusterrole tenure-secret-writer --serviceaccount tenure-system:tenure-secret-writer"
            ),
        "{message}"
    );
    assert_eq!(plan.next, Next::Done(Some(time_after(10))));
    assert_eq!(world.done, Vec::<String>::new());
    // No fetch runs without the credentials.
    assert_eq!(find_repository(&mut snapshot)["spec"]["suspend"], true);
    // No request is made before its time; then the work goes on by itself.
    assert!(list_due(&snapshot, time_after(9)).is_empty());
    world.refused.clear();
    run_round(&mut snapshot, &mut world, time_after(10));
    assert_eq!(list_fingerprints(&snapshot), ["SHA256:1"]);
    assert!(find_repository(&mut snapshot)["spec"]["suspend"].is_null());

    // Another refusal, such as a quota, is reported in its own words.
    let mut snapshot = snapshot_of_blue();
    let mut world = World {
        refused: vec!["create Secret"],
        ..World::default()
    };
    run_round(&mut snapshot, &mut world, start());
    let message = read_ready(&snapshot).1;
    assert!(
        message.contains("can't create Secret/blue/shop-app-deploy-key (Forbidden): no")
            && !message.contains("kubectl"),
        "{message}"
    );
    assert_eq!(world.access.len(), 0, "nobody may read what isn't there");
}

fn snapshot_of_blue() -> Snapshot {
    make_snapshot("blue", json!({ "sources": [make_source()] }))
}

#[test]
fn foreign_secret_is_neither_written_nor_used() {
    let mut snapshot = snapshot_of_blue();
    let mut world = World {
        secret: Some(Held {
            is_foreign: true,
            pair: Ok(make_pair(7)),
            hosts: HOSTS.to_owned(),
            is_labelled: true,
        }),
        ..World::default()
    };
    run_round(&mut snapshot, &mut world, start());
    let (reason, message) = read_ready(&snapshot);
    assert_eq!(reason, "DeployKeyUnavailable");
    assert!(message.contains("was not made by this surface"), "{message}");
    assert_eq!((world.done.len(), list_fingerprints(&snapshot).len()), (0, 0));
    assert_eq!(find_repository(&mut snapshot)["spec"]["suspend"], true);
    // As soon as the old object is gone, a key is made.
    world.secret = None;
    run_round(&mut snapshot, &mut world, time_after(10));
    assert_eq!(list_fingerprints(&snapshot), ["SHA256:1"]);
}

#[test]
fn a_replaced_key_is_reported_and_not_used() {
    for (put, expected) in [
        (
            Ok(make_pair(9)),
            "holds another key (SHA256:9) than the recorded key (SHA256:1)",
        ),
        (
            Err("identity.pub is not the public half of identity".to_owned()),
            "no longer holds the key that was made: identity.pub is not the public half of identity",
        ),
    ] {
        let mut snapshot = snapshot_of_blue();
        let mut world = World::default();
        run_round(&mut snapshot, &mut world, start());
        world.secret.as_mut().unwrap().pair = put;
        run_round(&mut snapshot, &mut world, time_after(301));
        let (reason, message) = read_ready(&snapshot);
        assert_eq!(reason, "DeployKeyUnavailable");
        assert!(
            message.contains(expected) && message.contains("kubectl delete secret shop-app-deploy-key -n blue"),
            "{message}"
        );
        assert_eq!(find_repository(&mut snapshot)["spec"]["suspend"], true);
        assert_eq!(
            list_fingerprints(&snapshot),
            ["SHA256:1"],
            "the status tells of the one that was made"
        );
        assert_eq!(world.done.len(), 3, "{:?}", world.done);
    }
}

#[test]
fn missing_key_is_reported_before_its_replacement() {
    let mut snapshot = snapshot_of_blue();
    let mut world = World::default();
    run_round(&mut snapshot, &mut world, start());
    world.secret = None;
    // A source that can't fetch any more causes an immediate look.
    find_repository(&mut snapshot)["status"] = json!({ "conditions": [{
        "type": "Ready", "status": "False", "reason": "AuthenticationFailed", "message": "there is no Secret" }] });
    let plan = run_round(&mut snapshot, &mut world, time_after(2));
    assert_eq!((list_fingerprints(&snapshot).len(), world.made), (0, 1), "report");
    assert!(list_reasons(&plan).contains(&"DeployKeyGone"), "{:?}", plan.events);
    assert_eq!(plan.next, Next::Done(Some(time_after(3))));
    let plan = run_round(&mut snapshot, &mut world, time_after(3));
    assert_eq!(list_fingerprints(&snapshot), ["SHA256:2"]);
    assert!(list_reasons(&plan).contains(&"DeployKeyMade"), "{:?}", plan.events);
    // The repository is requested again with the new key.
    let asked = &find_repository(&mut snapshot)["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"];
    assert_eq!(asked, "SHA256:2");
    // A process that was killed between the creation and the report takes the existing key for its own.
    let mut crashed = snapshot_of_blue();
    run_round(&mut crashed, &mut world, time_after(4));
    assert_eq!(
        (list_fingerprints(&crashed), world.made),
        (vec!["SHA256:2".to_owned()], 2)
    );
}

#[test]
fn host_keys_follow_spec_and_unwanted_key_is_deleted() {
    let mut snapshot = snapshot_of_blue();
    let mut world = World::default();
    run_round(&mut snapshot, &mut world, start());
    world.done.clear();
    snapshot.surface.metadata.generation = Some(2);
    snapshot.surface.spec.sources[0]
        .deploy_key
        .as_mut()
        .unwrap()
        .known_hosts = "other.example ssh-ed25519 BBBB".to_owned();
    world.access.get_mut("RoleBinding").unwrap()["subjects"] = json!([]);
    run_round(&mut snapshot, &mut world, time_after(1));
    assert_eq!(
        world.done,
        [
            "change known_hosts and labels of Secret/blue/shop-app-deploy-key",
            "apply RoleBinding/blue/shop-app-deploy-key (Surface)",
        ]
    );
    assert_eq!(
        (list_fingerprints(&snapshot), world.made),
        (vec!["SHA256:1".to_owned()], 1)
    );
    // Removed labels come back, because the policy on the writer's changes demands them.
    world.done.clear();
    world.secret.as_mut().unwrap().is_labelled = false;
    let metadata = &mut world.access.get_mut("Role").unwrap()["metadata"];
    metadata["labels"] = json!({});
    metadata["managedFields"] = json!([{ "manager": "tenure-controller" }]);
    run_round(&mut snapshot, &mut world, time_after(301));
    assert_eq!(
        world.done,
        [
            "change known_hosts and labels of Secret/blue/shop-app-deploy-key",
            "apply Role/blue/shop-app-deploy-key (Surface)",
        ]
    );
    assert_eq!(
        (list_fingerprints(&snapshot), world.made),
        (vec!["SHA256:1".to_owned()], 1)
    );
    // A foreign Role with the name stays untouched, and is reported.
    let role = world.access.get("Role").cloned().unwrap();
    world.access.get_mut("Role").unwrap()["metadata"]["ownerReferences"] = json!([]);
    run_round(&mut snapshot, &mut world, time_after(700));
    let message = read_ready(&snapshot).1;
    assert!(
        message.contains("Role/blue/shop-app-deploy-key exists and was not made"),
        "{message}"
    );
    world.access.insert("Role".to_owned(), role);

    world.done.clear();
    snapshot.surface.metadata.generation = Some(3);
    snapshot.surface.spec.sources[0].deploy_key = None;
    let plan = run_round(&mut snapshot, &mut world, time_after(800));
    assert_eq!(
        world.done,
        [
            "delete Secret/blue/shop-app-deploy-key: the source has no deploy key any more",
            "delete RoleBinding/blue/shop-app-deploy-key: the source has no deploy key any more",
            "delete Role/blue/shop-app-deploy-key: the source has no deploy key any more",
        ]
    );
    assert!(
        list_fingerprints(&snapshot).is_empty() && list_reasons(&plan).contains(&"DeployKeyGone"),
        "{plan}"
    );
}

/// A Surface in a wrong namespace gets no key, and neither does an invalid one.
#[test]
fn misplaced_or_invalid_surface_gets_no_key() {
    let spec = json!({ "sources": [make_source()] });
    let named = json!({ "serviceAccountName": "admin", "sources": [make_source()] });
    for (namespace, spec, is_made) in [
        ("blue", spec.clone(), true),
        ("tenure-system", named.clone(), true),
        ("blue-dev", spec.clone(), false),
        ("nobody", spec.clone(), false),
        ("kube-system", spec.clone(), false),
        ("blue", named, false),
        ("tenure-system", spec, false),
    ] {
        let snapshot = make_snapshot(namespace, spec);
        assert_eq!(!list_due(&snapshot, start()).is_empty(), is_made, "{namespace}");
    }
    let with = |fields: Value| {
        let mut source = make_source();
        for (key, value) in fields.as_object().unwrap() {
            source[key] = value.clone();
        }
        make_snapshot("blue", json!({ "sources": [source] }))
    };
    for (fields, message) in [
        (
            json!({ "url": "https://git.example/blue/app.git" }),
            "not reached over ssh",
        ),
        (
            json!({ "secretRef": { "name": "mine" } }),
            "secretRef names other credentials",
        ),
        (json!({ "deployKey": { "knownHosts": " \n" } }), "knownHosts is empty"),
        (
            json!({ "deployKey": { "knownHosts": "x".repeat(17_000) } }),
            "16384 is the most",
        ),
        (
            json!({ "deployKey": { "knownHosts": "a\u{0}b" } }),
            "characters in it that no text has",
        ),
    ] {
        let snapshot = with(fields);
        assert!(list_due(&snapshot, start()).is_empty(), "{message}");
        let plan = plan(&snapshot, start());
        let status = plan.status.unwrap();
        let ready = tenure_api::condition::find(&status.conditions, "Ready").unwrap();
        assert!(ready.message.contains(message), "{}", ready.message);
    }
    let mut suspended = snapshot_of_blue();
    suspended.surface.spec.suspend = true;
    assert!(list_due(&suspended, start()).is_empty());
}

/// A client that changes everything at once doesn't keep the controllers busy.
#[test]
fn endless_conflict_causes_bounded_steps() {
    let mut snapshot = snapshot_of_blue();
    let mut steps = 0;
    for _ in 0..100 {
        for step in list_due(&snapshot, start()) {
            steps += 1;
            let answer = match &step.work {
                Work::Look { .. } => Answer::Looked(SecretFacts::Absent, Live::Absent, Live::Absent),
                Work::Make { .. } => Answer::Secret(Err(Failure {
                    code: 409,
                    reason: Reason::AlreadyExists,
                    ..Failure::default()
                })),
                other => panic!("{other:?}"),
            };
            apply_answer(&mut snapshot.keys, &step, answer, start());
        }
    }
    assert!(steps < 20, "{steps}");
    let plan = plan(&snapshot, start());
    assert!(plan.steps.iter().all(|step| matches!(step, Request::Read(_))), "{plan}");
}

/// A RoleBinding whose Role the API server doesn't know yet is written again at once, and not for ever.
#[test]
fn binding_is_retried_while_api_server_lags() {
    for (times, is_refused) in [(2, false), (u32::MAX, true)] {
        let mut snapshot = snapshot_of_blue();
        let mut world = World::default();
        let (mut behind, mut tried) = (times, 0);
        for _ in 0..100 {
            for step in list_due(&snapshot, start()) {
                let is_binding = step.work.describe().starts_with("apply RoleBinding");
                tried += u32::from(is_binding);
                let answer = if is_binding && behind > 0 {
                    behind -= 1;
                    Answer::Written(WriteAnswer::Failed(make_failure(404, Reason::NotFound)))
                } else {
                    world.answer_step(&step)
                };
                apply_answer(&mut snapshot.keys, &step, answer, start());
            }
        }
        let facts = &snapshot.keys["app"];
        assert_eq!(facts.refused.is_some(), is_refused, "{facts:?}");
        assert!(tried == 3 || is_refused && tried < 8, "{tried}");
    }
}

#[test]
fn names_follow_from_the_surface_and_the_source() {
    assert_eq!(name_key("shop", "app"), "shop-app-deploy-key");
}

/// A Role and a RoleBinding of a key give rights until they are gone.
#[test]
fn held_binding_of_key_is_corrected_and_reported() {
    let mut snapshot = make_snapshot("blue", json!({ "sources": [make_source()] }));
    let mut world = World::default();
    run_round(&mut snapshot, &mut world, start());
    world.done.clear();
    let binding = world.access.get_mut("RoleBinding").unwrap();
    binding["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    binding["metadata"]["finalizers"] = json!(["example.org/hold"]);
    let held = binding["metadata"].clone();
    let right = binding["subjects"].clone();
    binding["subjects"] = json!([{ "kind": "User", "name": "mallory" }]);
    run_round(&mut snapshot, &mut world, time_after(600));
    assert_eq!(world.done, ["apply RoleBinding/blue/shop-app-deploy-key (Surface)"]);
    let binding = world.access.get_mut("RoleBinding").unwrap();
    assert_eq!(binding["subjects"], right);
    binding["metadata"] = held;
    run_round(&mut snapshot, &mut world, time_after(1200));
    assert!(read_ready(&snapshot).1.contains("example.org/hold"));
}
