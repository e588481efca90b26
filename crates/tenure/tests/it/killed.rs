//! `kill -9` at random moments between a commit and its end, many times, with all sources of a Kustomization: Git with encrypted files and variables, a container
//! registry, a store. The final state must be the same as without kills.
//!
//! `TENURE_KILLS` sets the number of kills (3; a hundred take a quarter of an hour). `TENURE_KILL_SEED` sets the moments: each run prints its seed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_bucket_server::BucketServer;
use tenure_git_server::{Content, GitServer, Options, Repository};
use tenure_registry_server::{Artifact, RegistryServer};
use tenure_testkit::Admin;

use crate::process::{Up, client};

pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const KUSTOMIZATION: (&str, &str) = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
/// The sources, which have the names of the Kustomizations that apply from them.
const SOURCES: [(&str, &str); 3] = [("GitRepository", "git"), ("OCIRepository", "oci"), ("Bucket", "bucket")];
pub(crate) const SOURCE_VERSION: &str = "source.toolkit.fluxcd.io/v1";
/// The timeout for a change. After a kill in the middle of an attempt, a pause follows.
const PATIENCE: Duration = Duration::from_secs(120);
/// The number of states of the content: with each number one object is added and another one removed.
pub(crate) const TURNS: usize = 3;

pub(crate) struct World {
    folder: tempfile::TempDir,
    pub(crate) git: Repository,
    pub(crate) registry: RegistryServer,
    pub(crate) store: BucketServer,
    allowed: Vec<String>,
    _git: GitServer,
}

pub(crate) fn read_fixture(path: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../sops/tests/data")
            .join(path),
    )
    .unwrap()
}

pub(crate) fn map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: \"{value}\"\n")
}

/// Returns the text that shows the change of an object.
fn name_change(number: usize) -> String {
    format!("number-{number};")
}

