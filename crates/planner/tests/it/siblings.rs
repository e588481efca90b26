//! Several Kustomizations of one source on one small cluster, each planned in turn as a schedule says: what one commit moves from one to
//! another is never deleted, what two want stays with the first, and nobody waits for ever. The clock never comes to a timeout, so that
//! nothing here is decided by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_api::{Kustomization, ObjectId, condition};
use tenure_planner::answer::Answer;
use tenure_planner::artifact::ArtifactFacts;
use tenure_planner::kustomization::{
    Attempt, DependencyFacts, Endings, Guards, Memory, Rendered, Rival, ServiceAccountFacts, Sibling, Snapshot,
    SourceFacts, Step, SurveyRequest, Turnover, find_applied_revision, is_idle, plan, survey_siblings,
};
use tenure_planner::object::RenderedObject;
use tenure_planner::{FinalizerChange, Next, Origin, Request, invariants};
use tenure_tenancy::{NamespaceFacts, Placement, Realm, owner};

use crate::world::World;

struct Party {
    snapshot: Snapshot,
    survey: Option<SurveyRequest>,
    turnover: Option<Arc<Turnover>>,
    /// Whether its last plan was the end of an attempt.
    done: bool,
}

/// What each of them has in its folder, by revision and name.
type Builds = BTreeMap<&'static str, BTreeMap<&'static str, Vec<&'static str>>>;

struct Play {
    world: World,
    parties: BTreeMap<&'static str, Party>,
    builds: Builds,
    depends_on: BTreeMap<&'static str, &'static str>,
    now: Timestamp,
    account: String,
}

fn id(name: &str) -> ObjectId {
    format!("team_{name}__ConfigMap").parse().unwrap()
}

