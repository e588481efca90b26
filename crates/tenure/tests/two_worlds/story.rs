//! The story of tenant `alpha`, and the requests of `evil` beside it.

use std::fmt;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tenure_git_server::Repository;
use tenure_testkit::Chance;

use crate::api::User;
use crate::grammar::{Sender, Step, draw_step};
use crate::metadata::Scene;
use crate::servers::Server;
use crate::world::PATIENCE;

/// The part that `evil` has in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evil {
    /// There is no such tenant.
    Absent,
    /// A tenant with the rights that its Tenant gives.
    Hostile,
    /// The same, whose owner an administrator bound in `alpha`: a hole that must be noticed.
    Privileged,
}

/// The code of a commit, which no server answers.
const COMMITTED: u16 = 0;

/// A step of `evil` with its answer.
pub(crate) struct Done {
    step: String,
    code: u16,
    message: String,
}

impl Done {
    /// A commit is no request to the API server.
    pub(crate) fn is_request(&self) -> bool {
        self.code != COMMITTED
    }

    pub(crate) fn is_admitted(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// The answer in a few words, for counting: the code, and of a refusal by admission the rule.
    pub(crate) fn describe_answer(&self) -> String {
        let rule = self
            .message
            .rsplit_once(" (")
            .and_then(|(_, rule)| rule.strip_suffix(')'));
        match rule {
            Some(rule) if !self.is_admitted() && rule.len() < 40 => format!("{} {rule}", self.code),
            _ => self.code.to_string(),
        }
    }
}

/// Everything that `evil` did in a world.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) steps: Vec<Done>,
}

impl fmt::Display for Log {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for done in &self.steps {
            writeln!(formatter, "  {} {}: {}", done.code, done.step, done.message)?;
        }
        Ok(())
    }
}

/// The attacker of a world: its requests follow from the seed.
struct Attacker {
    chance: Chance,
    scene: Scene,
    owner: User,
    repository: Option<Repository>,
    log: Log,
}

impl Attacker {
    /// Sends some requests.
    async fn send_burst(&mut self, server: &Server) {
        let Some(repository) = self.repository.clone() else {
            return;
        };
        for _ in 0..4 + self.chance.below(5) {
            let step = draw_step(&mut self.chance, &self.scene);
            let done = self.carry_out(server, &repository, step).await;
            self.log.steps.push(done);
        }
    }

    async fn carry_out(&self, server: &Server, repository: &Repository, step: Step) -> Done {
        match step {
            Step::Commit(objects) => {
                let files = objects.iter().enumerate();
                let files: Vec<(String, String)> = files
                    .map(|(number, object)| (format!("drawn-{number}.yaml"), object.to_string()))
                    .collect();
                let text = format!("commits {}", Value::from(objects));
                repository.commit(files, "drawn").await.unwrap();
                done(text, COMMITTED, "")
            }
            Step::Request(sender, method, path, body) => self.send(server, &sender, method, &path, &body).await,
            Step::Found(sender, collection, index, method, body) => {
                let listed = self.owner.get(&collection).await;
                let items = listed.body["items"].as_array().cloned().unwrap_or_default();
                // Most are few: a name of what is missing is a request too.
                let item = items.get(index).or_else(|| items.first());
                let name = item.and_then(|item| item["metadata"]["name"].as_str()).unwrap_or("app");
                let path = format!("{collection}/{name}");
                self.send(server, &sender, method, &path, &body).await
            }
        }
    }

    async fn send(&self, server: &Server, sender: &Sender, method: Method, path: &str, body: &Value) -> Done {
        let text = format!("{sender:?} {method} {path} {body}");
        let user = match sender {
            Sender::Owner => self.owner.clone(),
            Sender::Account(namespace, name) => {
                let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
                let token = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
                let answer = self.owner.send(Method::POST, &token, &request).await;
                match answer.body["status"]["token"].as_str() {
                    Some(token) => server.become_bearer(token).await,
                    None => return done(text, answer.code, answer.message()),
                }
            }
        };
        let answer = user.send(method, path, body).await;
        let message = if answer.is_success() { "" } else { answer.message() };
        done(text, answer.code, message)
    }
}

fn done(step: String, code: u16, message: &str) -> Done {
    Done {
        step,
        code,
        message: message.to_owned(),
    }
}

/// Plays the whole story in a world. Returns what `alpha` was answered, and what `evil` did.
pub(crate) async fn play(server: &mut Server, seed: u64, evil: Evil) -> (Vec<String>, Log) {
    let mut chance = Chance::new(seed);
    prepare_platform(server).await;
    let repository = prepare_alpha(server).await;
    let mut attacker = prepare_evil(server, seed, evil).await;
    let owner = server
        .admin
        .impersonating("alpha-owner", &["system:authenticated", "capsule.clastix.io"]);
    let mut answers = Vec::new();
    let mut steps: Vec<usize> = (0..STEPS).collect();
    // The order of the steps follows from the seed, but for the first and the last.
    for place in 1..STEPS - 1 {
        let other = 1 + usize::try_from(chance.below(STEPS as u64 - 2)).unwrap();
        steps.swap(place, other);
    }
    for (number, step) in steps.into_iter().enumerate() {
        if number == STEPS / 2 {
            server.kill_controllers();
            attacker.send_burst(server).await;
            server.restart_controllers().await;
        }
        let (answer, ()) = tokio::join!(
            take_step(server, &owner, &repository, step),
            attacker.send_burst(server)
        );
        answers.push((step, answer));
    }
    commit(&repository, LAST).await;
    wait_for_version(server, LAST).await;
    answers.sort();
    (answers.into_iter().map(|(_, answer)| answer).collect(), attacker.log)
}

