//! A small cluster on which several Kustomizations of one source are planned in turn, and the record of the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_api::{Kustomization, ObjectId, condition};
use tenure_planner::answer::{Answer, Live};
use tenure_planner::kustomization::{
    Attempt, DependencyFacts, Guards, Memory, ObjectTurnover, OngoingDeletions, OtherOwner, Rendered,
    ServiceAccountFacts, Sibling, Snapshot, SourceFacts, Step, SurveyRequest, find_applied_revision, is_idle, plan,
    survey_siblings,
};
use tenure_planner::object::RenderedObject;
use tenure_planner::{FinalizerChange, Next, Origin, Request, invariants};
use tenure_remote_requests::artifact::ArtifactFacts;
use tenure_tenancy::{NamespaceFacts, Placement, TenancyFacts, owner};

use crate::world::World;

pub(super) struct Party {
    pub(super) snapshot: Snapshot,
    pub(super) survey: Option<SurveyRequest>,
    pub(super) turnover: Option<Arc<ObjectTurnover>>,
    /// Whether its last plan was the end of an attempt.
    pub(super) done: bool,
    /// The objects that the party has read itself, and those that it has applied.
    pub(super) read: BTreeSet<ObjectId>,
    applied: BTreeSet<ObjectId>,
}

/// The objects in the folder of each party, by revision and name.
pub(super) type Builds = BTreeMap<&'static str, BTreeMap<&'static str, Vec<&'static str>>>;

pub(super) struct Play {
    pub(super) world: World,
    pub(super) parties: BTreeMap<&'static str, Party>,
    pub(super) builds: Builds,
    pub(super) depends_on: BTreeMap<&'static str, &'static str>,
    pub(super) now: Timestamp,
    /// Existing objects that no watch has reported.
    pub(super) unreported: BTreeSet<ObjectId>,
    pub(super) account: String,
}

pub(super) fn make_id(name: &str) -> ObjectId {
    format!("team_{name}__ConfigMap").parse().unwrap()
}

