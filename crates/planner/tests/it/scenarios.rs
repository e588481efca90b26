//! Plays `tests/scenarios/kustomization/*.yaml` against a small cluster and compares what was planned, line by line, with the
//! recorded account beside it. Every plan on the way is checked against the invariants.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_api::condition::{self, Condition};
use tenure_api::{Kustomization, KustomizationStatus, ObjectId};
use tenure_planner::kustomization::{
    ArtifactFacts, Attempt, DependencyFacts, Memory, RenderFailure, Rendered, ServiceAccountFacts, Snapshot,
    SourceFacts, plan,
};
use tenure_planner::object::{Origin, RenderedObject};
use tenure_planner::{FinalizerChange, Next, Step, invariants};
use tenure_tenancy::{Placement, Realm};

use crate::world::{Refusal, World};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Scenario {
    /// What it shows.
    #[expect(dead_code, reason = "for the reader of the file")]
    about: String,
    realm: Realm,
    kustomization: Value,
    /// Rendered objects by revision: origin → object.
    revisions: BTreeMap<String, Build>,
    #[serde(default)]
    unknown_kinds: Vec<String>,
    script: Vec<Act>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Build {
    Objects(Vec<Value>),
    Fails(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Act {
    /// The source has this revision now.
    Source(String),
    /// The source is not there, or has nothing: its Ready message.
    SourceFails(String),
    /// Reconcile until there is nothing to do at once.
    Reconcile,
    /// Time passes, in seconds.
    Pass(i64),
    /// Somebody writes.
    Change {
        id: ObjectId,
        patch: Value,
        manager: String,
    },
    /// Somebody deletes.
    Remove(ObjectId),
    Refuse(Refusal),
    /// No more refusals.
    Allow,
    /// These kinds are not served.
    UnknownKinds(Vec<String>),
    /// A merge patch of the Kustomization's spec.
    Spec(Value),
    /// The annotation `reconcile.fluxcd.io/requestedAt`.
    Request(String),
    /// The Kustomization is deleted.
    Delete,
    /// The process dies: its memory and the attempt are lost.
    Crash,
    /// The ServiceAccount, or that it is gone.
    ServiceAccount(ServiceAccountFacts),
    /// A dependency's state: whether it is ready.
    Dependency {
        name: String,
        ready: bool,
    },
    /// The status gets this inventory by other hands.
    Forge(Vec<String>),
    /// That many writes may have happened since the last of these.
    Writes(u64),
}

struct Player {
    world: World,
    snapshot: Snapshot,
    revisions: BTreeMap<String, Build>,
    now: Timestamp,
    account: String,
    keep_attempt: bool,
    counted_writes: u64,
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the scenarios are files")]
fn every_scenario_goes_as_recorded() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/kustomization");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()?
                .strip_suffix(".yaml")
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(!names.is_empty());
    for name in names {
        let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
        let scenario: Scenario = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let account = play(&name, scenario);
        insta::with_settings!({ snapshot_path => folder.clone(), prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, account);
        });
    }
}

fn play(name: &str, scenario: Scenario) -> String {
    let mut object = scenario.kustomization;
    object["apiVersion"] = json!("kustomize.toolkit.fluxcd.io/v1");
    object["kind"] = json!("Kustomization");
    object["metadata"]["uid"] = json!("ks-uid");
    object["metadata"]["generation"] = json!(1);
    let kustomization: Kustomization = serde_json::from_value(object).unwrap_or_else(|error| panic!("{name}: {error}"));
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let namespace = kustomization.metadata.namespace.clone().unwrap();
    let placement: Placement = scenario.realm.place(&namespace);
    let snapshot = Snapshot {
        placement,
        source: SourceFacts::NotFound,
        dependencies: BTreeMap::new(),
        service_account: ServiceAccountFacts::Usable,
        kinds: BTreeMap::new(),
        live: BTreeMap::new(),
        attempt: Attempt::begin(now, &kustomization),
        memory: Memory::default(),
        kustomization,
    };
    let mut world = World::default();
    world.unknown_kinds = scenario.unknown_kinds;
    let mut player = Player {
        world,
        snapshot,
        revisions: scenario.revisions,
        now,
        account: String::new(),
        keep_attempt: false,
        counted_writes: 0,
    };
    for act in scenario.script {
        player.act(name, act);
    }
    writeln!(player.account, "cluster: {}", player.world.names().join(", ")).unwrap();
    player.account
}

impl Player {
    fn act(&mut self, name: &str, act: Act) {
        match act {
            Act::Source(revision) => {
                writeln!(self.account, "# source has {revision}").unwrap();
                let digest = format!("sha256:{revision}");
                self.snapshot.source = SourceFacts::Found {
                    artifact: Some(ArtifactFacts {
                        revision: format!("main@sha1:{revision}"),
                        digest,
                    }),
                    conditions: Vec::new(),
                };
            }
            Act::SourceFails(message) => {
                writeln!(self.account, "# source fails").unwrap();
                let ready: Condition = serde_json::from_value(json!({
                    "type": "Ready", "status": "False", "reason": "GitOperationFailed", "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }))
                .unwrap();
                self.snapshot.source = SourceFacts::Found {
                    artifact: None,
                    conditions: vec![ready],
                };
            }
            Act::Reconcile => self.reconcile(name),
            Act::Pass(seconds) => {
                writeln!(self.account, "# {seconds}s pass").unwrap();
                self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
            }
            Act::Change { id, patch, manager } => {
                writeln!(self.account, "# {manager} changes {}: {patch}", id.subject()).unwrap();
                self.world.change(&id, &patch, &manager, self.now);
                self.watch();
            }
            Act::Remove(id) => {
                writeln!(self.account, "# somebody deletes {}", id.subject()).unwrap();
                self.world.remove(&id);
                self.watch();
            }
            Act::Refuse(refusal) => self.world.refusals.push(refusal),
            Act::Allow => self.world.refusals.clear(),
            Act::UnknownKinds(kinds) => self.world.unknown_kinds = kinds,
            Act::Spec(patch) => {
                writeln!(self.account, "# spec changes: {patch}").unwrap();
                let mut object = serde_json::to_value(&self.snapshot.kustomization).unwrap();
                for (key, value) in patch.as_object().unwrap() {
                    object["spec"][key] = value.clone();
                }
                self.snapshot.kustomization = serde_json::from_value(object).unwrap();
                *self.snapshot.kustomization.metadata.generation.as_mut().unwrap() += 1;
            }
            Act::Request(token) => {
                let annotations = self.snapshot.kustomization.metadata.annotations.get_or_insert_default();
                annotations.insert("reconcile.fluxcd.io/requestedAt".to_owned(), token);
            }
            Act::Delete => {
                writeln!(self.account, "# the Kustomization is deleted").unwrap();
                self.snapshot.kustomization.metadata.deletion_timestamp = Some(tenure_api::Time(self.now));
            }
            Act::Crash => {
                writeln!(self.account, "# the process dies").unwrap();
                self.snapshot.memory = Memory::default();
                self.snapshot.live.clear();
                self.keep_attempt = false;
            }
            Act::ServiceAccount(facts) => self.snapshot.service_account = facts,
            Act::Dependency { name, ready } => {
                let status = if ready { "True" } else { "False" };
                let conditions: Vec<Condition> = serde_json::from_value(json!([{
                    "type": "Ready", "status": status, "reason": "x", "message": "x", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }]))
                .unwrap();
                let facts = DependencyFacts::Found {
                    generation: Some(1),
                    observed_generation: Some(1),
                    conditions,
                    source: ("GitRepository".to_owned(), "elsewhere".to_owned()),
                    last_applied_revision: None,
                };
                self.snapshot.dependencies.insert(name, facts);
            }
            Act::Forge(ids) => {
                let entries: Vec<Value> = ids.iter().map(|id| json!({ "id": id, "v": "v1" })).collect();
                let mut status =
                    serde_json::to_value(self.snapshot.kustomization.status.clone().unwrap_or_default()).unwrap();
                status["inventory"] = json!({ "entries": entries });
                self.snapshot.kustomization.status = Some(serde_json::from_value(status).unwrap());
            }
            Act::Writes(expected) => {
                let written = self.world.writes - self.counted_writes;
                assert_eq!(written, expected, "{name}: writes to the cluster\n{}", self.account);
                self.counted_writes = self.world.writes;
            }
        }
    }

    /// What is watched is as it is in the cluster.
    fn watch(&mut self) {
        let ids: Vec<ObjectId> = self.snapshot.live.keys().cloned().collect();
        for id in ids {
            let live = self.world.read(&id);
            self.snapshot.live.insert(id, live);
        }
    }

    fn reconcile(&mut self, name: &str) {
        if !self.keep_attempt {
            self.begin();
        }
        for _ in 0..40 {
            let plan = plan(&self.snapshot, self.now);
            let violations = invariants::of_kustomization(&self.snapshot, &plan);
            assert!(
                violations.is_empty(),
                "{name}: {violations:#?}\n{}\n{plan}",
                self.account
            );
            let printed = plan.to_string();
            assert!(!printed.contains("hunter2"), "{name}: a Secret's value is printed");
            assert!(
                !serde_json::to_string(&plan).unwrap().contains("hunter2"),
                "{name}: a Secret's value is serialised"
            );
            self.account.push_str(&printed);
            if let Some(FinalizerChange::Add(finalizer)) = &plan.finalizer {
                self.snapshot.kustomization.metadata.finalizers = Some(vec![finalizer.clone()]);
            }
            for step in &plan.steps {
                self.execute(step);
            }
            if let Some(status) = &plan.status {
                let status: KustomizationStatus = serde_json::from_value(status.clone()).unwrap();
                self.check_conditions(name, &status);
                self.account_status(&status);
                self.snapshot.kustomization.status = Some(status);
            }
            self.snapshot.memory = plan.memory.clone();
            match plan.next {
                Next::Again => {}
                Next::Restart => self.begin(),
                Next::Wait(_) => {
                    self.keep_attempt = true;
                    return;
                }
                Next::Done(_) | Next::Forget => {
                    self.keep_attempt = false;
                    // What is no longer watched is no longer known.
                    self.snapshot
                        .live
                        .retain(|id, _| plan.watch.iter().any(|watched| watched.id == *id));
                    return;
                }
            }
        }
        panic!("{name}: it never ends\n{}", self.account);
    }

    fn begin(&mut self) {
        self.snapshot.attempt = Attempt::begin(self.now, &self.snapshot.kustomization);
        self.snapshot.kinds.clear();
    }

    fn check_conditions(&self, name: &str, status: &KustomizationStatus) {
        let stalled = condition::is_true(&status.conditions, condition::STALLED);
        let reconciling = condition::is_true(&status.conditions, condition::RECONCILING);
        let ready = condition::is_true(&status.conditions, condition::READY);
        assert!(!(stalled && reconciling), "{name}: stalled and reconciling at once");
        assert!(
            !(ready && (stalled || reconciling)),
            "{name}: ready and not ready at once"
        );
        assert!(status.history.len() <= 5);
    }

    fn account_status(&mut self, status: &KustomizationStatus) {
        let inventory: Vec<&str> = status
            .inventory
            .iter()
            .flat_map(|inventory| &inventory.entries)
            .map(|entry| entry.id.as_str())
            .collect();
        writeln!(
            self.account,
            "  status: applied {}, attempted {}, observed {}, inventory [{}]",
            status.last_applied_revision.as_deref().unwrap_or("-"),
            status.last_attempted_revision.as_deref().unwrap_or("-"),
            status
                .observed_generation
                .map_or("-".to_owned(), |generation| generation.to_string()),
            inventory.join(", ")
        )
        .unwrap();
    }

    fn execute(&mut self, step: &Step) {
        match step {
            Step::ResolveKinds(kinds) => {
                for kind in kinds {
                    let answer = self.world.kind(kind);
                    self.snapshot.kinds.insert(kind.clone(), answer);
                }
            }
            Step::Render(request) => {
                let revision = request.revision.strip_prefix("main@sha1:").unwrap();
                let outcome = match self.revisions.get(revision).unwrap() {
                    Build::Fails(message) => Err(RenderFailure {
                        message: message.clone(),
                        artifact_missing: false,
                    }),
                    Build::Objects(objects) => Ok(objects
                        .iter()
                        .enumerate()
                        .map(|(index, object)| rendered(object, index, request.overlay.target_namespace.as_deref()))
                        .collect()),
                };
                self.snapshot.attempt.rendered = Some(Rendered {
                    artifact_digest: request.artifact_digest.clone(),
                    path: request.path.clone(),
                    overlay: request.overlay.clone(),
                    outcome,
                });
            }
            Step::Read(target) => {
                let live = self.world.read(&target.id);
                self.snapshot.live.insert(target.id.clone(), live);
            }
            Step::DryRun(apply) => {
                let answer = self.world.dry_run(apply);
                self.snapshot.attempt.dry_runs.insert(apply.id.clone(), answer);
            }
            Step::Apply(apply) => {
                let answer = self.world.apply(apply, self.now);
                self.snapshot.attempt.applied.insert(apply.id.clone(), answer);
                self.watch();
            }
            Step::TakeOver(take_over) => {
                let answer = self.world.take_over(&take_over.target.id, &take_over.from, self.now);
                self.snapshot
                    .attempt
                    .taken_over
                    .insert(take_over.target.id.clone(), answer);
                self.watch();
            }
            Step::Delete(delete) => {
                let answer = self.world.delete(&delete.target.id, delete.uid.as_deref());
                self.snapshot.attempt.deleted.insert(delete.target.id.clone(), answer);
                self.watch();
            }
            Step::Fetch(_) => panic!("a Kustomization fetches nothing"),
        }
    }
}

fn rendered(object: &Value, index: usize, target_namespace: Option<&str>) -> RenderedObject {
    let mut object = object.clone();
    let cluster =
        ["Namespace", "ClusterRole", "CustomResourceDefinition"].contains(&object["kind"].as_str().unwrap_or_default());
    if let Some(namespace) = target_namespace.filter(|_| !cluster) {
        object["metadata"]["namespace"] = json!(namespace);
    }
    RenderedObject {
        object: tenure_planner::Object(object),
        origin: Origin {
            path: "app.yaml".to_owned(),
            line: u32::try_from(index * 10 + 1).unwrap(),
        },
    }
}
