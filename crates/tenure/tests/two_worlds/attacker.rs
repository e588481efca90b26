//! The hostile tenant of a story: it plays the cards of its deck, and remembers what was admitted.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tenure_git_server::Repository;
use tenure_testkit::Chance;

use crate::api::{Answer, User, collection, collection_of, plural};
use crate::cast::Scene;
use crate::grammar::{Card, Change, FollowUp, draw_cluster_object, draw_deck};
use crate::host;
use crate::log::{Log, Sort};
use crate::metadata::{draw_annotation, draw_finalizer, draw_label, draw_owner, draw_patch};
use crate::mutations::mutate;
use crate::platform::{NAMESPACE_EDITOR, apply, ask_for_fetch};
use crate::productions::{PRODUCTIONS, Place, RBAC, reference, user};
use crate::servers::Server;
use crate::world::PATIENCE;

/// The time for which `evil` retries a request that its own earlier actions may block forever. Its story waits meanwhile.
const OWN_PATIENCE: Duration = Duration::from_secs(15);

/// The account whose tokens `evil` uses, with the rights of `edit` in its namespaces.
const ROBOT: &str = "robot";
/// The finalizer with which it holds objects.
const HOLD: &str = "evil.example/hold";
/// Kinds whose objects in its namespaces it lists, although it did not write them.
const FOUND: [(&str, &str); 7] = [
    (RBAC, "RoleBinding"),
    (RBAC, "Role"),
    ("v1", "ServiceAccount"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("v1", "ResourceQuota"),
    ("v1", "ConfigMap"),
    ("v1", "Pod"),
];

/// The attacker of a story. Its requests follow from the seed and from the answers.
pub(crate) struct Attacker {
    pub(crate) log: Log,
    chance: Chance,
    scene: Scene,
    owner: User,
    repository: Repository,
    deck: std::vec::IntoIter<Card>,
    /// Objects that were admitted, as they were sent.
    made: Vec<Value>,
    /// Paths of objects with a finalizer of its own.
    held: Vec<String>,
    /// The next step in the life of the re-created namespace.
    cycle: usize,
    /// The number of objects that it has named.
    named: usize,
}

impl Attacker {
    pub(crate) fn new(seed: u64, scene: Scene, owner: User, repository: Repository) -> Self {
        let mut chance = Chance::new(seed.wrapping_add(1 << 32));
        let deck = draw_deck(&mut chance).into_iter();
        Self {
            log: Log::default(),
            chance,
            scene,
            owner,
            repository,
            deck,
            made: Vec::new(),
            held: Vec::new(),
            cycle: 0,
            named: 0,
        }
    }

    /// Creates a second namespace and an account in both, and waits for its rights there. An administrator lets it edit both namespaces.
    pub(crate) async fn settle_in(&mut self, admin: &User) {
        let namespaces = [self.scene.evil.clone(), self.scene.of_evil("1")];
        let made = self.owner.create(&self.name_namespace(&namespaces[1])).await;
        assert!(made.is_success(), "{made:?}");
        for namespace in namespaces {
            let editor = json!({
                "apiVersion": RBAC, "kind": "RoleBinding", "metadata": { "name": "namespace-editor", "namespace": namespace },
                "subjects": [user(&self.scene.of_evil("owner"))], "roleRef": reference("ClusterRole", NAMESPACE_EDITOR)
            });
            apply(admin, &editor).await;
            let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ROBOT, "namespace": namespace } });
            let made = self.retry(PATIENCE, async || self.owner.apply(&account).await).await;
            assert!(made.is_success(), "{made:?}");
            let subject = json!({ "kind": "ServiceAccount", "namespace": namespace, "name": ROBOT });
            let reader = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] }]);
            for object in [
                json!({ "apiVersion": RBAC, "kind": "Role", "metadata": { "name": "reader", "namespace": namespace }, "rules": reader }),
                json!({
                    "apiVersion": RBAC, "kind": "RoleBinding", "metadata": { "name": ROBOT, "namespace": namespace }, "subjects": [subject],
                    "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" }
                }),
            ] {
                let made = self.owner.apply(&object).await;
                assert!(made.is_success(), "{made:?}");
            }
        }
    }

    /// Plays a part of the deck, so that the deck is empty after the last part.
    pub(crate) async fn play_part(&mut self, server: &Server, parts_left: usize) {
        let count = self.deck.len().div_ceil(parts_left.max(1));
        for _ in 0..count {
            let Some(card) = self.deck.next() else { return };
            self.play(server, card).await;
        }
    }

    /// Removes its finalizers, so that terminating objects can be deleted.
    pub(crate) async fn release_all(&mut self, admin: &User) {
        for path in std::mem::take(&mut self.held) {
            let body = json!({ "metadata": { "finalizers": null } });
            let _may_be_gone = admin.send(Method::PATCH, &path, &body).await;
        }
    }

    async fn play(&mut self, server: &Server, card: Card) {
        match card {
            Card::Plain(place) => self.write(place, false).await,
            Card::Near(place) => self.write(place, true).await,
            Card::FollowUp(follow_up) => self.follow_up(server, follow_up).await,
            Card::Cycle => self.go_on_with_namespace(server).await,
            Card::Namespace(change) => self.try_namespace(change).await,
            Card::ClusterObject => {
                let object = draw_cluster_object(&mut self.chance, &self.scene);
                let path = collection_of(&object);
                self.ask("cluster object", Sort::Near, Method::POST, &path, &object)
                    .await;
            }
            Card::ForeignToken => {
                let (alpha, evil) = (self.scene.alpha.clone(), self.scene.evil.clone());
                let accounts = [
                    (evil.clone(), format!("{evil}-gitops")),
                    (alpha.clone(), format!("{alpha}-gitops")),
                    (alpha, "default".to_owned()),
                    ("tenure-system".to_owned(), "tenure-controller".to_owned()),
                    ("tenure-system".to_owned(), "tenure-secret-writer".to_owned()),
                ];
                let (namespace, name) = self.chance.pick(&accounts).unwrap();
                let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
                self.ask("foreign token", Sort::Near, Method::POST, &path, &token_request())
                    .await;
            }
            Card::Commit => self.commit().await,
            Card::ForeignAnswer => {
                self.named += 1;
                let drawn = host::draw_answer(&mut self.chance, &self.scene, &self.owner, self.named);
                let (method, path, body) = drawn.await;
                self.ask("foreign answer", Sort::Near, method, &path, &body).await;
            }
        }
    }

    /// Sends a request as the owner and counts it.
    async fn ask(&mut self, production: &str, sort: Sort, method: Method, path: &str, body: &Value) -> Answer {
        let answer = self.owner.send(method.clone(), path, body).await;
        self.log
            .add(production, sort, format!("{method} {path} {body}"), &answer);
        answer
    }

    fn pick_namespace(&mut self) -> String {
        match self.chance.once_in(3) {
            true => self.scene.evil.clone(),
            false => self.scene.of_evil("1"),
        }
    }

    fn draw(&mut self, place: usize) -> Value {
        let production = &PRODUCTIONS[place];
        let namespace = match production.place {
            Place::Home => self.scene.evil.clone(),
            Place::Own => self.pick_namespace(),
        };
        self.named += 1;
        production.draw(&mut self.chance, &self.scene, &namespace, self.named)
    }

    async fn write(&mut self, place: usize, is_near: bool) {
        let mut object = self.draw(place);
        let mut name = PRODUCTIONS[place].name.to_owned();
        let mut sort = Sort::Plain;
        if is_near {
            let changed = mutate(&mut self.chance, &self.scene, &mut object);
            name = format!("{name}: {changed}");
            sort = Sort::Near;
        }
        let answer = match self.chance.once_in(3) {
            true => {
                let managers = ["kubectl", "tenure", "tenure-controller"];
                let manager = self.chance.pick(&managers).unwrap();
                let path = format!("{}?fieldManager={manager}&force=true", path_of(&object));
                self.ask(&name, sort, Method::PATCH, &path, &object).await
            }
            false => {
                let path = collection_of(&object);
                self.ask(&name, sort, Method::POST, &path, &object).await
            }
        };
        if answer.is_success() {
            if object["metadata"]["finalizers"].is_array() {
                self.held.push(path_of(&object));
            }
            self.made.push(object);
        }
    }

    async fn follow_up(&mut self, server: &Server, follow_up: FollowUp) {
        let name = format!("follow-up {follow_up:?}");
        if follow_up == FollowUp::Token {
            return self.use_token(server, &name).await;
        }
        if follow_up == FollowUp::Found {
            return self.change_found(&name).await;
        }
        if self.made.is_empty() {
            return;
        }
        let place = usize::try_from(self.chance.draw_below(self.made.len() as u64)).unwrap();
        let mut object = self.made[place].clone();
        let path = path_of(&object);
        match follow_up {
            FollowUp::Label => {
                let body = json!({ "metadata": { "labels": { "team": "evil" } } });
                self.ask(&name, Sort::Plain, Method::PATCH, &path, &body).await;
            }
            FollowUp::Apply => {
                let path = format!("{path}?fieldManager=another&force=true");
                let body = json!({
                    "apiVersion": object["apiVersion"], "kind": object["kind"],
                    "metadata": { "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"], "labels": { "by": "another" } }
                });
                self.ask(&name, Sort::Plain, Method::PATCH, &path, &body).await;
            }
            FollowUp::NearChange => {
                let identity = (
                    object["metadata"]["name"].clone(),
                    object["metadata"]["namespace"].clone(),
                );
                let changed = mutate(&mut self.chance, &self.scene, &mut object);
                (object["metadata"]["name"], object["metadata"]["namespace"]) = identity;
                let has_finalizers = object["metadata"]["finalizers"].is_array();
                let answer = self
                    .ask(&format!("{name}: {changed}"), Sort::Near, Method::PATCH, &path, &object)
                    .await;
                if answer.is_success() && has_finalizers {
                    self.held.push(path);
                }
            }
            FollowUp::Hold => {
                self.made.remove(place);
                let finalizers = |list: Value| json!({ "metadata": { "finalizers": list } });
                self.ask(&name, Sort::Plain, Method::PATCH, &path, &finalizers(json!([HOLD])))
                    .await;
                self.held.push(path.clone());
                self.ask(&name, Sort::Plain, Method::DELETE, &path, &Value::Null).await;
                let patch = draw_patch(&mut self.chance, &self.scene);
                self.ask(
                    "follow-up Hold: a change while it goes",
                    Sort::Near,
                    Method::PATCH,
                    &path,
                    &patch,
                )
                .await;
                self.ask(&name, Sort::Plain, Method::PATCH, &path, &finalizers(Value::Null))
                    .await;
            }
            _ => {
                self.made.remove(place);
                self.ask(&name, Sort::Plain, Method::DELETE, &path, &Value::Null).await;
            }
        }
    }

    /// Requests a token of an account that it made, and writes with the token.
    async fn use_token(&mut self, server: &Server, name: &str) {
        let namespace = self.pick_namespace();
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{ROBOT}/token");
        let answer = self.ask(name, Sort::Plain, Method::POST, &path, &token_request()).await;
        let Some(token) = answer.body["status"]["token"].as_str() else {
            return;
        };
        let bearer = server.become_bearer(token).await;
        let place = usize::try_from(self.chance.draw_below(PRODUCTIONS.len() as u64)).unwrap();
        let mut object = self.draw(place);
        object["metadata"]["namespace"] = json!(namespace);
        let changed = mutate(&mut self.chance, &self.scene, &mut object);
        let path = collection_of(&object);
        let answer = bearer.send(Method::POST, &path, &object).await;
        let text = format!("as {ROBOT} POST {path} {object}");
        self.log.add(
            &format!("{name}: {}: {changed}", PRODUCTIONS[place].name),
            Sort::Near,
            text,
            &answer,
        );
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "of-a-robot", "namespace": namespace } });
        let answer = bearer.apply(&map).await;
        self.log
            .add(name, Sort::Plain, format!("as {ROBOT} applies {map}"), &answer);
    }

    /// Changes or deletes an object in its namespace that Tenure or Kubernetes wrote.
    async fn change_found(&mut self, name: &str) {
        let (version, kind) = self.chance.pick(&FOUND).copied().unwrap();
        let path = collection(version, &plural(kind), Some(&self.pick_namespace()));
        let listed = self.ask(name, Sort::Plain, Method::GET, &path, &Value::Null).await;
        let items = listed.body["items"].as_array().cloned().unwrap_or_default();
        let Some(found) = self
            .chance
            .pick(&items)
            .and_then(|item| item["metadata"]["name"].as_str())
        else {
            return;
        };
        let path = format!("{path}/{found}");
        let (method, body) = match self.chance.draw_below(4) {
            0 => (Method::DELETE, Value::Null),
            1 if kind == "RoleBinding" => {
                let owner = self.scene.of_evil("owner");
                let subject = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": owner });
                (Method::PATCH, json!({ "subjects": [subject] }))
            }
            1 => {
                self.held.push(path.clone());
                (Method::PATCH, json!({ "metadata": { "finalizers": [HOLD] } }))
            }
            _ => (Method::PATCH, draw_patch(&mut self.chance, &self.scene)),
        };
        self.ask(&format!("{name}: {kind}"), Sort::Near, method, &path, &body)
            .await;
    }

    /// Runs the next step of a namespace: it is created, holds an object, waits in its deletion, and is re-created too early. An administrator releases it, and it is
    /// created again.
    async fn go_on_with_namespace(&mut self, server: &Server) {
        const NAME: &str = "namespace cycle";
        let name = self.scene.of_evil("2");
        let (path, object) = (format!("/api/v1/namespaces/{name}"), self.name_namespace(&name));
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "held", "namespace": name, "finalizers": [HOLD] }
        });
        let map_path = path_of(&map);
        self.cycle += 1;
        match self.cycle {
            1 => {
                self.ask(NAME, Sort::Plain, Method::POST, "/api/v1/namespaces", &object)
                    .await;
            }
            2 => {
                // Rights in a namespace follow a moment after its creation.
                let answer = self.retry(OWN_PATIENCE, async || self.owner.create(&map).await).await;
                self.log.add(NAME, Sort::Plain, format!("creates {map}"), &answer);
                self.held.push(map_path);
            }
            3 => {
                self.ask(NAME, Sort::Plain, Method::DELETE, &path, &Value::Null).await;
            }
            4 => {
                self.ask(
                    "namespace cycle: too early",
                    Sort::Near,
                    Method::POST,
                    "/api/v1/namespaces",
                    &object,
                )
                .await;
                let patch = draw_patch(&mut self.chance, &self.scene);
                self.ask(
                    "namespace cycle: a change while it goes",
                    Sort::Near,
                    Method::PATCH,
                    &path,
                    &patch,
                )
                .await;
            }
            5 => {
                // Its rights there were deleted with the bindings.
                let body = json!({ "metadata": { "finalizers": null } });
                self.ask(
                    "namespace cycle: a release",
                    Sort::Near,
                    Method::PATCH,
                    &map_path,
                    &body,
                )
                .await;
            }
            _ => {
                self.release_all(&server.admin).await;
                let again = self
                    .retry(OWN_PATIENCE, async || self.owner.create(&object).await)
                    .await;
                self.log
                    .add(NAME, Sort::Plain, format!("creates {object} again"), &again);
            }
        }
    }

    async fn try_namespace(&mut self, change: Change) {
        let name = format!("namespace {change:?}");
        let own = [self.scene.evil.clone(), self.scene.of_evil("1")];
        let write_path = |name: &str| format!("/api/v1/namespaces/{name}");
        match change {
            Change::Create => {
                let object = self.name_namespace(&self.scene.of_evil("3"));
                self.ask(&name, Sort::Plain, Method::POST, "/api/v1/namespaces", &object)
                    .await;
            }
            Change::CreateNear => {
                let mut object = self.name_namespace(&self.scene.of_evil("4"));
                let changed = self.change_namespace(&mut object);
                self.ask(
                    &format!("{name}: {changed}"),
                    Sort::Near,
                    Method::POST,
                    "/api/v1/namespaces",
                    &object,
                )
                .await;
            }
            Change::Label => {
                let body = json!({ "metadata": { "labels": { "team": "evil" } } });
                self.ask(&name, Sort::Plain, Method::PATCH, &write_path(&own[1]), &body)
                    .await;
            }
            Change::Near => {
                let chosen = self.chance.pick(&own).cloned().unwrap();
                let part = if self.chance.once_in(4) { "/status" } else { "" };
                let patch = draw_patch(&mut self.chance, &self.scene);
                self.ask(
                    &name,
                    Sort::Near,
                    Method::PATCH,
                    &format!("{}{part}", write_path(&chosen)),
                    &patch,
                )
                .await;
            }
            Change::DeleteNear => {
                let mut others = self.scene.list_foreign();
                if self.chance.once_in(8) {
                    others.push(self.scene.evil.clone());
                }
                let chosen = self.chance.pick(&others).cloned().unwrap();
                self.ask(&name, Sort::Near, Method::DELETE, &write_path(&chosen), &Value::Null)
                    .await;
            }
        }
    }

    fn name_namespace(&self, name: &str) -> Value {
        let labels = json!({ "capsule.clastix.io/tenant": self.scene.evil });
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
    }

    fn change_namespace(&mut self, object: &mut Value) -> &'static str {
        let (chance, scene) = (&mut self.chance, &self.scene);
        match chance.draw_below(7) {
            0..=2 => {
                object["metadata"]["name"] = json!(chance.pick(&scene.list_mentioned()).unwrap());
                "a name that something has"
            }
            3 => {
                let (key, value) = draw_label(chance, scene);
                object["metadata"]["labels"][&key] = value;
                "a label"
            }
            4 => {
                let (key, value) = draw_annotation(chance, scene);
                object["metadata"]["annotations"][&key] = value;
                "an annotation"
            }
            5 => {
                object["metadata"]["ownerReferences"] = json!([draw_owner(chance, scene)]);
                "an ownerReference"
            }
            _ => {
                object["metadata"]["finalizers"] = json!([draw_finalizer(chance)]);
                "a finalizer"
            }
        }
    }

    /// Commits objects to its repository. Its Surface applies them with the rights of its account.
    async fn commit(&mut self) {
        let count = 1 + self.chance.draw_below(3);
        let mut files = Vec::new();
        for number in 0..count {
            let place = usize::try_from(self.chance.draw_below(PRODUCTIONS.len() as u64)).unwrap();
            let mut object = self.draw(place);
            if self.chance.once_in(2) {
                mutate(&mut self.chance, &self.scene, &mut object);
            }
            files.push((format!("drawn-{number}.yaml"), object.to_string()));
        }
        self.log.note(format!("commits {files:?}"));
        self.repository.commit(files, "drawn").await.unwrap();
        self.named += 1;
        ask_for_fetch(&self.owner, &self.scene.evil, &format!("commit-{}", self.named)).await;
    }

    /// Repeats a request until it is admitted or the time is over. Returns the last answer.
    async fn retry(&self, patience: Duration, mut send: impl AsyncFnMut() -> Answer) -> Answer {
        let begun = Instant::now();
        loop {
            let answer = send().await;
            if answer.is_success() {
                return answer;
            }
            if begun.elapsed() > patience {
                println!("{} gives up after {patience:?}: {answer:?}", self.scene.evil);
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(120)).await;
        }
    }
}

fn token_request() -> Value {
    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} })
}

fn path_of(object: &Value) -> String {
    format!(
        "{}/{}",
        collection_of(object),
        object["metadata"]["name"].as_str().unwrap_or_default()
    )
}
