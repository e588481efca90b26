//! The host of private repositories of a world: tenants request credentials, an approver answers, and the credentials arrive as Secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tenure_forge_server::{ForgeServer, Kind, Owner};
use tenure_testkit::Chance;

use crate::api::{User, collection};
use crate::cast::Scene;
use crate::platform::{apply, wait_until};
use crate::productions::RBAC;
use crate::servers::Server;
use crate::snapshot::list_namespaces_of_evil;
use crate::world::PATIENCE;

const VERSION: &str = "tenure.dev/v1alpha1";
const PLATFORM: &str = "tenure-system";
/// The name of the AccessProvider.
pub(crate) const PROVIDER: &str = "host";
/// The group of all projects.
const GROUP: &str = "group";
const AUTHORISER: &str = "authoriser";
/// The Secret in which a credential is staged.
const STAGING: &str = "tenure-access-host-staging";
/// The user that approves requests for the projects of `alpha`.
const APPROVER: &str = "approver";
/// The ClusterRole of users that write grants. The verb `approve` is another right.
const ANSWERS: &str = "two-worlds-answers";
/// The Secret with a delivered credential.
pub(crate) const SECRET: &str = "gitlab-flux-token";

/// A host.
pub(crate) struct Host {
    forge: ForgeServer,
    /// The value of the credential with which Tenure requests others.
    authoriser: String,
    /// The numbers of the projects of `alpha` and `evil`, by the number of the story.
    projects: Vec<[u64; 2]>,
}

impl Host {
    /// Starts a host with its repositories in a folder, and with projects for all stories. The host numbers credentials and projects together. The projects of both
    /// worlds have the same numbers only if they are created before any credential.
    pub(crate) async fn start(folder: &Path, stories: usize) -> Self {
        let forge = ForgeServer::start(folder, Kind::Gitlab).await.unwrap();
        let group = forge.add_group(GROUP);
        let owner = forge.add_person("owner");
        forge.set_level(owner, Owner::Group(group), 50);
        let authoriser = forge.authorise(owner, &["api"], None);
        let mut projects = Vec::new();
        for number in 0..stories {
            let scene = Scene::new(number);
            let add = async |tenant: &str| forge.add_project(&name_project(tenant)).await.unwrap();
            projects.push([add(&scene.alpha).await, add(&scene.evil).await]);
        }
        Self {
            forge,
            authoriser,
            projects,
        }
    }

    /// Returns the addresses that Tenure must be allowed to reach.
    pub(crate) fn list_addresses(&self) -> [String; 2] {
        let git = format!("http://{}", self.forge.git().http_address());
        [self.forge.url().to_owned(), git]
    }

    /// Returns the names of the story with this number, with the projects of its tenants.
    pub(crate) fn set_scene(&self, number: usize) -> Scene {
        let [alpha_project, evil_project] = self.projects[number];
        Scene {
            alpha_project,
            evil_project,
            ..Scene::new(number)
        }
    }

    /// Counts the credentials that open the projects of `alpha`, by the story.
    pub(crate) fn count_credentials(&self, scenes: &[Scene]) -> BTreeMap<String, usize> {
        let live = self.forge.live();
        let count = |scene: &Scene| {
            let is_alphas = |owner: &Owner| *owner == Owner::Project(scene.alpha_project);
            live.iter().filter(|one| is_alphas(&one.owner)).count()
        };
        scenes.iter().map(|scene| (scene.alpha.clone(), count(scene))).collect()
    }
}

/// Returns the path of a tenant's project.
pub(crate) fn name_project(tenant: &str) -> String {
    format!("{GROUP}/{tenant}")
}

fn name_target(project: u64) -> String {
    format!("{PROVIDER}-{project}")
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": VERSION, "kind": kind, "metadata": { "name": name, "namespace": PLATFORM }, "spec": spec })
}