impl World {
    pub(crate) async fn set() -> (Self, Up) {
        let folder = tempfile::tempdir().unwrap();
        let server = GitServer::start(folder.path().join("git"), Options::default())
            .await
            .unwrap();
        let git = server.create("app").await.unwrap();
        let registry = RegistryServer::start().await.unwrap();
        let store = BucketServer::start().await.unwrap();
        let addresses = [server.http_address(), registry.address(), store.address()];
        let allowed = addresses
            .iter()
            .flat_map(|address| ["--allow-source".to_owned(), format!("http://{address}")])
            .collect();
        let world = Self {
            folder,
            git,
            registry,
            store,
            allowed,
            _git: server,
        };
        world.change(0).await;
        let up = world.start();
        let urls = [
            json!({ "url": world._git.http_url("app"), "ref": { "branch": "main" } }),
            json!({ "url": format!("oci://{}/app", world.registry.address()), "insecure": true }),
            json!({ "endpoint": world.store.address().to_string(), "bucketName": "app", "insecure": true }),
        ];
        let admin = world.admin().await;
        let metadata = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
        let rbac = "rbac.authorization.k8s.io";
        let mut objects = vec![
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("applier") }),
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata("applier"),
                "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "edit" },
                "subjects": [{ "kind": "ServiceAccount", "name": "applier", "namespace": NAMESPACE }]
            }),
            key(),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata("variables"), "stringData": { "word": "sesame" } }),
        ];
        for ((kind, name), url) in SOURCES.iter().zip(urls) {
            let mut spec = url;
            spec["interval"] = json!("10m");
            objects
                .push(json!({ "apiVersion": SOURCE_VERSION, "kind": kind, "metadata": metadata(name), "spec": spec }));
            let mut spec = json!({
                "interval": "10m", "retryInterval": "1s", "prune": true, "wait": true, "path": "./", "serviceAccountName": "applier",
                "targetNamespace": NAMESPACE, "sourceRef": { "kind": kind, "name": name }
            });
            if *name == "git" {
                spec["decryption"] = json!({ "provider": "sops", "secretRef": { "name": "keys" } });
                spec["postBuild"] = json!({ "substitute": { "colour": "blue" }, "substituteFrom": [{ "kind": "Secret", "name": "variables" }] });
            }
            objects.push(json!({ "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1, "metadata": metadata(name), "spec": spec }));
        }
        for object in objects {
            admin.apply(object).await.unwrap();
        }
        (world, up)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn start(&self) -> Up {
        let flags: Vec<&str> = self.allowed.iter().map(String::as_str).collect();
        Up::start(&self.data(), &[&["--workload-status"], &flags[..]].concat())
    }

    pub(crate) async fn admin(&self) -> Admin {
        Admin::new(client(&self.data()).await)
    }

    /// Changes the content of all three sources. In each turn another object joins the permanent ones.
    pub(crate) async fn change(&self, number: usize) {
        let value = name_change(number);
        let turn = |turn: usize| format!("turn{}", turn % TURNS);
        let mut changes = vec![
            (
                "map.yaml".to_owned(),
                Content::from(map("git", &format!("{value} ${{colour}} ${{word}}"))),
            ),
            (
                "secret.yaml".to_owned(),
                Content::from(read_fixture("encrypted/secret.yaml")),
            ),
            (
                format!("{}.yaml", turn(number)),
                Content::from(map(&format!("git-{}", turn(number)), &value)),
            ),
        ];
        let last = format!("{}.yaml", turn(number + TURNS - 1));
        if number > 0 && self.git.read("main", &last).await.is_ok() {
            changes.push((last, Content::Removed));
        }
        self.git.commit(changes, "a change").await.unwrap();
        let files = [
            ("map.yaml".to_owned(), map("oci", &value)),
            ("turn.yaml".to_owned(), map(&format!("oci-{}", turn(number)), &value)),
        ];
        let files = files.each_ref().map(|(path, text)| (path.as_str(), text.as_str()));
        self.registry.push("app", "latest", &Artifact::from_files(&files));
        self.store.put("app", "map.yaml", map("bucket", &value).as_bytes());
        self.store.put(
            "app",
            "turn.yaml",
            map(&format!("bucket-{}", turn(number)), &value).as_bytes(),
        );
    }

    /// Requests a reconciliation of all sources.
    pub(crate) async fn ask(&self, number: usize) {
        let admin = self.admin().await;
        let request =
            json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": name_change(number) } } });
        for (kind, name) in SOURCES {
            admin
                .patch((SOURCE_VERSION, kind), (NAMESPACE, name), request.clone())
                .await
                .unwrap();
        }
    }

    /// Returns the relevant final state, without values that differ between runs.
    async fn read_state(&self, number: usize) -> BTreeMap<String, Value> {
        let admin = self.admin().await;
        let mut state = BTreeMap::new();
        let conditions = |object: &Value| {
            let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let conditions = list
                .iter()
                .map(|condition| json!([condition["type"], condition["status"], condition["reason"]]));
            conditions.collect::<Vec<Value>>()
        };
        let mut revisions = BTreeMap::new();
        for (kind, name) in SOURCES {
            let source = admin
                .get((SOURCE_VERSION, kind), (NAMESPACE, name))
                .await
                .unwrap()
                .unwrap();
            revisions.insert(name, source["status"]["artifact"]["revision"].clone());
            state.insert(
                format!("{kind}/{name}"),
                json!({
                    "conditions": conditions(&source), "finalizers": source["metadata"]["finalizers"],
                    "isHandled": number == 0 || source["status"]["lastHandledReconcileAt"] == name_change(number),
                }),
            );
            let applied = admin.get(KUSTOMIZATION, (NAMESPACE, name)).await.unwrap().unwrap();
            let mut entries: Vec<Value> = applied["status"]["inventory"]["entries"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            entries.sort_by_key(ToString::to_string);
            state.insert(
                format!("Kustomization/{name}"),
                json!({
                    "conditions": conditions(&applied), "inventory": entries, "finalizers": applied["metadata"]["finalizers"],
                    "isApplied": applied["status"]["lastAppliedRevision"] == revisions[name],
                }),
            );
        }
        for kind in ["ConfigMap", "Secret"] {
            for object in admin.list(("v1", kind), NAMESPACE).await.unwrap() {
                let labels = &object["metadata"]["labels"];
                let name = object["metadata"]["name"].as_str().unwrap();
                if labels["kustomize.toolkit.fluxcd.io/name"].is_string() {
                    state.insert(
                        format!("{kind}/{name}"),
                        json!({ "data": object["data"], "labels": labels }),
                    );
                }
            }
        }
        let text = serde_json::to_string(&state)
            .unwrap()
            .replace(&name_change(number), "number-N;");
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until the state is the same as in this turn without kills.
    pub(crate) async fn wait_for_end(&self, number: usize, expected: &Ends, when: &str) {
        let begun = Instant::now();
        loop {
            let (state, files) = (self.read_state(number).await, self.list_files());
            let missing = expected.find_difference(number, &state, &files);
            match missing {
                None => return,
                Some(difference) if begun.elapsed() > PATIENCE => {
                    panic!("{when}: {difference}\n{}", self.describe().await)
                }
                Some(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Returns the statuses of all objects, for the diagnosis of a failure.
    async fn describe(&self) -> String {
        let admin = self.admin().await;
        let kinds = SOURCES.iter().copied().map(|(kind, _)| (SOURCE_VERSION, kind));
        let mut statuses = String::new();
        for kind in kinds.chain([KUSTOMIZATION]) {
            for object in admin.list(kind, NAMESPACE).await.unwrap() {
                let (annotations, status) = (&object["metadata"]["annotations"], &object["status"]);
                let conditions = &status["conditions"];
                statuses += &format!(
                    "{} {}: {annotations:#} {conditions:#} {}\n",
                    kind.1, object["metadata"]["name"], status["artifact"]
                );
            }
        }
        statuses
    }

    /// Returns the files of artifacts and of work in progress with their sizes, without digests and numbers.
    fn list_files(&self) -> Vec<String> {
        let mut files = Vec::new();
        walk(&self.data().join("artifacts"), &mut |path, bytes| {
            let shape: String = path
                .split(['/', '.'])
                .map(|part| if part.len() > 30 { "X" } else { part })
                .collect::<Vec<_>>()
                .join("/");
            // A difference of a kilobyte is allowed; a factor of ten is not.
            files.push(format!("{shape} {}", bytes.ilog2().max(12)));
        });
        files.sort();
        files
    }

    /// Returns the names of the files beside the artifacts.
    fn list_beside(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        walk(&self.data(), &mut |path, _| {
            if !path.starts_with("artifacts/") {
                found.insert(path.to_owned());
            }
        });
        found
    }
}

fn walk(folder: &Path, see: &mut dyn FnMut(&str, u64)) {
    fn go(folder: &Path, root: &Path, see: &mut dyn FnMut(&str, u64)) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => go(&path, root, see),
                Ok(metadata) => see(
                    path.strip_prefix(root).unwrap().to_str().unwrap(),
                    metadata.len().max(1),
                ),
                // The file is gone meanwhile.
                Err(_) => {}
            }
        }
    }
    go(folder, folder, see);
}

pub(crate) fn key() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys", "namespace": NAMESPACE },
        "stringData": { "a.agekey": read_fixture("keys/first.agekey") }
    })
}

/// The final state of each turn without kills.
#[derive(Default)]
pub(crate) struct Ends {
    turns: BTreeMap<usize, BTreeMap<String, Value>>,
    /// The number of files of each sort.
    files: BTreeMap<String, usize>,
}

impl Ends {
    /// Records changes without kills, and the longest duration of one.
    pub(crate) async fn record(world: &World) -> (Self, Duration) {
        let mut ends = Self::default();
        let mut longest = Duration::ZERO;
        // The loop makes one more change than there are turns, because the files are stable after the second round.
        for number in 0..=TURNS {
            let begun = Instant::now();
            if number > 0 {
                world.change(number).await;
                world.ask(number).await;
            }
            loop {
                let state = world.read_state(number).await;
                let text = serde_json::to_string(&state).unwrap();
                let entries = state
                    .values()
                    .filter_map(|object| object["inventory"].as_array())
                    .map(Vec::len);
                let objects = state.values().filter(|object| object.get("labels").is_some());
                // An object with an unconfirmed deletion stays in the inventory for a moment.
                let is_done = entries.sum::<usize>() == objects.count()
                    && !text.contains("\"isApplied\":false")
                    && !text.contains("\"isHandled\":false")
                    && !text.contains("\"False\"")
                    && !text.contains("Unknown")
                    && !text.contains("Reconciling")
                    && ["ConfigMap/git", "ConfigMap/oci", "ConfigMap/bucket"]
                        .iter()
                        .all(|name| {
                            state
                                .get(*name)
                                .is_some_and(|map| map["data"]["value"].to_string().contains("number-N;"))
                        })
                    && state.keys().filter(|name| name.contains("turn")).count() == SOURCES.len();
                if is_done {
                    let before = ends.turns.insert(number % TURNS, state.clone());
                    if let Some(before) = before.filter(|_| number >= TURNS) {
                        assert_eq!(before, state, "the same turn has the same end");
                    }
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "it does not come to its end: {state:#?}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            if number > 0 {
                longest = longest.max(begun.elapsed());
            }
        }
        for file in world.list_files() {
            *ends.files.entry(file).or_default() += 1;
        }
        (ends, longest)
    }

    fn find_difference(&self, number: usize, state: &BTreeMap<String, Value>, files: &[String]) -> Option<String> {
        let expected = &self.turns[&(number % TURNS)];
        for name in expected.keys().chain(state.keys()) {
            let (wanted, found) = (expected.get(name), state.get(name));
            if wanted != found {
                return Some(format!("{name}: wanted {wanted:?}, is {found:?}"));
            }
        }
        let mut counted: BTreeMap<&String, usize> = BTreeMap::new();
        for file in files {
            *counted.entry(file).or_default() += 1;
        }
        let too_many = counted
            .iter()
            .find(|(file, count)| self.files.get(**file).is_none_or(|known| *count > known));
        too_many.map(|(file, count)| format!("{count} files {file:?}, and there are {:?}", self.files))
    }
}

/// Pseudo-random numbers that repeat with the seed.
struct Chance(u64);

impl Chance {
    fn of_environment() -> Self {
        let named = std::env::var("TENURE_KILL_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let seed = named.unwrap_or(random);
        println!("TENURE_KILL_SEED={seed}");
        Self(seed | 1)
    }

    fn draw_below(&mut self, limit: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        limit.mul_f64((self.0 >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_at_any_moment_does_not_change_result() {
    let kills = std::env::var("TENURE_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills: usize = kills.unwrap_or(3);
    let mut chance = Chance::of_environment();
    let (world, mut up) = World::set().await;
    let (ends, longest) = Ends::record(&world).await;
    let beside = world.list_beside();
    let mut unfinished = 0;
    for kill in 1..=kills {
        let number = TURNS + kill;
        world.change(number).await;
        world.ask(number).await;
        // The first kill is immediate, so at least one kill hits an attempt even in a short and fast run.
        let moment = match kill {
            1 => Duration::ZERO,
            _ => chance.draw_below(longest.mul_f64(1.1)),
        };
        let when = format!("kill {kill} of {kills}, {} ms after the change", moment.as_millis());
        tokio::time::sleep(moment).await;
        unfinished += usize::from(
            ends.find_difference(number, &world.read_state(number).await, &[])
                .is_some(),
        );
        up.kill();
        up = world.start();
        // Every other kill is followed by a second one during the recovery.
        if kill % 2 == 0 {
            tokio::time::sleep(chance.draw_below(longest)).await;
            up.kill();
            up = world.start();
        }
        world.wait_for_end(number, &ends, &when).await;
        println!("{when}: it came to the same end");
    }
    println!("{unfinished} of {kills} had not come to its end when it was killed");
    assert!(unfinished > 0, "nobody died before the end: nothing was tried");
    let left: Vec<String> = world.list_beside().difference(&beside).cloned().collect();
    assert!(left.is_empty(), "files are left: {left:?}");
    drop(up);
}
