//! The story of tenant `alpha`, and the requests of `evil` beside it. A server plays several stories at the same time, each with names of its own.

use futures::future::join_all;
use http::Method;
use serde_json::json;
use tenure_git_server::Repository;
use tenure_testkit::Chance;

use crate::api::User;
use crate::attacker::Attacker;
use crate::cast::Scene;
use crate::grammar::shuffle;
use crate::host;
use crate::log::Log;
use crate::platform::{
    ask_for_fetch, commit, future_owner, prepare_alpha, prepare_evil, tenant_path, wait_for_version, wait_until,
};
use crate::productions::{INGRESS_CLASS, STORAGE_CLASS};
use crate::servers::Server;

/// The role of `evil` in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evil {
    /// The tenant doesn't exist.
    Absent,
    /// A tenant with the rights that its Tenant gives.
    Hostile,
    /// A hostile tenant whose owner an administrator bound in `alpha`: a hole that the test must notice.
    Privileged,
}

/// The number of `alpha`'s steps.
const STEPS: usize = 10;
/// The number of parts of `evil`'s deck: one beside each step, and one between the two halves.
const PARTS: usize = STEPS + 1;
/// The version of `alpha`'s last commit.
const LAST: u64 = 100;
const GROUPS: [&str; 2] = ["system:authenticated", "capsule.clastix.io"];

/// A story of a server.
pub(crate) struct Story {
    pub(crate) seed: u64,
    pub(crate) scene: Scene,
    /// The answers that `alpha` got, by step.
    pub(crate) answers: Vec<(usize, String)>,
    steps: Vec<usize>,
    owner: User,
    repository: Repository,
    attacker: Option<Attacker>,
    parts_left: usize,
}

impl Story {
    /// Prepares both tenants of a story.
    async fn prepare(server: &Server, mut scene: Scene, seed: u64, evil: Evil) -> Self {
        scene.git = server
            .git
            .http_url("")
            .trim_end_matches(".git")
            .trim_end_matches('/')
            .to_owned();
        let mut steps: Vec<usize> = (0..STEPS).collect();
        // The first step creates the namespace of the other steps.
        shuffle(&mut Chance::new(seed), &mut steps[1..]);
        let repository = prepare_alpha(server, &mut scene).await;
        let mut attacker = None;
        if evil != Evil::Absent {
            let repository = prepare_evil(server, &mut scene, evil == Evil::Privileged).await;
            let owner = server.admin.impersonating(&scene.of_evil("owner"), &GROUPS);
            let mut made = Attacker::new(seed, scene.clone(), owner, repository);
            made.settle_in(&server.admin).await;
            attacker = Some(made);
        }
        Self {
            seed,
            answers: Vec::new(),
            steps,
            owner: server.admin.impersonating(&scene.of_alpha("owner"), &GROUPS),
            repository,
            attacker,
            parts_left: PARTS,
            scene,
        }
    }

    /// Returns the log of `evil`'s requests so far.
    pub(crate) fn take_log(&mut self) -> Log {
        self.attacker
            .as_mut()
            .map(|attacker| std::mem::take(&mut attacker.log))
            .unwrap_or_default()
    }

    /// Releases the objects that `evil` holds.
    pub(crate) async fn release(&mut self, server: &Server) {
        if let Some(attacker) = &mut self.attacker {
            attacker.release_all(&server.admin).await;
        }
    }

    async fn attack(attacker: Option<&mut Attacker>, server: &Server, parts_left: usize) {
        if let Some(attacker) = attacker {
            attacker.play_part(server, parts_left).await;
        }
    }

    async fn play_half(&mut self, server: &Server, steps: &[usize]) {
        for step in steps {
            let taken = take_step(server, &self.scene, &self.owner, &self.repository, *step);
            let (answer, ()) = tokio::join!(taken, Self::attack(self.attacker.as_mut(), server, self.parts_left));
            self.parts_left -= 1;
            self.answers.push((*step, answer));
        }
    }

    async fn play_between(&mut self, server: &Server) {
        Self::attack(self.attacker.as_mut(), server, self.parts_left).await;
        self.parts_left -= 1;
    }

    async fn finish(&mut self, server: &Server) {
        commit(&self.repository, LAST).await;
        ask_for_fetch(&server.admin, &self.scene.alpha, "last").await;
        wait_for_version(server, &self.scene, LAST).await;
        self.answers.sort();
    }
}

