//! A namespace in which a story is played.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};
use tenure_git_server::{Content as File, Repository};
use tenure_testkit::{SOON, eventually};

use super::checks::{Around, Key, Observed, Tally};
use super::objects::{ACCOUNT, KINDS, RBAC, key_of, list_rules, write_account, write_slot};
use super::plot::{Action, Content, Lack, Plot, RESOURCES, SLOTS, Slot, Turn, Version};
use crate::rights::is_allowed;
use crate::stage::{GIT_REPOSITORY, KUSTOMIZATION, Stage, condition, config_map};

const HOLD: &str = "stories.example.org/hold";
/// The namespace in the files of the repository.
const VARIABLE: &str = "${NAMESPACE}";
const VERBS: [&str; 3] = ["create", "patch", "delete"];
/// The most times that an administrator allows deletions in a turn.
const MOST_PERMISSIONS: usize = 6;

/// The Kustomization at rest.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Rest {
    pub(super) fn is_ready(&self) -> bool {
        self.status == "True"
    }
}

/// The sign that the Kustomization has seen the change of a turn.
enum Sign {
    Revision(String),
    Request(String),
    /// Ready says something else.
    NewMessage(String),
}

pub(super) struct World<'s> {
    pub(super) stage: &'s Stage,
    pub(super) namespace: String,
    repository: Repository,
    files: BTreeSet<String>,
    pub(super) around: Around,
    commits: usize,
    requests: usize,
    pub(super) tally: Tally,
    pub(super) log: String,
}

impl<'s> World<'s> {
    /// Creates the namespace, the account, and the objects that exist before the first commit.
    pub(super) async fn set_up(stage: &'s Stage, namespace: String, plot: &Plot) -> Self {
        set_account(stage, &namespace).await;
        let mut around = Around {
            force: plot.force,
            prune: true,
            is_partial: plot.is_partial,
            ..Around::default()
        };
        for slot in &plot.adopted {
            for mut object in write_slot(*slot, Version::default(), &namespace) {
                object["metadata"]["annotations"]["stories.example.org/left"] = json!("over");
                let created = apply_by_kubectl(stage, object, &namespace).await;
                let uid = created["metadata"]["uid"].as_str().unwrap().to_owned();
                around.adopted.insert(key_of(&created), uid);
            }
        }
        let of_child = config_map("of-child", "1");
        let first = [("app/readme.md", "0"), ("child/a.yaml", of_child.as_str())];
        let repository = stage.repository(&namespace, "app", &first).await;
        let world = Self {
            stage,
            namespace,
            repository,
            files: BTreeSet::new(),
            around,
            commits: 0,
            requests: 0,
            tally: Tally::default(),
            log: String::new(),
        };
        world.create_kustomization(&world.namespace, json!([])).await;
        world
    }

    pub(super) fn target(&self) -> (&str, &str) {
        (&self.namespace, "app")
    }

    async fn create_kustomization(&self, namespace: &str, patches: Value) {
        let mut annotations = json!({});
        if self.around.is_partial {
            annotations["tenure.dev/apply"] = json!("Partial");
        }
        let object = json!({
            "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1,
            "metadata": { "name": "app", "namespace": namespace, "annotations": annotations },
            "spec": {
                "interval": "10m", "retryInterval": "1s", "timeout": "60s", "prune": self.around.prune, "force": self.around.force,
                "path": "./app", "postBuild": { "substitute": { "NAMESPACE": namespace } }, "serviceAccountName": ACCOUNT, "patches": patches,
                "sourceRef": { "kind": "GitRepository", "name": "app" }
            }
        });
        self.stage.admin.apply(object).await.unwrap();
    }

    /// Applies the same repository in a new namespace, and returns the namespace. Its objects in other namespaces are left out.
    pub(super) async fn apply_afresh(&self) -> String {
        let fresh = format!("{}-fresh", self.namespace);
        set_account(self.stage, &fresh).await;
        let source = json!({
            "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1, "metadata": { "name": "app", "namespace": fresh },
            "spec": {
                "url": self.stage.git.http_url(&format!("{}-app", self.namespace)), "ref": { "branch": "main" }, "interval": "1h"
            }
        });
        self.stage.admin.apply(source).await.unwrap();
        let delete = |kind: &str| {
            let patch = format!("$patch: delete\napiVersion: v1\nkind: {kind}\nmetadata:\n  name: any\n");
            json!({ "target": { "kind": kind }, "patch": patch })
        };
        self.create_kustomization(&fresh, json!([delete("Namespace"), delete("Kustomization")]))
            .await;
        let head = self.repository.resolve("main").await.unwrap().unwrap();
        self.stage.wait_for_commit((&fresh, "app"), &head).await;
        fresh
    }