/// Creates the objects that an administrator makes once for a host: the AccessProvider, for which every tenant may make requests, and the approver.
pub(crate) async fn provide(server: &Server) {
    let in_platform = |name: &str| json!({ "name": name, "namespace": PLATFORM });
    let reads = json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": [AUTHORISER, STAGING], "verbs": ["get", "patch"] }]);
    let answers = json!([
        { "apiGroups": ["tenure.dev"], "resources": ["fluxaccessrequests"], "verbs": ["get", "list", "patch"] },
        { "apiGroups": ["tenure.dev"], "resources": ["fluxaccessgrants", "fluxaccessstandinggrants"], "verbs": ["create", "get", "list", "delete"] },
    ]);
    let approves = json!([{ "apiGroups": ["tenure.dev"], "resources": ["fluxaccesstargets"], "verbs": ["approve"] }]);
    let spec = json!({
        "kind": "gitlab", "address": server.host.forge.url(), "topLevelGroup": GROUP, "tenants": ["*"], "namespaces": ["shop-*"],
        "notice": "None", "authoriser": { "serviceAccountName": AUTHORISER, "secretRef": { "name": AUTHORISER } },
    });
    for made in [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": in_platform(AUTHORISER) }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": in_platform(AUTHORISER), "stringData": { "token": server.host.authoriser } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": in_platform(STAGING) }),
        json!({ "apiVersion": RBAC, "kind": "Role", "metadata": in_platform(AUTHORISER), "rules": reads }),
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": in_platform(AUTHORISER),
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": AUTHORISER },
            "subjects": [{ "kind": "ServiceAccount", "name": AUTHORISER, "namespace": PLATFORM }]
        }),
        json!({ "apiVersion": RBAC, "kind": "ClusterRole", "metadata": { "name": ANSWERS }, "rules": answers }),
        json!({ "apiVersion": RBAC, "kind": "ClusterRole", "metadata": { "name": "two-worlds-approves" }, "rules": approves }),
        bind_user("two-worlds-approves", "two-worlds-approves", APPROVER),
        bind_answers(APPROVER),
        object("AccessProvider", PROVIDER, &spec),
    ] {
        apply(&server.admin, &made).await;
    }
}

fn bind_user(name: &str, role: &str, user: &str) -> Value {
    json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]
    })
}

/// Returns the binding with which RBAC lets a user write grants in the platform's namespace.
fn bind_answers(user: &str) -> Value {
    json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": { "name": format!("answers-{user}"), "namespace": PLATFORM },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ANSWERS },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]
    })
}

/// Returns the binding that lets credentials be written in a namespace. Only an administrator may create it.
fn bind_writer(namespace: &str) -> Value {
    let name = "tenure-secret-writer";
    json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": { "name": name, "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": PLATFORM }]
    })
}

/// Lets `alpha` make requests and receive credentials.
pub(crate) async fn prepare_alpha(server: &Server, scene: &Scene) {
    let asks = json!([{ "apiGroups": ["tenure.dev"], "resources": ["fluxaccesses"], "verbs": ["*"] }]);
    let metadata = json!({ "name": "asks", "namespace": scene.alpha });
    for made in [
        json!({ "apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": asks }),
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "asks" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": scene.of_alpha("owner") }]
        }),
        bind_writer(&scene.alpha),
    ] {
        apply(&server.admin, &made).await;
    }
}

