//! The world of the demo: an embedded control plane, a Git server with four repositories, and two people. All files are in one folder.

use std::path::Path;

use kube::api::{Patch, PatchParams};
use serde_json::json;
use tenure_git_server::{Content, GitServer, Options, Repository};

use super::files::{self, File};
use crate::artifact_server::ArtifactSettings;
use crate::commands::controllers::ControllerSettings;
use crate::control_plane::{self, ControlPlane};
use crate::failure::{Failure, write_chain};

/// The field manager of the demo's administrator.
const ADMINISTRATOR: &str = "tenure-demo";

/// A change of a repository.
pub(super) enum Edit {
    /// Adds files.
    Add(&'static [File]),
    /// Removes a file.
    Remove(&'static str),
    /// Replaces text that must be there.
    Replace {
        path: &'static str,
        from: &'static str,
        to: &'static str,
    },
}

/// The running parts of the demo: a control plane, a Git server with its repositories, and the people's clients.
pub(super) struct World {
    /// The control plane.
    pub(super) plane: ControlPlane,
    /// The administrator.
    pub(super) admin: kube::Client,
    /// The owner of tenant evil.
    pub(super) mallory: kube::Client,
    /// The administrators' repository.
    pub(super) platform: Repository,
    /// Alpha's repository.
    pub(super) alpha: Repository,
    /// Address of the Git server, without a trailing slash.
    pub(super) git_address: String,
    git: GitServer,
}

impl World {
    /// Starts everything below `folder`.
    pub(super) async fn start(folder: &Path, port: u16) -> Result<Self, Failure> {
        let options = Options {
            accept_pushes: true,
            ..Options::default()
        };
        let git = GitServer::start(folder.join("git"), options)
            .await
            .map_err(|error| git_failure(&error))?;
        let git_address = format!("http://{}", git.http_address());
        let repository = async |name: &str, lists: &[&'static [File]], links: &[File]| {
            let repository = git.create(name).await.map_err(|error| git_failure(&error))?;
            let files = lists
                .iter()
                .flat_map(|list| list.iter())
                .map(|(path, text)| ((*path).to_owned(), Content::from(with_address(text, &git_address))));
            let links = links
                .iter()
                .map(|(path, target)| ((*path).to_owned(), Content::Link((*target).to_owned())));
            repository
                .commit(files.chain(links), "the beginning")
                .await
                .map_err(|error| git_failure(&error))?;
            Ok::<_, Failure>(repository)
        };
        let platform = repository("platform", &[files::PLATFORM], &[]).await?;
        let alpha = repository("alpha", &[files::ALPHA], &[]).await?;
        repository("beta", &[files::BETA], &[]).await?;
        repository("evil", &[files::EVIL], files::EVIL_LINKS).await?;

        let plane = ControlPlane::start(control_plane::Options {
            data: folder.join("data"),
            address: ([127, 0, 0, 1], port).into(),
            workload_status: true,
            repositories: Vec::new(),
            repository_port: 0,
            hook_address: None,
            helm_controller: None,
            artifacts: ArtifactSettings::default(),
            controllers: ControllerSettings::allow_sources(std::slice::from_ref(&git_address))?,
            bare: false,
            settings: Default::default(),
        })
        .await?;
        let admin = plane.client().await?;
        let mallory = plane.client_as("mallory").await?;
        Ok(Self {
            plane,
            admin,
            mallory,
            platform,
            alpha,
            git_address,
            git,
        })
    }

    /// The clone URL of a repository.
    pub(super) fn url(&self, repository: &str) -> String {
        self.git.http_url(repository)
    }

    /// Creates the objects that an administrator makes once: a ServiceAccount for the platform, its rights, and its Surface.
    pub(super) async fn create_platform_surface(&self) -> Result<(), Failure> {
        let manifests = [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "platform-gitops", "namespace": "tenure-system"}}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "platform-gitops"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "platform-gitops", "namespace": "tenure-system"}]}),
            // The account may do everything, and the role allows its tokens explicitly.
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "mints-platform", "namespace": "tenure-system"},
                "rules": [{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["mint-administrator"], "resourceNames": ["platform-gitops"]}]}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "mints-platform", "namespace": "tenure-system"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mints-platform"},
                "subjects": [{"kind": "ServiceAccount", "name": "tenure-lane-platform", "namespace": "tenure-system"}]}),
            json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": {"name": "platform", "namespace": "tenure-system"},
                "spec": {"serviceAccountName": "platform-gitops", "sources": [{"name": "platform", "url": format!("{}/platform.git", self.git_address),
                    "path": "tenants", "interval": "2s"}]}}),
        ];
        for manifest in manifests {
            apply_manifest(&self.admin, &manifest).await?;
        }
        Ok(())
    }

    /// Commits edits and returns the commit's id.
    pub(super) async fn commit(
        &self,
        repository: &Repository,
        edits: &[Edit],
        message: &str,
    ) -> Result<String, Failure> {
        let mut changes: Vec<(String, Content)> = Vec::new();
        for edit in edits {
            match edit {
                Edit::Add(added) => {
                    changes.extend(added.iter().map(|(path, text)| {
                        ((*path).to_owned(), Content::from(with_address(text, &self.git_address)))
                    }));
                }
                Edit::Remove(path) => changes.push(((*path).to_owned(), Content::Removed)),
                Edit::Replace { path, from, to } => {
                    let old = repository
                        .read("main", path)
                        .await
                        .map_err(|error| git_failure(&error))?;
                    let old = String::from_utf8_lossy(&old);
                    if !old.contains(from) {
                        return Err(Failure::internal(format!(
                            "{path} of {} does not contain {from:?}",
                            repository.name()
                        )));
                    }
                    changes.push(((*path).to_owned(), Content::from(old.replace(from, to))));
                }
            }
        }
        repository
            .commit(changes, message)
            .await
            .map_err(|error| git_failure(&error))
    }
}

/// Applies an object as the demo's administrator.
pub(super) async fn apply_manifest(admin: &kube::Client, manifest: &serde_json::Value) -> Result<(), Failure> {
    let text = |path: &str| tenure_api::ObjectView::new(manifest).read_text(path);
    let served = crate::resources::list_served(admin).await?;
    let resource = crate::resources::find_resource(&served, text("/kind"))?;
    let api: kube::Api<kube::api::DynamicObject> = if resource.namespaced {
        kube::Api::namespaced_with(admin.clone(), text("/metadata/namespace"), &resource.api())
    } else {
        kube::Api::all_with(admin.clone(), &resource.api())
    };
    api.patch(
        text("/metadata/name"),
        &PatchParams::apply(ADMINISTRATOR),
        &Patch::Apply(manifest),
    )
    .await?;
    Ok(())
}

/// Inserts the address of the Git server, which is known after it listens.
fn with_address(text: &str, address: &str) -> String {
    text.replace("GIT_SERVER", address)
}

pub(super) fn git_failure(error: &tenure_git_server::GitServerError) -> Failure {
    Failure::environment(write_chain(error)).hint("is git installed and on PATH?")
}