    /// Plays one turn, until the Kustomization rests.
    pub(super) async fn play(&mut self, turn: &Turn) -> Rest {
        writeln!(self.log, "{:?}, allows {}", turn.action, turn.allows).unwrap();
        let sign = match &turn.action {
            Action::Commit(content) => Sign::Revision(self.commit(content).await),
            Action::SetRights(lack) => {
                self.set_rights(*lack).await;
                self.request().await
            }
            Action::SetForce(force) => {
                self.around.force = *force;
                self.change_spec(json!({ "force": force })).await
            }
            Action::SetPrune(prune) => {
                self.around.prune = *prune;
                self.change_spec(json!({ "prune": prune })).await
            }
            Action::Hold(slot) => {
                self.hold(*slot).await;
                self.request().await
            }
            Action::Release => {
                self.release().await;
                self.request().await
            }
        };
        self.come_to_rest(sign, turn.allows).await
    }

    /// Gives the account back what a commit took from it.
    pub(super) async fn restore_account(&mut self) -> Rest {
        writeln!(self.log, "the account is restored").unwrap();
        for object in write_account(ACCOUNT, ACCOUNT, &self.namespace) {
            apply_by_kubectl(self.stage, object, &self.namespace).await;
        }
        self.await_rights(None).await;
        let sign = self.request().await;
        self.come_to_rest(sign, false).await
    }

    /// Waits until the Kustomization rests. An administrator allows the deletions that a guard stops, if `allows` says so.
    async fn come_to_rest(&mut self, sign: Sign, allows: bool) -> Rest {
        let mut rest = self.await_rest(&sign).await;
        self.around.has_allowed = false;
        for _ in 0..MOST_PERMISSIONS {
            writeln!(self.log, "  {} {}: {}", rest.status, rest.reason, rest.message).unwrap();
            if !allows || !rest.message.contains("tenure.dev/allow-deletion=") {
                return rest;
            }
            self.allow(&rest.message).await;
            rest = self.await_rest(&Sign::NewMessage(rest.message.clone())).await;
        }
        panic!("the guard asks again and again");
    }

    /// Allows the deletion of the objects that a guard's message names, and notes which these are now.
    pub(super) async fn allow(&mut self, message: &str) {
        let mut digests = BTreeSet::new();
        for line in message.lines() {
            let Some((named, digest)) = line.rsplit_once("tenure.dev/allow-deletion=") else {
                continue;
            };
            digests.insert(digest.trim().to_owned());
            for (key, object) in self.observe(&self.namespace).await {
                let subject = match key.0.as_str() {
                    "Namespace" => format!("Namespace/{}", key.1),
                    kind => format!("{kind}/{}/{}", self.namespace, key.1),
                };
                let is_named = named
                    .split([' ', ','])
                    .any(|word| word.trim_end_matches(['.', ':']) == subject);
                if is_named {
                    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
                    self.around.permitted.insert(uid);
                }
            }
        }
        self.around.has_allowed = true;
        let digests: Vec<String> = digests.into_iter().collect();
        let allow = json!({ "metadata": { "annotations": { "tenure.dev/allow-deletion": digests.join(",") } } });
        self.stage
            .admin
            .patch(KUSTOMIZATION, self.target(), allow)
            .await
            .unwrap();
    }

    async fn await_rest(&self, sign: &Sign) -> Rest {
        let came = eventually(SOON, || async {
            let object = self.stage.get(KUSTOMIZATION, self.target()).await.unwrap();
            self.read_rest(&object, sign)
                .ok_or_else(|| format!("{:#}", object["status"]))
        });
        match came.await {
            Ok(rest) => rest,
            Err(last) => panic!("it did not come to rest; last seen: {last}"),
        }
    }

    fn read_rest(&self, object: &Value, sign: &Sign) -> Option<Rest> {
        let status = &object["status"];
        let ready = condition(object, "Ready")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let message = text(&ready["message"]);
        // A kind may be known a moment after its definition is stored.
        let is_over = ["True", "False"].contains(&&*text(&ready["status"])) && ready["reason"] != "UnknownKind";
        let is_held = !self.around.held.is_empty() && message.contains("finalizers hold it");
        let is_seen = match sign {
            Sign::Revision(revision) => is_held || text(&status["lastAttemptedRevision"]).ends_with(revision),
            Sign::Request(token) => is_held || status["lastHandledReconcileAt"] == **token,
            Sign::NewMessage(before) => message != *before,
        };
        let is_current = ready["observedGeneration"] == object["metadata"]["generation"];
        if !(is_held || is_seen && is_current && is_over) {
            return None;
        }
        Some(Rest {
            status: text(&ready["status"]),
            reason: text(&ready["reason"]),
            message,
        })
    }