/// Lets `evil` receive credentials of its own project by a standing grant, and answer for that project itself. Waits until one has arrived, so each story shows that
/// this works.
pub(crate) async fn prepare_evil(server: &Server, scene: &Scene) {
    let (owner, target) = (scene.of_evil("owner"), name_target(scene.evil_project));
    let own = scene.of_evil("approves");
    let approves = json!([{ "apiGroups": ["tenure.dev"], "resources": ["fluxaccesstargets"], "resourceNames": [target], "verbs": ["approve"] }]);
    for made in [
        bind_writer(&scene.evil),
        json!({ "apiVersion": RBAC, "kind": "ClusterRole", "metadata": { "name": own }, "rules": approves }),
        bind_user(&own, &own, &owner),
        bind_answers(&owner),
    ] {
        apply(&server.admin, &made).await;
    }
    let approver = server.admin.impersonating(APPROVER, &["system:authenticated"]);
    let spec = json!({
        "tenant": scene.evil, "targets": [target], "roles": ["read_repository", "read_registry"], "namespaces": [scene.evil], "maxRotate": "365d", "approvedBy": APPROVER
    });
    let standing_grant = object("FluxAccessStandingGrant", &scene.of_evil("standing"), &spec);
    wait_until(
        async || approver.create(&standing_grant).await.is_success(),
        "a standing grant is written",
    )
    .await;
    let owner = server.admin.impersonating(&owner, &["system:authenticated"]);
    let access = make_access(&scene.evil, &scene.of_evil("owner"));
    wait_until(async || owner.create(&access).await.is_success(), "evil asks").await;
    wait_for_credential(server, &scene.evil).await;
}

/// Returns a tenant's request for its own project and its home namespace.
fn make_access(tenant: &str, by: &str) -> Value {
    let entry = json!({ "id": name_project(tenant), "role": "read_repository", "namespaces": [tenant] });
    json!({
        "apiVersion": VERSION, "kind": "FluxAccess",
        "metadata": { "name": "code", "namespace": tenant, "annotations": { "tenure.dev/requested-by": by } },
        "spec": { "provider": PROVIDER, "projects": [entry] }
    })
}