/// Plays stories with these seeds at the same time. Their numbers begin with `first`.
pub(crate) async fn play(server: &mut Server, first: usize, seeds: &[u64], evil: Evil) -> Vec<Story> {
    let place = &*server;
    let scenes: Vec<Scene> = (0..seeds.len())
        .map(|number| place.host.set_scene(first + number))
        .collect();
    let prepared = seeds.iter().zip(scenes);
    let prepared = prepared.map(|(seed, scene)| Story::prepare(place, scene, *seed, evil));
    let mut stories = join_all(prepared).await;
    let halves = STEPS / 2;
    let play_half = |story: &mut Story, range: std::ops::Range<usize>| story.steps[range].to_vec();
    for is_second in [false, true] {
        let place = &*server;
        let range = if is_second { halves..STEPS } else { 0..halves };
        join_all(stories.iter_mut().map(async |story| {
            let steps = play_half(story, range.clone());
            story.play_half(place, &steps).await;
        }))
        .await;
        if !is_second {
            server.kill_controllers();
            let place = &*server;
            join_all(stories.iter_mut().map(|story| story.play_between(place))).await;
            server.restart_controllers().await;
        }
    }
    let place = &*server;
    join_all(stories.iter_mut().map(|story| story.finish(place))).await;
    stories
}

async fn take_step(server: &Server, scene: &Scene, owner: &User, repository: &Repository, step: usize) -> String {
    let dev = scene.of_alpha("dev");
    let in_dev = |name: &str| json!({ "name": name, "namespace": dev });
    let answer = match step {
        0 => {
            let labels = json!({ "capsule.clastix.io/tenant": scene.alpha });
            let namespace =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": dev, "labels": labels } });
            let made = owner.create(&namespace).await;
            // The rights in a namespace follow a moment after its creation.
            let probe = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": in_dev("first") });
            wait_until(
                async || owner.apply(&probe).await.is_success(),
                "alpha's owner has rights",
            )
            .await;
            made
        }
        1 => {
            let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": in_dev("api-key"), "stringData": { "key": "sesame" } });
            owner.apply(&secret).await
        }
        2 | 8 => {
            let version = u64::try_from(step).unwrap();
            commit(repository, version).await;
            ask_for_fetch(&server.admin, &scene.alpha, &format!("version-{version}")).await;
            wait_for_version(server, scene, version).await;
            return format!("applied {step}");
        }
        3 => {
            let backend = json!({ "service": { "name": "web", "port": { "number": 80 } } });
            let paths = json!([{ "path": "/", "pathType": "Prefix", "backend": backend }]);
            let rule = json!({ "host": format!("{}.example", scene.alpha), "http": { "paths": paths } });
            let spec = json!({ "ingressClassName": INGRESS_CLASS, "rules": [rule] });
            let ingress = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": in_dev("web"), "spec": spec });
            owner.apply(&ingress).await
        }
        4 => {
            let subject =
                json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": scene.of_alpha("guest") });
            let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" });
            let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": in_dev("guest"), "roleRef": role, "subjects": [subject] });
            owner.apply(&binding).await
        }
        5 => {
            let spec = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": STORAGE_CLASS, "resources": { "requests": { "storage": "1Gi" } } });
            let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": in_dev("data"), "spec": spec });
            owner.apply(&claim).await
        }
        6 => {
            let user = |name: &str| json!({ "kind": "User", "name": scene.of_alpha(name) });
            let owners = json!({ "spec": { "owners": [user("owner"), user("second"), future_owner(scene)] } });
            server
                .admin
                .send(Method::PATCH, &tenant_path(&scene.alpha), &owners)
                .await
        }
        9 => return host::ask(server, scene, owner).await,
        _ => return use_credentials(server, owner, &dev).await,
    };
    let message = if answer.is_success() { "" } else { answer.message() };
    format!("step {step}: {} {message}", answer.code)
}

/// Requests a token of an account of `alpha`'s. Returns the user of the token.
async fn use_credentials(server: &Server, owner: &User, namespace: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default/token");
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let answer = owner.send(Method::POST, &path, &request).await;
    let Some(token) = answer.body["status"]["token"].as_str() else {
        return format!("no token: {} {}", answer.code, answer.message());
    };
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = server
        .become_bearer(token)
        .await
        .send(Method::POST, path, &review)
        .await;
    format!("token of {}", answer.body["status"]["userInfo"]["username"])
}