    /// Returns the keys of the inventory's entries.
    pub(super) async fn read_inventory(&self) -> BTreeSet<Key> {
        let object = self.stage.get(KUSTOMIZATION, self.target()).await.unwrap();
        let entries = object["status"]["inventory"]["entries"].as_array().cloned();
        let key = |entry: &Value| {
            let parts: Vec<&str> = entry["id"].as_str().unwrap().split('_').collect();
            (parts[3].to_owned(), parts[1].to_owned())
        };
        entries.unwrap_or_default().iter().map(key).collect()
    }

    /// Commits a content, and asks the source to fetch it now.
    async fn commit(&mut self, content: &Content) -> String {
        self.commits += 1;
        let mut files: Vec<(String, File)> = vec![("app/readme.md".to_owned(), self.commits.to_string().into())];
        for slot in SLOTS {
            let path = format!("app/{slot:?}.yaml").to_lowercase();
            match content.get(&slot) {
                Some(version) => {
                    let mut objects = write_slot(slot, *version, VARIABLE);
                    for object in objects.iter_mut().filter(|object| object["kind"] != "Namespace") {
                        object["metadata"]["namespace"] = json!(VARIABLE);
                    }
                    let text: String = objects.iter().map(|object| format!("---\n{object}\n")).collect();
                    files.push((path.clone(), text.into()));
                    self.files.insert(path);
                }
                None if self.files.remove(&path) => files.push((path, File::Removed)),
                None => {}
            }
        }
        let revision = self.repository.commit(files, "a change").await.unwrap();
        self.around.content = content.clone();
        let now = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": revision } } });
        self.stage
            .admin
            .patch(GIT_REPOSITORY, self.target(), now)
            .await
            .unwrap();
        revision
    }

    /// Requests an attempt.
    async fn request(&mut self) -> Sign {
        self.requests += 1;
        let token = format!("request-{}", self.requests);
        let now = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": token } } });
        self.stage.admin.patch(KUSTOMIZATION, self.target(), now).await.unwrap();
        Sign::Request(token)
    }

    async fn change_spec(&mut self, spec: Value) -> Sign {
        let change = json!({ "spec": spec });
        self.stage
            .admin
            .patch(KUSTOMIZATION, self.target(), change)
            .await
            .unwrap();
        self.request().await
    }

    /// Changes the rights of the account, and waits until RBAC has applied that.
    async fn set_rights(&mut self, lack: Option<Lack>) {
        let before = self.around.lack;
        let role = write_role(&self.namespace, lack);
        self.stage.admin.apply(role).await.unwrap();
        self.around.lack = lack;
        self.await_rights(before).await;
    }