impl Play {
    pub(super) fn new(builds: Builds, depends_on: &[(&'static str, &'static str)]) -> Self {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let names: BTreeSet<&'static str> = builds.values().flat_map(|all| all.keys().copied()).collect();
        let tenancy = TenancyFacts {
            namespaces: vec![NamespaceFacts {
                name: "team".to_owned(),
                ..NamespaceFacts::default()
            }],
            ..TenancyFacts::default()
        };
        let placement: Placement = tenancy.find_placement("team");
        let depends_on: BTreeMap<_, _> = depends_on.iter().copied().collect();
        let parties = names.into_iter().map(|name| {
            let depends: Vec<Value> = depends_on
                .get(name)
                .map(|on| json!({ "name": on }))
                .into_iter()
                .collect();
            let kustomization: Kustomization = serde_json::from_value(json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": { "name": name, "namespace": "team", "uid": format!("uid-{name}"), "generation": 1 },
                "spec": {
                    "interval": "10m", "prune": true, "path": format!("./{name}"), "dependsOn": depends,
                    "sourceRef": { "kind": "GitRepository", "name": "repo" }
                }
            }))
            .unwrap();
            let snapshot = Snapshot {
                placement: placement.clone(),
                source: SourceFacts::NotFound,
                grants: Vec::new(),
                dependencies: BTreeMap::new(),
                cycle: None,
                service_account: ServiceAccountFacts::Usable,
                endings: OngoingDeletions::default(),
                kinds: BTreeMap::new(),
                live: BTreeMap::new(),
                here: BTreeMap::new(),
                owners: BTreeMap::new(),
                rivals: BTreeMap::new(),
                survey: None,
                // Builds become empty here, and that is asked about otherwise.
                guards: Guards {
                    prune_percent: 100,
                    ..Guards::default()
                },
                settings: Default::default(),
                least_interval: Default::default(),
                strict_sops: false,
                attempt: Attempt::new(now, &kustomization),
                memory: Memory::default(),
                kustomization,
            };
            let party = Party {
                snapshot,
                survey: None,
                turnover: None,
                done: false,
                read: BTreeSet::new(),
                applied: BTreeSet::new(),
            };
            (name, party)
        });
        Self {
            world: World::default(),
            parties: parties.collect(),
            builds,
            depends_on,
            now,
            unreported: BTreeSet::new(),
            account: String::new(),
        }
    }

    pub(super) fn set_source(&mut self, revision: &str) {
        for party in self.parties.values_mut() {
            party.snapshot.source = SourceFacts::Found {
                artifact: Some(ArtifactFacts {
                    revision: revision.to_owned(),
                    digest: format!("sha256:{revision}"),
                    origin_revision: None,
                }),
                conditions: Vec::new(),
            };
        }
    }

    pub(super) fn waits_for(&self, from: &str, to: &str) -> bool {
        self.depends_on
            .get(from)
            .is_some_and(|on| *on == to || self.waits_for(on, to))
    }

    pub(super) fn names_object(&self, name: &str, id: &ObjectId) -> bool {
        let status = self.parties[name].snapshot.kustomization.status.as_ref();
        let inventory = status.and_then(|status| status.inventory.as_ref());
        inventory.is_some_and(|inventory| inventory.entries.iter().any(|entry| entry.id == id.to_string()))
    }

    /// Updates the known facts, as the shell does.
    pub(super) fn observe(&mut self, name: &'static str) {
        let mut live = self.parties[name].snapshot.live.clone();
        for (id, found) in &mut live {
            *found = self.world.read(id);
        }
        let party = &self.parties[name];
        let is_known = |id: &&ObjectId| party.read.contains(*id) || party.applied.contains(*id);
        let unreported = self.unreported.iter().filter(|id| !is_known(id));
        live.extend(unreported.map(|id| (id.clone(), Live::Absent)));
        let (mut owners, mut rivals) = (BTreeMap::new(), BTreeMap::new());
        for (id, found) in &live {
            let Some((_, other)) = found.object().and_then(owner::read_owner_labels) else {
                continue;
            };
            let Some((other, party)) = self.parties.get_key_value(other).filter(|(other, _)| **other != name) else {
                continue;
            };
            if !self.names_object(other, id) {
                continue;
            }
            let kustomization = &party.snapshot.kustomization;
            owners.insert(id.clone(), (*other).to_owned());
            rivals.insert(
                (*other).to_owned(),
                OtherOwner {
                    namespace: "team".to_owned(),
                    name: (*other).to_owned(),
                    uid: String::new(),
                    placement: party.snapshot.placement.clone(),
                    source: ("GitRepository".to_owned(), "repo".to_owned()),
                    idle: is_idle(kustomization),
                    leaving: kustomization.metadata.deletion_timestamp.is_some(),
                    waits_for_us: self.waits_for(other, name),
                    applied: find_applied_revision(kustomization).map(str::to_owned),
                    turnover: party.turnover.as_deref().cloned(),
                },
            );
        }
        let survey = self.parties[name]
            .survey
            .as_ref()
            .map(|request| self.survey(name, request));
        let on = self.depends_on.get(name);
        let dependencies = on.map(|on| {
            (
                (*on).to_owned(),
                DependencyFacts::from(&self.parties[on].snapshot.kustomization),
            )
        });
        let snapshot = &mut self.parties.get_mut(name).unwrap().snapshot;
        snapshot.dependencies = dependencies.into_iter().collect();
        (snapshot.live, snapshot.owners, snapshot.rivals, snapshot.survey) = (live, owners, rivals, survey);
    }

    pub(super) fn survey(&self, name: &str, request: &SurveyRequest) -> tenure_planner::kustomization::Survey {
        let others = || self.parties.iter().filter(|(other, _)| **other != name);
        let claims = request.ids.iter().map(|id| {
            let by = others().filter(|(other, party)| {
                let gains = party
                    .turnover
                    .as_ref()
                    .is_some_and(|turnover| turnover.gains.contains(id));
                gains || self.names_object(other, id)
            });
            (id.clone(), by.map(|(other, _)| (*other).to_owned()).collect())
        });
        let siblings = others().map(|(other, party)| Sibling {
            kustomization: &party.snapshot.kustomization,
            turnover: party.turnover.as_deref(),
            waits_for_us: self.waits_for(other, name),
        });
        survey_siblings(&request.revision, &claims.collect(), siblings)
    }

    pub(super) fn begin_attempt(&mut self, name: &str) {
        let party = self.parties.get_mut(name).unwrap();
        // No two attempts begin at the same time.
        self.now += SignedDuration::from_nanos(1);
        party.snapshot.attempt = Attempt::new(self.now, &party.snapshot.kustomization);
        party.snapshot.kinds.clear();
        party.survey = None;
        party.done = false;
    }

    /// Makes one plan for one party, and executes it.
    pub(super) fn take_turn(&mut self, name: &'static str) {
        // The time is far less than a timeout, over all turns: only failures wait that long.
        self.now += SignedDuration::from_secs(1);
        if self.parties[name].done {
            self.begin_attempt(name);
        }
        self.observe(name);
        let plan = plan(&self.parties[name].snapshot, self.now);
        self.account.push_str(&plan.to_string());
        let violations = invariants::check_kustomization_plan(&self.parties[name].snapshot, &plan);
        assert!(violations.is_empty(), "{violations:#?}\n{}", self.account);
        if matches!(plan.finalizer, Some(FinalizerChange::Remove(_))) {
            self.parties.remove(name);
            return;
        }
        let party = self.parties.get_mut(name).unwrap();
        party.turnover.clone_from(&plan.memory.turnover);
        party.snapshot.memory = plan.memory.clone();
        if let Some(FinalizerChange::Add(finalizer)) = &plan.finalizer {
            party.snapshot.kustomization.metadata.finalizers = Some(vec![finalizer.clone()]);
        }
        let status = plan.status.clone();
        if plan.status_first {
            party.snapshot.kustomization.status.clone_from(&status);
        }
        for step in &plan.steps {
            self.execute_step(name, step);
        }
        let party = self.parties.get_mut(name).unwrap();
        if let (false, Some(status)) = (plan.status_first, status) {
            party.snapshot.kustomization.status = Some(status);
        }
        match plan.next {
            Next::Again | Next::Wait(_) => {}
            Next::Restart => self.begin_attempt(name),
            Next::Done(_) | Next::Forget => party.done = true,
        }
    }

    pub(super) fn execute_step(&mut self, name: &'static str, step: &Step) {
        let party = self.parties.get_mut(name).unwrap();
        let snapshot = &mut party.snapshot;
        match step {
            Step::Ask(Request::ResolveKinds(kinds)) => {
                for kind in kinds {
                    snapshot.record_answer(Answer::Kind(kind.clone(), self.world.find_kind(kind)));
                }
            }
            Step::Render(request) => {
                let objects = &self.builds[request.revision.as_str()][name];
                let object = |object: &&str| RenderedObject {
                    object: tenure_planner::Object(json!({
                        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": object, "namespace": "team" },
                    })),
                    origin: Origin::default(),
                    confidential: false,
                };
                let objects = objects.iter().map(object).collect();
                snapshot.attempt.rendered = Some(Rendered::new(request, Ok(objects), Vec::new()));
            }
            Step::Ask(Request::Read(target)) => {
                party.read.insert(target.id.clone());
                let implied = snapshot.record_answer(Answer::Live(target.id.clone(), self.world.read(&target.id)));
                snapshot.live.extend(implied);
            }
            Step::Ask(Request::DryRun(apply)) => {
                let answer = self.world.dry_run(apply);
                snapshot.record_answer(Answer::DryRun(apply.id.clone(), answer));
            }
            Step::Ask(Request::Apply(apply)) => {
                party.applied.insert(apply.id.clone());
                let answer = self.world.apply(apply, self.now);
                snapshot.record_answer(Answer::Applied(apply.id.clone(), answer));
            }
            Step::Ask(Request::Delete(delete)) => {
                let answer = self.world.delete(delete);
                snapshot.record_answer(Answer::Deleted(delete.target.id.clone(), answer));
            }
            Step::Ask(Request::FindClaims(namespace)) => {
                let answer = self.world.find_claims(namespace);
                snapshot.record_answer(Answer::Claims(namespace.clone(), answer));
            }
            Step::Survey(request) => party.survey = Some(request.clone()),
            Step::ReadHere(_)
            | Step::OrderToken(_)
            | Step::Ask(
                Request::Try(_)
                | Request::Create(_)
                | Request::TryDelete(_)
                | Request::TakeOver(_)
                | Request::Release(_)
                | Request::Disown(_),
            ) => {
                panic!("{step}")
            }
        }
    }

    /// Kills the process, with its memory and the facts that the parties have shared.
    pub(super) fn restart(&mut self) {
        for party in self.parties.values_mut() {
            party.snapshot.memory = Memory::default();
            party.turnover = None;
            party.done = true;
        }
    }

    /// Deletes one of the parties.
    pub(super) fn delete(&mut self, name: &str) {
        let party = self.parties.get_mut(name).unwrap();
        party.snapshot.kustomization.metadata.deletion_timestamp = Some(tenure_api::Time(self.now));
        party.done = true;
    }

    /// Turns until nothing is left to do, in an order that a seed gives.
    pub(super) fn run_until_settled(&mut self, seed: &mut u64) {
        let names: Vec<&'static str> = self.parties.keys().copied().collect();
        for _ in 0..90 {
            *seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let pick = usize::try_from(*seed >> 33).unwrap() % names.len();
            if self.parties.contains_key(names[pick]) {
                self.take_turn(names[pick]);
            }
        }
    }

    pub(super) fn read_ready(&self, name: &str) -> String {
        let status = self.parties[name]
            .snapshot
            .kustomization
            .status
            .clone()
            .unwrap_or_default();
        let ready = condition::find(&status.conditions, condition::READY).unwrap().clone();
        format!("{:?} {}: {}", ready.status, ready.reason, ready.message)
    }

    pub(super) fn uid_and_owner(&mut self, name: &str) -> Option<(String, String)> {
        let live = self.world.read(&make_id(name));
        let live = live.object()?;
        let uid = live["metadata"]["uid"].as_str().unwrap().to_owned();
        Some((uid, owner::read_owner_labels(live).unwrap().1.to_owned()))
    }
}

/// The number of turns that a deletion waits for others to look.
pub(super) const LONGEST_LOOK: usize = 60;

/// Folders, and the names of the objects in them.
pub(super) type Folders = [(&'static str, &'static [&'static str])];

pub(super) fn make_builds(revisions: &[(&'static str, &Folders)]) -> Builds {
    let of = |folders: &Folders| {
        folders
            .iter()
            .map(|(name, objects)| (*name, objects.to_vec()))
            .collect()
    };
    revisions
        .iter()
        .map(|(revision, folders)| (*revision, of(folders)))
        .collect()
}
