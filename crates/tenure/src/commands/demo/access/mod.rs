//! The third story: access to a private project at a host, from the request to its end. The host is a stand-in for GitLab in memory, with a real git behind it. The
//! story uses one folder and two listeners on loopback, as the others do, and prints no value of a credential.

use std::path::Path;

use serde_json::{Value, json};
use tenure_forge_server::{ForgeServer, Kind as Host, Owner};
use tenure_git_server::{GitServer, Options};

use super::transcript::Transcript;
use super::world::{apply_manifest, git_failure};
use crate::artifact_server::ArtifactSettings;
use crate::commands::controllers::ControllerSettings;
use crate::control_plane::{self, ControlPlane};
use crate::failure::{Failure, write_chain};

mod story;

/// The namespace of an administrator's objects.
const PLATFORM: &str = "tenure-system";
/// The private project.
const PROJECT: &str = "shops/web";
/// A project of another group, which the configuration requests as well.
const FOREIGN: &str = "payments/ledger";
/// The Secret in which a credential is staged.
const STAGING: &str = "tenure-access-work-staging";
/// The level of a Maintainer at GitLab.
const MAINTAINER: u8 = 40;

/// The request of agent `prod`.
const CONFIGURATION: &str = "flux_access:\n  role: read_repository\n  projects:\n  - id: shops/web\n    namespaces: [alpha]\n  - id: payments/ledger\n    namespaces: [alpha]\n";

/// The running parts of the story: a control plane, a Git host in memory, and the people's clients.
pub(super) struct World {
    /// The control plane.
    pub(super) plane: ControlPlane,
    admin: kube::Client,
    /// The owner of the project.
    alice: kube::Client,
    /// A user without any role in the project.
    mallory: kube::Client,
    forge: ForgeServer,
    /// The project's number at the host.
    project: u64,
    /// The value of the authoriser's credential at the host.
    authoriser: String,
    /// The repository of the agent's configuration.
    agents: String,
    _git: GitServer,
}

impl World {
    /// Starts everything below `folder`.
    pub(super) async fn start(folder: &Path, port: u16) -> Result<Self, Failure> {
        let host_failure =
            |error: std::io::Error| Failure::environment(write_chain(&error)).hint("is git installed and on PATH?");
        let forge = ForgeServer::start(folder.join("host"), Host::Gitlab)
            .await
            .map_err(host_failure)?;
        forge.add_group("shops");
        let project = forge.add_project(PROJECT).await.map_err(host_failure)?;
        forge.add_group("payments");
        forge.add_project(FOREIGN).await.map_err(host_failure)?;
        let web = forge.git().repository(PROJECT).map_err(|error| git_failure(&error))?;
        web.commit([("web.yaml", MANIFEST)], "the beginning")
            .await
            .map_err(|error| git_failure(&error))?;
        let bot = forge.add_person("access-bot");
        forge.set_level(bot, Owner::Project(project), MAINTAINER);
        let authoriser = forge.authorise(bot, &["api"], None);

        let git = GitServer::start(folder.join("git"), Options::default())
            .await
            .map_err(|error| git_failure(&error))?;
        let agents = git.create("agents").await.map_err(|error| git_failure(&error))?;
        agents
            .commit([(".gitlab/agents/prod/config.yaml", CONFIGURATION)], "prod asks")
            .await
            .map_err(|error| git_failure(&error))?;

        let sources = [
            forge.url().to_owned(),
            format!("http://{}", forge.git().http_address()),
            format!("http://{}", git.http_address()),
        ];
        let plane = ControlPlane::start(control_plane::Options {
            data: folder.join("data"),
            address: ([127, 0, 0, 1], port).into(),
            workload_status: true,
            repositories: Vec::new(),
            repository_port: 0,
            hook_address: None,
            helm_controller: None,
            artifacts: ArtifactSettings::default(),
            controllers: ControllerSettings::allow_sources(&sources)?,
            bare: false,
            settings: Default::default(),
        })
        .await?;
        Ok(Self {
            admin: plane.client().await?,
            alice: plane.client_as("alice").await?,
            mallory: plane.client_as("mallory").await?,
            plane,
            project,
            authoriser,
            agents: git.http_url("agents"),
            forge,
            _git: git,
        })
    }

    /// Returns the address of the host's API.
    pub(super) fn host(&self) -> &str {
        self.forge.url()
    }