    async fn await_rights(&self, before: Option<Lack>) {
        let user = format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace);
        let in_force = eventually(SOON, || async {
            for (group, resource) in RESOURCES {
                for verb in VERBS {
                    let asked = Some((verb, resource));
                    let is_changed = [before, self.around.lack].contains(&asked) || resource == "keepers";
                    let named = format!("{group}:{resource}");
                    let is_wanted = self.around.lack != asked;
                    if is_changed
                        && is_allowed(self.stage, &user, &self.namespace, (verb, &named, "x")).await != is_wanted
                    {
                        return Err(format!("{verb} {resource}"));
                    }
                }
            }
            Ok(())
        });
        in_force.await.unwrap();
    }

    /// Puts a finalizer on the objects of a slot.
    async fn hold(&mut self, slot: Slot) {
        for object in write_slot(slot, Version::default(), &self.namespace) {
            let key = key_of(&object);
            let found = self.find(&key).await;
            if let Some(live) = found.filter(|live| live["metadata"].get("deletionTimestamp").is_none()) {
                self.set_finalizers(&key, &live, true).await;
                self.around.held.insert(key);
            }
        }
    }

    /// Removes the finalizers of the story.
    pub(super) async fn release(&mut self) {
        for key in std::mem::take(&mut self.around.held) {
            if let Some(live) = self.find(&key).await {
                self.set_finalizers(&key, &live, false).await;
            }
        }
    }

    async fn set_finalizers(&self, key: &Key, live: &Value, holds: bool) {
        let finalizers = live["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let others = finalizers.into_iter().filter(|finalizer| finalizer != HOLD);
        let finalizers: Vec<Value> = others.chain(holds.then(|| json!(HOLD))).collect();
        let change = json!({ "metadata": { "finalizers": finalizers } });
        let target = (&*self.namespace, &*key.1);
        self.stage.admin.patch(kind_of(key), target, change).await.unwrap();
    }

    async fn find(&self, key: &Key) -> Option<Value> {
        self.stage.get(kind_of(key), (&self.namespace, &key.1)).await
    }

    /// Returns the objects of all slots that exist in a namespace, and the namespace beside it.
    pub(super) async fn observe(&self, namespace: &str) -> Observed {
        let known: BTreeSet<Key> = SLOTS
            .into_iter()
            .flat_map(|slot| write_slot(slot, Version::default(), namespace))
            .map(|object| key_of(&object))
            .collect();
        let mut observed = Observed::new();
        for kind in KINDS {
            let objects = match kind.1 {
                "Namespace" => {
                    let space = format!("{namespace}-space");
                    self.stage.get(kind, ("", &space)).await.into_iter().collect()
                }
                _ => self.stage.admin.list(kind, namespace).await.unwrap(),
            };
            for mut object in objects {
                object["kind"] = json!(kind.1);
                let key = key_of(&object);
                if known.contains(&key) {
                    observed.insert(key, object);
                }
            }
        }
        observed
    }

    /// Does what an operator does: each keeper owns a claim.
    pub(super) async fn give_claims(&self, observed: &Observed) {
        let Some(keeper) = observed.get(&("Keeper".to_owned(), "keeper".to_owned())) else {
            return;
        };
        if keeper["metadata"].get("deletionTimestamp").is_some() {
            return;
        }
        let uid = keeper["metadata"]["uid"].as_str().unwrap();
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": format!("data-{uid}"), "namespace": self.namespace, "ownerReferences": [{
                "apiVersion": "stories.example.org/v1", "kind": "Keeper", "name": "keeper", "uid": uid
            }] },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } }
        });
        self.stage.admin.apply_as("operator", claim).await.unwrap();
    }

    /// Removes what the story leaves.
    pub(super) async fn clean_up(self) {
        let admin = &self.stage.admin;
        let fresh = format!("{}-fresh", self.namespace);
        for namespace in [&self.namespace, &fresh] {
            for kind in [KUSTOMIZATION, GIT_REPOSITORY] {
                if self.stage.get(("v1", "Namespace"), ("", namespace)).await.is_some() {
                    admin.delete(kind, (namespace, "app")).await.unwrap();
                }
            }
            let name = format!("{namespace}-{ACCOUNT}");
            admin.delete((RBAC, "ClusterRoleBinding"), ("", &name)).await.unwrap();
            admin.delete((RBAC, "ClusterRole"), ("", &name)).await.unwrap();
        }
    }
}

fn kind_of(key: &Key) -> (&'static str, &'static str) {
    KINDS.into_iter().find(|(_, kind)| *kind == key.0).unwrap()
}

fn write_role(namespace: &str, lack: Option<Lack>) -> Value {
    json!({
        "apiVersion": RBAC, "kind": "Role", "metadata": { "name": ACCOUNT, "namespace": namespace }, "rules": list_rules(lack)
    })
}

async fn apply_by_kubectl(stage: &Stage, mut object: Value, namespace: &str) -> Value {
    if object["kind"] != "Namespace" {
        object["metadata"]["namespace"] = json!(namespace);
    }
    stage.admin.apply_as("kubectl", object).await.unwrap()
}

/// Creates a namespace with the account that applies, its rights, and those of a child's account.
async fn set_account(stage: &Stage, namespace: &str) {
    stage.namespace(namespace).await;
    let mut child = write_role(namespace, None);
    child["metadata"]["name"] = json!("child");
    let name = format!("{namespace}-{ACCOUNT}");
    let rules =
        json!([{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "create", "patch", "delete"] }]);
    let of_cluster = [
        json!({ "apiVersion": RBAC, "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules }),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace }]
        }),
    ];
    for object in [write_role(namespace, None), child].into_iter().chain(of_cluster) {
        stage.admin.apply(object).await.unwrap();
    }
    for object in write_account(ACCOUNT, ACCOUNT, namespace) {
        apply_by_kubectl(stage, object, namespace).await;
    }
}