impl Play {
    fn new(builds: Builds, depends_on: &[(&'static str, &'static str)]) -> Self {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let names: BTreeSet<&'static str> = builds.values().flat_map(|all| all.keys().copied()).collect();
        let realm = Realm {
            namespaces: vec![NamespaceFacts {
                name: "team".to_owned(),
                ..NamespaceFacts::default()
            }],
            ..Realm::default()
        };
        let placement: Placement = realm.place("team");
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
                dependencies: BTreeMap::new(),
                cycle: None,
                service_account: ServiceAccountFacts::Usable,
                endings: Endings::default(),
                kinds: BTreeMap::new(),
                live: BTreeMap::new(),
                owners: BTreeMap::new(),
                rivals: BTreeMap::new(),
                survey: None,
                guards: Guards::default(),
                settings: Default::default(),
                attempt: Attempt::begin(now, &kustomization),
                memory: Memory::default(),
                kustomization,
            };
            let party = Party {
                snapshot,
                survey: None,
                turnover: None,
                done: false,
            };
            (name, party)
        });
        Self {
            world: World::default(),
            parties: parties.collect(),
            builds,
            depends_on,
            now,
            account: String::new(),
        }
    }

    fn source(&mut self, revision: &str) {
        for party in self.parties.values_mut() {
            party.snapshot.source = SourceFacts::Found {
                artifact: Some(ArtifactFacts {
                    revision: revision.to_owned(),
                    digest: format!("sha256:{revision}"),
                }),
                conditions: Vec::new(),
            };
        }
    }

    fn waits_for(&self, from: &str, to: &str) -> bool {
        self.depends_on
            .get(from)
            .is_some_and(|on| *on == to || self.waits_for(on, to))
    }

    fn names(&self, name: &str, id: &ObjectId) -> bool {
        let status = self.parties[name].snapshot.kustomization.status.as_ref();
        let inventory = status.and_then(|status| status.inventory.as_ref());
        inventory.is_some_and(|inventory| inventory.entries.iter().any(|entry| entry.id == id.to_string()))
    }

    /// As the shell: what is known now.
    fn observe(&mut self, name: &'static str) {
        let mut live = self.parties[name].snapshot.live.clone();
        for (id, found) in &mut live {
            *found = self.world.read(id);
        }
        let (mut owners, mut rivals) = (BTreeMap::new(), BTreeMap::new());
        for (id, found) in &live {
            let Some((_, other)) = found.object().and_then(owner::read_owner_labels) else {
                continue;
            };
            let Some((other, party)) = self.parties.get_key_value(other).filter(|(other, _)| **other != name) else {
                continue;
            };
            if !self.names(other, id) {
                continue;
            }
            let kustomization = &party.snapshot.kustomization;
            owners.insert(id.clone(), (*other).to_owned());
            rivals.insert(
                (*other).to_owned(),
                Rival {
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

    fn survey(&self, name: &str, request: &SurveyRequest) -> tenure_planner::kustomization::Survey {
        let others = || self.parties.iter().filter(|(other, _)| **other != name);
        let claims = request.ids.iter().map(|id| {
            let by = others().filter(|(other, party)| {
                let gains = party
                    .turnover
                    .as_ref()
                    .is_some_and(|turnover| turnover.gains.contains(id));
                gains || self.names(other, id)
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

    fn begin(&mut self, name: &str) {
        let party = self.parties.get_mut(name).unwrap();
        // No two attempts begin at the same time.
        self.now += SignedDuration::from_nanos(1);
        party.snapshot.attempt = Attempt::begin(self.now, &party.snapshot.kustomization);
        party.snapshot.kinds.clear();
        party.survey = None;
        party.done = false;
    }

    /// One plan of one of them, carried out.
    fn turn(&mut self, name: &'static str) {
        // Far less than a timeout, over all turns: only what failed waits that long.
        self.now += SignedDuration::from_secs(1);
        if self.parties[name].done {
            self.begin(name);
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
            self.execute(name, step);
        }
        let party = self.parties.get_mut(name).unwrap();
        if let (false, Some(status)) = (plan.status_first, status) {
            party.snapshot.kustomization.status = Some(status);
        }
        match plan.next {
            Next::Again | Next::Wait(_) => {}
            Next::Restart => self.begin(name),
            Next::Done(_) | Next::Forget => party.done = true,
        }
    }

    fn execute(&mut self, name: &'static str, step: &Step) {
        let party = self.parties.get_mut(name).unwrap();
        let snapshot = &mut party.snapshot;
        match step {
            Step::Ask(Request::ResolveKinds(kinds)) => {
                for kind in kinds {
                    snapshot.take(Answer::Kind(kind.clone(), self.world.kind(kind)));
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
                snapshot.attempt.rendered = Some(Rendered {
                    artifact_digest: request.artifact_digest.clone(),
                    path: request.path.clone(),
                    overlay: request.overlay.clone(),
                    inputs: request.inputs.digest().clone(),
                    outcome: Ok(objects.iter().map(object).collect()),
                });
            }
            Step::Ask(Request::Read(target)) => {
                let told = snapshot.take(Answer::Live(target.id.clone(), self.world.read(&target.id)));
                snapshot.live.extend(told);
            }
            Step::Ask(Request::DryRun(apply)) => {
                let answer = self.world.dry_run(apply);
                snapshot.take(Answer::DryRun(apply.id.clone(), answer));
            }
            Step::Ask(Request::Apply(apply)) => {
                let answer = self.world.apply(apply, self.now);
                snapshot.take(Answer::Applied(apply.id.clone(), answer));
            }
            Step::Ask(Request::Delete(delete)) => {
                let answer = self.world.delete(delete);
                snapshot.take(Answer::Deleted(delete.target.id.clone(), answer));
            }
            Step::Survey(request) => party.survey = Some(request.clone()),
            Step::Ask(Request::Try(_) | Request::TakeOver(_)) => panic!("{step}"),
        }
    }

    /// The process dies, and with it what they remember and told each other.
    fn restart(&mut self) {
        for party in self.parties.values_mut() {
            party.snapshot.memory = Memory::default();
            party.turnover = None;
            party.done = true;
        }
    }

    /// Somebody deletes one of them.
    fn delete(&mut self, name: &str) {
        let party = self.parties.get_mut(name).unwrap();
        party.snapshot.kustomization.metadata.deletion_timestamp = Some(tenure_api::Time(self.now));
        party.done = true;
    }

    /// Turns until nothing is left to do, in an order that a seed gives.
    fn settle(&mut self, seed: &mut u64) {
        let names: Vec<&'static str> = self.parties.keys().copied().collect();
        for _ in 0..90 {
            *seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let pick = usize::try_from(*seed >> 33).unwrap() % names.len();
            if self.parties.contains_key(names[pick]) {
                self.turn(names[pick]);
            }
        }
    }

    fn ready(&self, name: &str) -> String {
        let status = self.parties[name]
            .snapshot
            .kustomization
            .status
            .clone()
            .unwrap_or_default();
        let ready = condition::find(&status.conditions, condition::READY).unwrap().clone();
        format!("{:?} {}: {}", ready.status, ready.reason, ready.message)
    }

    fn uid_and_owner(&mut self, name: &str) -> Option<(String, String)> {
        let live = self.world.read(&id(name));
        let live = live.object()?;
        let uid = live["metadata"]["uid"].as_str().unwrap().to_owned();
        Some((uid, owner::read_owner_labels(live).unwrap().1.to_owned()))
    }
}

/// How long a deletion waits for others to look, in turns.
const LONGEST_LOOK: usize = 60;

/// Folders, and the names of the objects in them.
type Folders = [(&'static str, &'static [&'static str])];

fn builds(revisions: &[(&'static str, &Folders)]) -> Builds {
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

#[test]
fn what_one_commit_moves_is_never_deleted() {
    let both = builds(&[
        ("1", &[("one", &["x", "stays"]), ("two", &["y"]), ("three", &[])]),
        ("2", &[("one", &["stays", "y"]), ("two", &["x"]), ("three", &[])]),
    ]);
    let depends: [&[(&str, &str)]; 4] = [
        &[],
        &[("two", "one")],
        &[("one", "two")],
        &[("two", "three"), ("three", "one")],
    ];
    for depends_on in depends {
        for start in 0..15_u64 {
            let mut seed = start;
            let mut play = Play::new(both.clone(), depends_on);
            play.source("1");
            play.settle(&mut seed);
            let (x, by) = play.uid_and_owner("x").unwrap_or_else(|| panic!("{}", play.account));
            assert_eq!(by, "one");
            let (y, by) = play.uid_and_owner("y").unwrap();
            assert_eq!(by, "two");
            play.source("2");
            play.settle(&mut seed);
            play.settle(&mut seed);
            let expected = |uid: &str, by: &str| Some((uid.to_owned(), by.to_owned()));
            let (now_x, now_y) = (play.uid_and_owner("x"), play.uid_and_owner("y"));
            assert_eq!(now_x, expected(&x, "two"), "{depends_on:?} {start}\n{}", play.account);
            assert_eq!(now_y, expected(&y, "one"), "{depends_on:?} {start}\n{}", play.account);
            for name in ["one", "two", "three"] {
                let ready = play.ready(name);
                assert!(
                    ready.starts_with("True"),
                    "{depends_on:?} {start} {name}: {ready}\n{}",
                    play.account
                );
            }
            assert!(play.names("two", &id("x")) && !play.names("one", &id("x")));
            assert!(play.names("one", &id("y")) && !play.names("two", &id("y")));
        }
    }
}

#[test]
fn what_nobody_wants_any_more_is_deleted_once_all_have_looked() {
    let gone = builds(&[
        ("1", &[("one", &["x"]), ("two", &["y"]), ("three", &[])]),
        ("2", &[("one", &[]), ("two", &["y"]), ("three", &["z"])]),
    ]);
    for depends_on in [&[][..], &[("two", "one")], &[("one", "two"), ("two", "three")]] {
        for start in 0..12_u64 {
            let mut seed = start;
            let mut play = Play::new(gone.clone(), depends_on);
            play.source("1");
            play.settle(&mut seed);
            assert!(play.uid_and_owner("x").is_some());
            play.source("2");
            play.settle(&mut seed);
            play.settle(&mut seed);
            assert_eq!(
                play.uid_and_owner("x"),
                None,
                "{depends_on:?} {start}\n{}",
                play.account
            );
            assert!(play.ready("one").starts_with("True"), "{}", play.account);
            assert!(!play.names("one", &id("x")));
        }
    }
}

#[test]
fn what_two_want_stays_with_the_first_and_both_lose_nothing() {
    let contested = builds(&[
        ("1", &[("one", &["x"]), ("two", &["x", "y"])]),
        ("2", &[("one", &["x"]), ("two", &["y"])]),
    ]);
    for start in 0..15_u64 {
        let mut seed = start;
        let mut play = Play::new(contested.clone(), &[]);
        play.source("1");
        play.settle(&mut seed);
        let (uid, first) = play.uid_and_owner("x").unwrap_or_else(|| panic!("{}", play.account));
        let second = if first == "one" { "two" } else { "one" };
        assert!(play.ready(&first).starts_with("True"), "{}", play.account);
        let ready = play.ready(second);
        assert!(
            ready.starts_with("False OwnedByAnother") && ready.contains(&format!("Kustomization/team/{first}")),
            "{start}: {ready}\n{}",
            play.account
        );
        // Whoever had it: it is never deleted, and ends with who wants it.
        play.source("2");
        play.settle(&mut seed);
        play.settle(&mut seed);
        assert_eq!(
            play.uid_and_owner("x"),
            Some((uid, "one".to_owned())),
            "{start}\n{}",
            play.account
        );
        for name in ["one", "two"] {
            assert!(play.ready(name).starts_with("True"), "{}", play.account);
        }
    }
}

#[test]
fn a_rename_deletes_nothing() {
    // What `old` had goes to `new` and in part to `other`; one object nobody wants any more.
    let renamed = builds(&[
        ("1", &[("old", &["x", "y", "z"]), ("new", &[]), ("other", &[])]),
        ("2", &[("old", &["x", "y", "z"]), ("new", &["x"]), ("other", &["y"])]),
    ]);
    for depends_on in [&[][..], &[("new", "other")]] {
        for start in 0..15_u64 {
            let mut seed = start;
            let mut play = Play::new(renamed.clone(), depends_on);
            play.source("1");
            play.settle(&mut seed);
            let (x, _) = play.uid_and_owner("x").unwrap_or_else(|| panic!("{}", play.account));
            let (y, _) = play.uid_and_owner("y").unwrap();
            play.source("2");
            // It goes before the others have seen the commit, or after they were told that it keeps what they want.
            if start % 2 == 0 {
                play.settle(&mut seed);
                let ready = play.ready("other");
                assert!(ready.starts_with("False OwnedByAnother"), "{ready}\n{}", play.account);
            }
            // What was told is lost with the process, and the one that goes is planned first.
            if start % 4 == 0 {
                play.restart();
            }
            play.delete("old");
            if start % 4 == 0 {
                (0..6).for_each(|_| play.turn("old"));
            }
            play.settle(&mut seed);
            play.settle(&mut seed);
            assert!(!play.parties.contains_key("old"), "{start}\n{}", play.account);
            let now: Vec<_> = ["x", "y", "z"].map(|name| play.uid_and_owner(name)).into();
            let expected = [Some((x, "new".to_owned())), Some((y, "other".to_owned())), None];
            assert_eq!(now, expected, "{depends_on:?} {start}\n{}", play.account);
            for name in ["new", "other"] {
                let ready = play.ready(name);
                assert!(ready.starts_with("True"), "{name}: {ready}\n{}", play.account);
            }
        }
    }
}

#[test]
fn a_deletion_waits_for_nobody_for_ever() {
    let builds = builds(&[
        ("1", &[("old", &["x"]), ("idle", &[]), ("stuck", &[])]),
        ("2", &[("old", &["x"]), ("idle", &["x"]), ("stuck", &[])]),
    ]);
    let mut seed = 7;
    let mut play = Play::new(builds, &[]);
    play.source("1");
    play.settle(&mut seed);
    play.source("2");
    // One is suspended, and one doesn't come to look.
    let idle = play.parties.get_mut("idle").unwrap();
    idle.snapshot.kustomization.spec.suspend = true;
    play.delete("old");
    for turn in 0..=LONGEST_LOOK + 5 {
        if !play.parties.contains_key("old") {
            assert!(turn >= LONGEST_LOOK, "{}", play.account);
            break;
        }
        play.turn("old");
    }
    assert!(!play.parties.contains_key("old"), "{}", play.account);
    assert_eq!(play.uid_and_owner("x"), None);
    assert!(
        play.account.contains("Kustomization/team/stuck has not looked yet"),
        "{}",
        play.account
    );
}

/// It can't begin before the one that it depends on is Ready, and that one isn't while it waits for others.
#[test]
fn who_comes_after_gets_its_own_time() {
    let moved = builds(&[
        ("1", &[("one", &["x", "stays"]), ("after", &[]), ("stuck", &[])]),
        ("2", &[("one", &["stays"]), ("after", &["x"]), ("stuck", &[])]),
    ]);
    let timeout = SignedDuration::from_mins(10);
    for comes in [true, false] {
        let mut seed = 3;
        let mut play = Play::new(moved.clone(), &[("after", "one")]);
        play.source("1");
        play.settle(&mut seed);
        let (x, _) = play.uid_and_owner("x").unwrap_or_else(|| panic!("{}", play.account));
        play.source("2");
        let turns = |play: &mut Play, name| (0..12).for_each(|_| play.turn(name));
        // `stuck` never comes to look, and `after` waits for `one`.
        turns(&mut play, "one");
        turns(&mut play, "after");
        assert!(
            play.account.contains("is reached by Kustomization/team/stuck"),
            "{}",
            play.account
        );
        play.now += timeout;
        turns(&mut play, "one");
        assert!(play.ready("one").starts_with("True"), "{}", play.account);
        assert_eq!(
            play.uid_and_owner("x").map(|(uid, _)| uid),
            Some(x.clone()),
            "{}",
            play.account
        );
        if comes {
            turns(&mut play, "after");
            assert_eq!(
                play.uid_and_owner("x"),
                Some((x, "after".to_owned())),
                "{}",
                play.account
            );
        } else {
            // Neither is it waited for without an end.
            play.now += timeout;
            turns(&mut play, "one");
            assert_eq!(play.uid_and_owner("x"), None, "{}", play.account);
        }
    }
}