    /// Returns the name of the project's target.
    fn target(&self) -> String {
        format!("work-{}", self.project)
    }

    async fn apply_all(&self, manifests: &[Value]) -> Result<(), Failure> {
        for manifest in manifests {
            apply_manifest(&self.admin, manifest).await?;
        }
        Ok(())
    }
}

/// The manifest that the project deploys.
const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\ndata:\n  title: a private shop\n";

/// Runs the story.
pub(super) async fn run_story(world: &World, account: &mut Transcript) {
    story::wish(world, account).await;
    story::host(world, account).await;
    let request = story::question(world, account).await;
    story::answer(world, request.as_ref(), account).await;
    story::leak(world, request.as_ref(), account).await;
    story::revoke(world, request.as_ref(), account).await;
}

/// Returns Tenant alpha, and its Surface, whose source is the project.
fn describe_wish(url: &str) -> [Value; 2] {
    [
        json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": "alpha" },
            "spec": { "owners": [{ "kind": "User", "name": "bob" }] } }),
        json!({ "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": { "name": "shop", "namespace": "alpha" },
            "spec": { "sources": [{ "name": "web", "url": url, "interval": "1m", "retryInterval": "1s", "targetNamespace": "alpha" }] } }),
    ]
}

/// Returns the objects that an administrator creates once for a host. One account reads the authoriser's credential and writes the staging Secret. Further objects are
/// the right to write Secrets into alpha, the repository of the configuration, the approver of the project, and the host itself.
fn describe_host(world: &World) -> Vec<Value> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let secret = |name: &str, data: Value| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": PLATFORM }, "stringData": data });
    let account = |name: &str| json!({ "kind": "ServiceAccount", "name": name, "namespace": PLATFORM });
    let alice = json!({ "kind": "User", "name": "alice", "apiGroup": RBAC });
    let role = |name: &str, rules: Value| json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": { "name": name, "namespace": PLATFORM }, "rules": rules });
    let bind = |namespace: &str, name: &str, kind: &str, subject: Value| {
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": { "name": name, "namespace": namespace },
            "roleRef": { "apiGroup": RBAC, "kind": kind, "name": name }, "subjects": [subject] })
    };
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "gitlab-authoriser", "namespace": PLATFORM } }),
        secret("gitlab-authoriser", json!({ "token": world.authoriser })),
        secret(STAGING, json!({})),
        role(
            "gitlab-authoriser",
            json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["gitlab-authoriser", STAGING], "verbs": ["get", "patch"] }]),
        ),
        bind(PLATFORM, "gitlab-authoriser", "Role", account("gitlab-authoriser")),
        bind(
            "alpha",
            "tenure-secret-writer",
            "ClusterRole",
            account("tenure-secret-writer"),
        ),
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": { "name": "approves-web" },
            "rules": [{ "apiGroups": ["tenure.dev"], "resources": ["fluxaccesstargets"], "resourceNames": [world.target()], "verbs": ["approve"] }] }),
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "approves-web" },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "approves-web" }, "subjects": [alice.clone()] }),
        role(
            "answers",
            json!([
                { "apiGroups": ["tenure.dev"], "resources": ["fluxaccessgrants"], "verbs": ["create", "delete"] },
                { "apiGroups": ["tenure.dev"], "resources": ["fluxaccessrequests"], "verbs": ["get", "list", "patch"] }
            ]),
        ),
        bind(PLATFORM, "answers", "Role", alice),
        // RBAC lets mallory write grants, and she may approve for no project.
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": { "name": "answers-too", "namespace": PLATFORM },
            "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": "answers" }, "subjects": [{ "kind": "User", "name": "mallory", "apiGroup": RBAC }] }),
        json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "agents", "namespace": PLATFORM },
            "spec": { "url": world.agents, "ref": { "branch": "main" }, "interval": "1m" } }),
        json!({ "apiVersion": "tenure.dev/v1alpha1", "kind": "AccessProvider", "metadata": { "name": "work", "namespace": PLATFORM },
            "spec": {
                "kind": "gitlab", "address": world.host(), "topLevelGroup": "shops", "namespaces": ["alpha"],
                "authoriser": { "serviceAccountName": "gitlab-authoriser", "secretRef": { "name": "gitlab-authoriser" } },
                "agent": { "name": "prod", "sourceRef": { "kind": "GitRepository", "name": "agents" } }
            } }),
    ]
}