async fn wait_for_credential(server: &Server, namespace: &str) {
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{SECRET}");
    let begun = Instant::now();
    while !server.admin.get(&path).await.is_success() {
        if begun.elapsed() > PATIENCE {
            let requests = list_requests(&server.admin).await;
            let statuses = requests.iter().map(|request| {
                let asked = &request["spec"]["askedIn"]["namespace"];
                format!("{asked}: {}", request["status"])
            });
            let statuses = statuses.collect::<Vec<_>>().join("\n");
            panic!("no credential comes to {namespace} within {PATIENCE:?}. The requests:\n{statuses}");
        }
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
}

/// Requests a credential of `alpha`'s project as its owner, and gets it approved. Returns the result.
pub(crate) async fn ask(server: &Server, scene: &Scene, owner: &User) -> String {
    let access = make_access(&scene.alpha, &scene.of_alpha("owner"));
    let asked = owner.apply(&access).await;
    if !asked.is_success() {
        return format!("not asked: {} {}", asked.code, asked.message());
    }
    let approver = server.admin.impersonating(APPROVER, &["system:authenticated"]);
    let is_approved = async || {
        let requests = list_requests(&approver).await;
        let asked_here = |request: &&Value| request["spec"]["askedIn"]["namespace"] == *scene.alpha;
        let Some(request) = requests.iter().find(asked_here) else {
            return false;
        };
        let grant = answer(request, &scene.of_alpha("grant"), APPROVER);
        approver.create(&grant).await.is_success()
    };
    wait_until(is_approved, "alpha's request is approved").await;
    wait_for_credential(server, &scene.alpha).await;
    "a credential came".to_owned()
}

async fn list_requests(user: &User) -> Vec<Value> {
    let listed = user
        .get(&collection(VERSION, "fluxaccessrequests", Some(PLATFORM)))
        .await;
    listed.body["items"].as_array().cloned().unwrap_or_default()
}

/// Returns a grant that approves a request.
fn answer(request: &Value, name: &str, by: &str) -> Value {
    let spec = json!({
        "requestRef": { "name": request["metadata"]["name"], "uid": request["metadata"]["uid"] },
        "target": request["metadata"]["name"].as_str().and_then(|name| name.rsplit_once('-')).map(|(target, _)| target),
        "specHash": request["spec"]["specHash"], "requestedBy": request["spec"]["requestedBy"], "decision": "Approved", "approvedBy": by,
    });
    object("FluxAccessGrant", name, &spec)
}

/// Draws an answer that `evil` has no right to write. It approves or denies a request of another tenant, orders a new credential for it, or writes a standing
/// grant for another tenant or project. Returns the method, the path and the body.
pub(crate) async fn draw_answer(
    chance: &mut Chance,
    scene: &Scene,
    owner: &User,
    number: usize,
) -> (Method, String, Value) {
    let by = [scene.of_evil("owner"), APPROVER.to_owned()];
    let by = chance.pick(&by).unwrap().clone();
    let name = scene.of_evil(&format!("answer-{number}"));
    let requests = list_requests(owner).await;
    let of_others = requests
        .into_iter()
        .filter(|request| request["spec"]["target"]["id"] != scene.evil_project)
        .collect::<Vec<_>>();
    let request = chance.pick(&of_others).cloned();
    let grants = collection(VERSION, "fluxaccessgrants", Some(PLATFORM));
    match (chance.draw_below(4), request) {
        (0, Some(request)) => (Method::POST, grants, answer(&request, &name, &by)),
        (1, Some(request)) => {
            let mut refused = answer(&request, &name, &by);
            refused["spec"]["decision"] = json!("Denied");
            (Method::POST, grants, refused)
        }
        (2, Some(request)) => {
            let path = collection(VERSION, "fluxaccessrequests", Some(PLATFORM));
            let path = format!("{path}/{}", request["metadata"]["name"].as_str().unwrap_or_default());
            let order = format!("by: {by}\nat: 2026-01-01T00:00:00Z\ncause: drawn\n");
            let body = json!({ "metadata": { "annotations": { "tenure.dev/rotate": order } } });
            (Method::PATCH, path, body)
        }
        _ => {
            let targets = [
                vec![name_target(scene.alpha_project)],
                vec![name_target(scene.evil_project), name_target(scene.alpha_project)],
                vec!["*".to_owned()],
            ];
            let tenants = [Some(&scene.alpha), Some(&scene.evil), None];
            let namespaces = [scene.alpha.clone(), "*".to_owned(), scene.evil.clone()];
            let spec = json!({
                "tenant": chance.pick(&tenants), "targets": chance.pick(&targets), "roles": ["read_repository"], "namespaces": [chance.pick(&namespaces)], "maxRotate": "90d",
                "approvedBy": by
            });
            let path = collection(VERSION, "fluxaccessstandinggrants", Some(PLATFORM));
            (Method::POST, path, object("FluxAccessStandingGrant", &name, &spec))
        }
    }
}

/// Lists credentials of `alpha` in a namespace of `evil`, and differences between the valid credentials at the hosts of both worlds.
pub(crate) async fn list_differences(alone: &Server, shared: &Server, scenes: &[Scene]) -> Vec<String> {
    let counts = [alone, shared].map(|server| server.host.count_credentials(scenes));
    let mut found = Vec::new();
    for (alpha, count) in &counts[0] {
        let beside = counts[1].get(alpha);
        if beside != Some(count) {
            found.push(format!(
                "{count} credentials open the project of {alpha}, but beside evil {beside:?}"
            ));
        }
    }
    let evils = list_namespaces_of_evil(shared, scenes).await;
    let listed = shared.admin.get("/api/v1/secrets").await;
    let mut of_evil: BTreeSet<String> = BTreeSet::new();
    let mut of_others = BTreeMap::new();
    for secret in listed.body["items"].as_array().cloned().unwrap_or_default() {
        let namespace = secret["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let Some(password) = secret["data"]["password"].as_str() else {
            continue;
        };
        if evils.contains(&namespace) {
            of_evil.insert(password.to_owned());
        } else {
            of_others.insert(password.to_owned(), namespace);
        }
    }
    let shown = of_evil.iter().filter_map(|password| of_others.get(password));
    found.extend(shown.map(|namespace| format!("a namespace of evil has the credential of namespace {namespace}")));
    found
}