/// How many steps `alpha` takes.
const STEPS: usize = 8;
/// The version that `alpha`'s last commit brings.
const LAST: u64 = 100;

async fn take_step(server: &Server, owner: &User, repository: &Repository, step: usize) -> String {
    let answer = match step {
        0 => {
            let labels = json!({ "capsule.clastix.io/tenant": "alpha" });
            // Rights in a namespace come a moment after it.
            let made = owner
                .create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "alpha-dev", "labels": labels } }))
                .await;
            let probe = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "first", "namespace": "alpha-dev" } });
            until(
                async || owner.apply(&probe).await.is_success(),
                "alpha-owner has rights in alpha-dev",
            )
            .await;
            made
        }
        1 => {
            let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "api-key", "namespace": "alpha-dev" }, "stringData": { "key": "sesame" } });
            owner.apply(&secret).await
        }
        2 => {
            commit(repository, 2).await;
            wait_for_version(server, 2).await;
            return "applied 2".to_owned();
        }
        3 => {
            let backend = json!({ "service": { "name": "web", "port": { "number": 80 } } });
            let rule = json!({ "host": "alpha.example", "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": backend }] } });
            owner
                .apply(&json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "web", "namespace": "alpha-dev" }, "spec": { "rules": [rule] } }))
                .await
        }
        4 => {
            let subject = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alpha-guest" });
            let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" });
            owner
                .apply(&json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "guest", "namespace": "alpha-dev" }, "roleRef": role, "subjects": [subject] }))
                .await
        }
        5 => {
            let claim = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": "absent", "resources": { "requests": { "storage": "1Gi" } } });
            owner
                .apply(&json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data", "namespace": "alpha-dev" }, "spec": claim }))
                .await
        }
        6 => {
            let owners = json!({ "spec": { "owners": [
                { "kind": "User", "name": "alpha-owner" }, { "kind": "User", "name": "alpha-second" },
                { "kind": "ServiceAccount", "name": "system:serviceaccount:alpha-bots:robot" }
            ] } });
            server
                .admin
                .send(Method::PATCH, "/apis/capsule.clastix.io/v1beta2/tenants/alpha", &owners)
                .await
        }
        _ => {
            commit(repository, 3).await;
            wait_for_version(server, 3).await;
            return "applied 3".to_owned();
        }
    };
    format!(
        "step {step}: {} {}",
        answer.code,
        if answer.is_success() { "" } else { answer.message() }
    )
}

/// What a platform has that tenants may be tempted by: rights of what is not installed any more, and volumes.
async fn prepare_platform(server: &Server) {
    let group = |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name });
    let role = |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
    let binding = |name: &str, role: Value, subject: Value| json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name }, "roleRef": role, "subjects": [subject] });
    let volume = |name: &str, labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name, "labels": labels },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/srv" },
                "persistentVolumeReclaimPolicy": "Retain" }
        })
    };
    let left = json!({ "kind": "ServiceAccount", "namespace": "argocd", "name": "argocd-application-controller" });
    for object in [
        binding("argocd-application-controller", role("cluster-admin"), left),
        binding(
            "monitoring-admins",
            role("cluster-admin"),
            group("system:serviceaccounts:monitoring"),
        ),
        volume("alpha-old", json!({ "capsule.clastix.io/tenant": "alpha" })),
        volume("platform-data", json!({})),
    ] {
        let answer = server.admin.apply(&object).await;
        assert!(answer.is_success(), "{object}: {answer:?}");
    }
}

fn tenant(name: &str, more_owners: &[Value]) -> Value {
    let mut owners = vec![json!({ "kind": "User", "name": format!("{name}-owner") })];
    owners.extend_from_slice(more_owners);
    json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": name },
        "spec": {
            "owners": owners, "namespaceOptions": { "quota": 6 },
            "ingressOptions": { "allowedHostnames": { "allowed": [format!("{name}.example")] }, "hostnameCollisionScope": "Cluster" },
            "networkPolicies": { "items": [{ "podSelector": {}, "policyTypes": ["Ingress"] }] },
            "serviceOptions": { "allowedServices": { "nodePort": false, "externalName": false } }
        }
    })
}

