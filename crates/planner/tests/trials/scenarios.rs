//! Plays `tests/scenarios/kustomization/*.yaml` against a small cluster and compares the plans, line by line, with the recorded account beside it. Every plan on the
//! way is checked against the invariants.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_api::{Kustomization, KustomizationStatus, ObjectId, condition};
use tenure_planner::kustomization::{
    Attempt, Memory, OngoingDeletions, ServiceAccountFacts, Snapshot, SourceFacts, Step, Survey, TokenAnswer, plan,
};
use tenure_planner::target::Target;
use tenure_planner::{FinalizerChange, Live, Next, Request, invariants};
use tenure_remote_requests::artifact::ArtifactFacts;
use tenure_tenancy::Placement;

use crate::builds::Build;
use crate::checks;
use crate::facts;
use crate::script::{Act, Scenario};
use crate::world::World;

pub(crate) struct Player {
    /// The cluster that the last plan was about.
    pub(crate) world: World,
    /// The name of the other cluster; nothing for this one.
    pub(crate) cluster: Option<String>,
    /// The others that were met.
    pub(crate) elsewhere: BTreeMap<Option<String>, World>,
    /// Objects of this one while another is applied to.
    pub(crate) here: BTreeMap<ObjectId, Value>,
    pub(crate) snapshot: Snapshot,
    pub(crate) revisions: BTreeMap<String, Build>,
    pub(crate) now: Timestamp,
    pub(crate) account: String,
    pub(crate) keep_attempt: bool,
    pub(crate) counted_writes: u64,
    pub(crate) status_fails: u32,
    pub(crate) requests: u64,
    pub(crate) events: u64,
    pub(crate) request_takes: SignedDuration,
    pub(crate) watched: Vec<ObjectId>,
    pub(crate) begun: bool,
    pub(crate) siblings: Survey,
    /// The answer to a request for a token.
    pub(crate) token: TokenAnswer,
}

/// The folder of the scenarios.
fn find_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/kustomization")
}

/// The names of all scenarios.
pub(crate) fn list_names() -> Vec<String> {
    let entries = std::fs::read_dir(find_folder()).unwrap();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.unwrap().file_name();
            name.to_str()?.strip_suffix(".yaml").map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

/// Plays one scenario; panics if it differs from the record.
pub(crate) fn check(name: &str) {
    let folder = find_folder();
    let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
    // By way of a JSON value: compiling the YAML reader for all types of a scenario takes most of a minute.
    let value: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let scenario: Scenario = serde_json::from_value(value).unwrap_or_else(|error| panic!("{name}: {error}"));
    let account = play_scenario(name, scenario);
    insta::with_settings!({ snapshot_path => folder, prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, account);
    });
}

fn play_scenario(name: &str, scenario: Scenario) -> String {
    let mut object = scenario.kustomization;
    object["apiVersion"] = json!("kustomize.toolkit.fluxcd.io/v1");
    object["kind"] = json!("Kustomization");
    object["metadata"]["uid"] = json!("ks-uid");
    object["metadata"]["generation"] = json!(1);
    let kustomization: Kustomization = serde_json::from_value(object).unwrap_or_else(|error| panic!("{name}: {error}"));
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let namespace = kustomization.metadata.namespace.clone().unwrap();
    let placement: Placement = scenario.tenancy.find_placement(&namespace);
    let snapshot = Snapshot {
        placement,
        source: SourceFacts::NotFound,
        grants: Vec::new(),
        dependencies: BTreeMap::new(),
        cycle: None,
        service_account: ServiceAccountFacts::Usable,
        endings: OngoingDeletions::default(),
        owners: BTreeMap::new(),
        rivals: BTreeMap::new(),
        survey: None,
        kinds: BTreeMap::new(),
        live: BTreeMap::new(),
        here: BTreeMap::new(),
        guards: scenario.guards,
        settings: scenario.settings,
        least_interval: Duration::from_secs(scenario.least_interval),
        strict_sops: false,
        attempt: Attempt::new(now, &kustomization),
        memory: Memory::default(),
        kustomization,
    };
    let mut world = World::default();
    world.unknown_kinds = scenario.unknown_kinds;
    let mut player = Player {
        world,
        cluster: None,
        elsewhere: BTreeMap::new(),
        here: BTreeMap::new(),
        snapshot,
        revisions: scenario.revisions,
        now,
        account: String::new(),
        keep_attempt: false,
        counted_writes: 0,
        status_fails: 0,
        requests: 0,
        events: 0,
        request_takes: SignedDuration::ZERO,
        watched: Vec::new(),
        begun: false,
        siblings: Survey::default(),
        token: TokenAnswer::Usable,
    };
    for act in scenario.script {
        player.perform_act(name, act);
    }
    player.elsewhere.insert(player.cluster.take(), player.world);
    for (cluster, world) in &player.elsewhere {
        let named = cluster
            .as_deref()
            .map_or(String::new(), |cluster| format!(" {}", &cluster[..15]));
        writeln!(player.account, "cluster{named}: {}", world.list_names().join(", ")).unwrap();
    }
    player.account
}