async fn make_tenant(server: &Server, name: &str, more_owners: &[Value]) {
    let answer = server.admin.apply(&tenant(name, more_owners)).await;
    assert!(answer.is_success(), "{answer:?}");
    let path = format!("/apis/capsule.clastix.io/v1beta2/tenants/{name}");
    until(
        async || is_ready(&server.admin.get(&path).await.body),
        "a Tenant is Ready",
    )
    .await;
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// Makes Tenant alpha with a Surface. One of its owners, and a subject of its bindings, are accounts of namespaces that are still to come.
async fn prepare_alpha(server: &Server) -> Repository {
    let robot = json!({ "kind": "ServiceAccount", "name": "system:serviceaccount:alpha-bots:robot" });
    make_tenant(server, "alpha", &[robot]).await;
    let subject = json!({ "kind": "ServiceAccount", "namespace": "alpha-ci", "name": "deployer" });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "deployer", "namespace": "alpha" }, "roleRef": role, "subjects": [subject]
    });
    let answer = server.admin.apply(&binding).await;
    assert!(answer.is_success(), "{answer:?}");
    let repository = server.git.create("alpha").await.unwrap();
    commit(&repository, 1).await;
    let surface = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": { "name": "app", "namespace": "alpha" },
        "spec": { "sources": [{ "name": "app", "url": server.git.http_url("alpha"), "ref": { "branch": "main" },
            "interval": "1s", "retryInterval": "1s", "targetNamespace": "alpha" }] }
    });
    let answer = server.admin.apply(&surface).await;
    assert!(answer.is_success(), "{answer:?}");
    wait_for_version(server, 1).await;
    repository
}

async fn prepare_evil(server: &Server, seed: u64, evil: Evil) -> Attacker {
    let uid_of = async |name: &str| {
        let path = format!("/apis/capsule.clastix.io/v1beta2/tenants/{name}");
        server.admin.get(&path).await.body["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let mut repository = None;
    if evil != Evil::Absent {
        make_tenant(server, "evil", &[]).await;
        let subject = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "evil-owner" });
        let bind = |namespace: &str, name: &str, kind: &str, role: &str| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": { "name": name, "namespace": namespace }, "subjects": [subject],
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role }
            })
        };
        let groups = [
            "kustomize.toolkit.fluxcd.io",
            "notification.toolkit.fluxcd.io",
            "source.toolkit.fluxcd.io",
            "tenure.dev",
        ];
        let mut objects = vec![
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "flux", "namespace": "evil" },
                "rules": [{ "apiGroups": groups, "resources": ["*"], "verbs": ["*"] }]
            }),
            bind("evil", "flux", "Role", "flux"),
            bind("evil", "home-admin", "ClusterRole", "admin"),
        ];
        if evil == Evil::Privileged {
            objects.push(bind("alpha", "helper", "ClusterRole", "admin"));
        }
        for object in objects {
            let answer = server.admin.apply(&object).await;
            assert!(answer.is_success(), "{object}: {answer:?}");
        }
        let made = server.git.create("evil").await.unwrap();
        made.commit(
            [(
                "drawn-0.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: evil }\n",
            )],
            "first",
        )
        .await
        .unwrap();
        repository = Some(made);
    }
    Attacker {
        chance: Chance::new(seed.wrapping_add(1 << 32)),
        scene: Scene {
            alpha_uid: uid_of("alpha").await,
            evil_uid: uid_of("evil").await,
            git: server
                .git
                .http_url("")
                .trim_end_matches('/')
                .trim_end_matches("/.git")
                .to_owned(),
        },
        owner: server
            .admin
            .impersonating("evil-owner", &["system:authenticated", "capsule.clastix.io"]),
        repository,
        log: Log::default(),
    }
}

/// Commits the application in a version. Odd versions have a Service.
async fn commit(repository: &Repository, version: u64) {
    let map = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: app }}\ndata: {{ version: '{version}' }}\n");
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: web }\nspec:\n  selector: { matchLabels: { app: web } }\n  template:\n    metadata: { labels: { app: web } }\n    spec: { containers: [{ name: web, image: 'registry.example/web:1' }] }\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata: { name: web }\nspec: { selector: { app: web }, ports: [{ port: 80 }] }\n";
    let last = if version % 2 == 1 { service } else { "" };
    let files = [
        ("app.yaml", map.as_str()),
        ("web.yaml", deployment),
        ("service.yaml", last),
    ];
    repository.commit(files, &format!("version {version}")).await.unwrap();
}

async fn wait_for_version(server: &Server, version: u64) {
    let is_applied = async || {
        let found = server.admin.get("/api/v1/namespaces/alpha/configmaps/app").await;
        let found = found.body["data"]["version"]
            .as_str()
            .and_then(|text| text.parse::<u64>().ok());
        found == Some(version)
    };
    until(is_applied, &format!("alpha's version {version} is applied")).await;
}

/// Asks until the answer is yes.
async fn until(mut ask: impl AsyncFnMut() -> bool, expected: &str) {
    let begun = Instant::now();
    while !ask().await {
        assert!(begun.elapsed() < PATIENCE, "{expected}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
}