impl Player {
    fn perform_act(&mut self, name: &str, act: Act) {
        match act {
            Act::Source(revision) => {
                writeln!(self.account, "# source has {revision}").unwrap();
                let digest = format!("sha256:{revision}");
                self.snapshot.source = SourceFacts::Found {
                    artifact: Some(ArtifactFacts {
                        revision: format!("main@sha1:{revision}"),
                        digest,
                        origin_revision: None,
                    }),
                    conditions: Vec::new(),
                };
            }
            Act::SourceFails(message) => {
                writeln!(self.account, "# source fails").unwrap();
                self.snapshot.source = facts::describe_failed_source(&message);
            }
            Act::Reconcile => self.reconcile(name),
            Act::Rounds(rounds) => {
                if !self.work_rounds(name, rounds) {
                    writeln!(self.account, "# meanwhile").unwrap();
                    self.keep_attempt = true;
                }
            }
            Act::Pass(seconds) => {
                writeln!(self.account, "# {seconds}s pass").unwrap();
                self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
            }
            Act::Change {
                id,
                patch,
                manager,
                applies,
                unseen,
            } => {
                writeln!(self.account, "# {manager} changes {}: {patch}", id.subject()).unwrap();
                let operation = if applies { "Apply" } else { "Update" };
                self.world.change_by(&id, &patch, (&manager, operation), self.now);
                if !unseen {
                    self.watch_objects();
                }
            }
            Act::Shows { id, path } => {
                let live = self.world.read(&id);
                let found = live.object().and_then(|object| object.pointer(&path));
                let found = found.map_or("nothing".to_owned(), Value::to_string);
                writeln!(self.account, "# {} has at {path}: {found}", id.subject()).unwrap();
            }
            Act::Remove(id) => {
                writeln!(self.account, "# somebody deletes {}", id.subject()).unwrap();
                self.world.remove(&id);
                self.watch_objects();
            }
            Act::Refuse(refusal) => self.world.refusals.push(refusal),
            Act::Allow => self.world.refusals.clear(),
            Act::UnknownKinds(kinds) => self.world.undefine_kinds(kinds),
            Act::StrictSops => self.snapshot.strict_sops = true,
            Act::Spec(patch) => {
                writeln!(self.account, "# spec changes: {patch}").unwrap();
                let mut object = serde_json::to_value(&self.snapshot.kustomization).unwrap();
                for (key, value) in patch.as_object().unwrap() {
                    object["spec"][key] = value.clone();
                }
                self.snapshot.kustomization = serde_json::from_value(object).unwrap();
                *self.snapshot.kustomization.metadata.generation.as_mut().unwrap() += 1;
            }
            Act::Here(mut object) => {
                let id = ObjectId::from_object(&object).unwrap();
                writeln!(self.account, "# {} is here", id.subject()).unwrap();
                let is_secret = object["kind"] == "Secret";
                for (_, value) in object["data"]
                    .as_object_mut()
                    .filter(|_| is_secret)
                    .into_iter()
                    .flatten()
                {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    *value = json!(base64::engine::general_purpose::STANDARD.encode(text));
                }
                self.here.insert(id.clone(), object);
                self.watch_here();
            }
            Act::Token(answer) => {
                writeln!(self.account, "# the token: {answer:?}").unwrap();
                self.token = answer;
            }
            Act::GoneHere(id) => {
                writeln!(self.account, "# {} is gone", id.subject()).unwrap();
                self.here.remove(&id);
                self.watch_here();
            }
            Act::Annotate { key, value } => {
                let status = self.snapshot.kustomization.status.clone().unwrap_or_default();
                let ready = condition::find(&status.conditions, condition::READY).unwrap();
                let cluster = ready.message.split('"').find_map(|part| part.strip_prefix("same "));
                let value = value.replace("CLUSTER", cluster.unwrap_or_default());
                writeln!(self.account, "# annotated {key}: {value}").unwrap();
                let annotations = self.snapshot.kustomization.metadata.annotations.get_or_insert_default();
                annotations.insert(key, value);
            }
            Act::Request(token) => {
                let annotations = self.snapshot.kustomization.metadata.annotations.get_or_insert_default();
                annotations.insert("reconcile.fluxcd.io/requestedAt".to_owned(), token);
            }
            Act::AllowDeletion => {
                let status = self.snapshot.kustomization.status.clone().unwrap_or_default();
                let ready = condition::find(&status.conditions, condition::READY).unwrap();
                let (_, digest) = ready.message.rsplit_once("tenure.dev/allow-deletion=").unwrap();
                writeln!(self.account, "# the deletion is allowed").unwrap();
                let annotations = self.snapshot.kustomization.metadata.annotations.get_or_insert_default();
                annotations.insert("tenure.dev/allow-deletion".to_owned(), digest.to_owned());
            }
            Act::ApplyMode(mode) => {
                writeln!(self.account, "# tenure.dev/apply is {mode:?}").unwrap();
                let annotations = self.snapshot.kustomization.metadata.annotations.get_or_insert_default();
                annotations.insert("tenure.dev/apply".to_owned(), mode);
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
            Act::ServiceAccount(facts) => {
                writeln!(self.account, "# the ServiceAccount: {facts:?}").unwrap();
                self.snapshot.service_account = facts;
            }
            Act::Owner { id, rival } => {
                let key = format!("{}/{}", rival.namespace, rival.name);
                writeln!(self.account, "# {} is owned by {key}", id.subject()).unwrap();
                let labels = json!({
                    "kustomize.toolkit.fluxcd.io/name": rival.name, "kustomize.toolkit.fluxcd.io/namespace": rival.namespace,
                });
                let patch = json!({ "metadata": { "labels": labels } });
                self.world.change(&id, &patch, "kustomize-controller", self.now);
                self.watch_objects();
                self.snapshot.owners.insert(id, key.clone());
                self.snapshot.rivals.insert(key, *rival);
            }
            Act::Siblings(survey) => {
                writeln!(
                    self.account,
                    "# siblings: {:?}, {:?}, {:?}",
                    survey.wanted, survey.behind, survey.behind_us
                )
                .unwrap();
                if let Some(known) = &mut self.snapshot.survey {
                    let asked = std::mem::take(&mut known.asked);
                    *known = Survey {
                        asked,
                        ..survey.clone()
                    };
                }
                self.siblings = survey;
            }
            Act::StatusFails(times) => self.status_fails = times,
            Act::Tenancy(tenancy) => {
                writeln!(self.account, "# Tenants and namespaces change").unwrap();
                let namespace = self.snapshot.kustomization.metadata.namespace.clone().unwrap();
                self.snapshot.placement = tenancy.find_placement(&namespace);
            }
            Act::Endings(endings) => {
                writeln!(self.account, "# {endings:?}").unwrap();
                self.snapshot.endings = endings;
            }
            Act::Cycle(names) => {
                writeln!(self.account, "# {} depend on each other", names.join(", ")).unwrap();
                self.snapshot.cycle = Some(names);
            }
            Act::Dependency { name, ready, whole } => {
                let whole = whole.map(|whole| {
                    writeln!(self.account, "# {name} is {whole}").unwrap();
                    self.now = self.now.checked_add(SignedDuration::from_secs(1)).unwrap();
                    let mut object = whole;
                    object["apiVersion"] = json!("kustomize.toolkit.fluxcd.io/v1");
                    object["kind"] = json!("Kustomization");
                    object["metadata"]["resourceVersion"] = json!(self.now.as_second().to_string());
                    serde_json::from_value(object).unwrap()
                });
                let facts = facts::describe_dependency(ready, whole);
                self.snapshot.dependencies.insert(name, facts);
            }
            Act::Forge(ids) => {
                let entries: Vec<Value> = ids.iter().map(|id| json!({ "id": id, "v": "v1" })).collect();
                let mut status =
                    serde_json::to_value(self.snapshot.kustomization.status.clone().unwrap_or_default()).unwrap();
                status["inventory"] = json!({ "entries": entries });
                self.snapshot.kustomization.status = Some(serde_json::from_value(status).unwrap());
            }
            Act::Adopted(expected) => {
                let status = self.snapshot.kustomization.status.clone().unwrap_or_default();
                let entries = status.inventory.unwrap_or_default().entries.into_iter();
                let mut adopted: Vec<String> = entries.filter(|entry| entry.adopted).map(|entry| entry.id).collect();
                adopted.sort();
                assert_eq!(adopted, expected, "{name}: adopted\n{}", self.account);
            }
            Act::Writes(expected) => {
                let written = self.world.writes - self.counted_writes;
                assert_eq!(written, expected, "{name}: writes to the cluster\n{}", self.account);
                self.counted_writes = self.world.writes;
            }
            Act::Wakes(times) => {
                writeln!(self.account, "# woken {times} times").unwrap();
                let reported = self.account.len();
                for _ in 0..times {
                    self.now = self.now.checked_add(SignedDuration::from_millis(1)).unwrap();
                    self.reconcile(name);
                    self.account.truncate(reported);
                }
            }
            Act::Requests(expected) => {
                let made = std::mem::take(&mut self.requests);
                assert_eq!(made, expected, "{name}: requests\n{}", self.account);
            }
            Act::Slow(seconds) => self.request_takes = SignedDuration::from_secs(seconds),
            Act::Watches(expected) => {
                assert_eq!(self.watched, expected, "{name}: watches\n{}", self.account);
            }
            Act::Events(expected) => {
                let emitted = std::mem::take(&mut self.events);
                assert_eq!(emitted, expected, "{name}: events\n{}", self.account);
            }
        }
    }

    /// Updates the known objects of this cluster to their live state.
    fn watch_here(&mut self) {
        let ids: Vec<ObjectId> = self.snapshot.here.keys().cloned().collect();
        for id in ids {
            let live = self.read_here(&id);
            self.snapshot.here.insert(id, live);
        }
    }

    pub(crate) fn read_here(&self, id: &ObjectId) -> Live {
        let found = self.here.get(id).cloned();
        found.map_or(Live::Absent, |object| Live::Present(tenure_planner::Object(object)))
    }

    /// Changes the cluster, as the shell does: facts of one cluster say nothing about another.
    fn go_to(&mut self, cluster: Option<String>) -> bool {
        if self.cluster == cluster {
            return true;
        }
        let world = self.elsewhere.remove(&cluster).unwrap_or_default();
        let before = std::mem::replace(&mut self.world, world);
        self.elsewhere.insert(self.cluster.take(), before);
        self.cluster = cluster;
        let is_first = self.snapshot.live.is_empty();
        self.snapshot.live.clear();
        is_first
    }

    /// Updates the watched objects to their live state in the cluster.
    pub(crate) fn watch_objects(&mut self) {
        let ids: Vec<ObjectId> = self.snapshot.live.keys().cloned().collect();
        for id in ids {
            let live = self.world.read(&id);
            self.snapshot.live.insert(id, live);
        }
    }

    fn reconcile(&mut self, name: &str) {
        assert!(self.work_rounds(name, 40), "{name}: it never ends\n{}", self.account);
    }

    /// Makes and executes plans, at most this many. Returns whether no immediate step is left.
    fn work_rounds(&mut self, name: &str, rounds: u32) -> bool {
        if !self.keep_attempt {
            self.begin_attempt();
        }
        for _ in 0..rounds {
            let plan = plan(&self.snapshot, self.now);
            let violations = invariants::check_kustomization_plan(&self.snapshot, &plan);
            assert!(
                violations.is_empty(),
                "{name}: {violations:#?}\n{}\n{plan}",
                self.account
            );
            let printed = plan.to_string();
            let texts = [
                printed.clone(),
                format!("{plan:?}"),
                serde_json::to_string(&plan).unwrap(),
            ];
            for value in ["hunter2", "aHVudGVyMg"] {
                let is_shown = texts.iter().any(|text| text.contains(value));
                assert!(!is_shown, "{name}: a Secret's value is printed or serialised");
            }
            self.account.push_str(&printed);
            let goes = plan.target.is_some() || self.snapshot.kustomization.spec.kube_config.is_none();
            if plan.identity.is_some() && goes && !self.go_to(plan.target.as_deref().map(Target::cluster)) {
                self.begin_attempt();
                continue;
            }
            if let Some(FinalizerChange::Add(finalizer)) = &plan.finalizer {
                self.snapshot.kustomization.metadata.finalizers = Some(vec![finalizer.clone()]);
            }
            // As in the shell, a status that is a condition is stored first, and a plan whose status can't be stored is made again.
            if plan.status_first && !self.store_status(name, &plan) {
                continue;
            }
            self.events += u64::try_from(plan.events.len()).unwrap();
            self.watched = plan.watch.iter().map(|watched| watched.id.clone()).collect();
            for step in &plan.steps {
                if !matches!(step, Step::Render(_) | Step::Ask(Request::ResolveKinds(_))) {
                    // A step that has not begun in time has no answer.
                    if plan.deadline.is_some_and(|deadline| self.now >= deadline) {
                        break;
                    }
                    self.requests += 1;
                    self.now = self.now.checked_add(self.request_takes).unwrap();
                }
                self.execute_step(step);
            }
            if !plan.status_first && !self.store_status(name, &plan) {
                continue;
            }
            self.snapshot.memory = plan.memory.clone();
            match plan.next {
                Next::Again => {}
                Next::Restart => self.begin_attempt(),
                Next::Wait(_) => {
                    self.keep_attempt = true;
                    return true;
                }
                Next::Done(_) | Next::Forget => {
                    checks::check_recreated(name, &plan.memory, &self.snapshot.attempt, &mut self.world);
                    self.keep_attempt = false;
                    // Objects that are not watched any more, or could not be watched, are not known any more.
                    self.snapshot.live.retain(|id, live| {
                        !matches!(live, Live::Failed(_)) && plan.watch.iter().any(|watched| watched.id == *id)
                    });
                    return true;
                }
            }
        }
        false
    }

    /// Checks whether the plan's status, if it has one, was stored.
    fn store_status(&mut self, name: &str, plan: &tenure_planner::kustomization::Plan) -> bool {
        let Some(status) = &plan.status else { return true };
        if self.status_fails > 0 {
            self.status_fails -= 1;
            writeln!(self.account, "# the status can't be written").unwrap();
            return false;
        }
        let status = status.clone();
        checks::check_status(name, &self.snapshot.kustomization, &status);
        self.account_status(&status);
        self.snapshot.kustomization.status = Some(status);
        true
    }

    fn begin_attempt(&mut self) {
        // No two attempts begin at the same time.
        let at_once = self.snapshot.attempt.started >= self.now && self.begun;
        let now = self.snapshot.attempt.started.max(self.now);
        let now = now + SignedDuration::from_nanos(i64::from(at_once));
        self.begun = true;
        let (account, kustomization) = (
            self.snapshot.service_account.clone(),
            self.snapshot.kustomization.clone(),
        );
        self.snapshot.restart(now, &kustomization);
        self.snapshot.service_account = account;
        self.snapshot.survey = None;
    }

    fn account_status(&mut self, status: &KustomizationStatus) {
        let inventory: Vec<&str> = status
            .inventory
            .iter()
            .flat_map(|inventory| &inventory.entries)
            .map(|entry| entry.id.as_str())
            .collect();
        let allowed: Vec<&str> = status
            .allowed_deletions
            .iter()
            .map(|allowed| allowed.id.as_str())
            .collect();
        let allowed = match allowed.is_empty() {
            true => String::new(),
            false => format!(", allowed to go [{}]", allowed.join(", ")),
        };
        writeln!(
            self.account,
            "  status: applied {}, attempted {}, observed {}, inventory [{}]{allowed}",
            status.last_applied_revision.as_deref().unwrap_or("-"),
            status.last_attempted_revision.as_deref().unwrap_or("-"),
            status
                .observed_generation
                .map_or("-".to_owned(), |generation| generation.to_string()),
            inventory.join(", ")
        )
        .unwrap();
    }
}
