//! Publishes the files of a pass to a Git server or a registry, and makes the source that reads them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options, Repository};
use tenure_registry_server::{Artifact, RegistryServer};

/// The way of files to the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Commits, which a GitRepository fetches.
    Git,
    /// Artifacts of one layer, which an OCIRepository fetches.
    Oci,
}

impl Kind {
    /// Returns the kind of the source.
    pub(super) fn source(self) -> &'static str {
        match self {
            Self::Git => "GitRepository",
            Self::Oci => "OCIRepository",
        }
    }
}

/// A running server with one repository.
pub(super) enum Store {
    /// The server lives as long as the store.
    Git(GitServer, Repository),
    /// The registry with all files that are published now.
    Oci(RegistryServer, BTreeMap<String, String>),
}

impl Store {
    /// Starts a store without files.
    pub(super) async fn start(kind: Kind, folder: &Path) -> anyhow::Result<Self> {
        Ok(match kind {
            Kind::Git => {
                let git = GitServer::start(folder, Options::default()).await?;
                let repository = git.create("bench").await?;
                Self::Git(git, repository)
            }
            Kind::Oci => Self::Oci(RegistryServer::start().await?, BTreeMap::new()),
        })
    }

    /// Returns the address for `--allow-source`.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Git(git, _) => format!("http://{}", git.http_address()),
            Self::Oci(registry, _) => format!("http://{}", registry.address()),
        }
    }

    /// Returns the source with this interval.
    pub(super) fn source(&self, interval: Duration) -> Value {
        match self {
            Self::Git(git, _) => git_repository(&git.http_url("bench"), interval),
            Self::Oci(registry, _) => {
                json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository", "metadata": {"name": "bench", "namespace": "bench"},
                       "spec": {"interval": format!("{}s", interval.as_secs()), "url": format!("oci://{}/bench", registry.address()),
                                "ref": {"tag": "latest"}, "insecure": true}})
            }
        }
    }

    /// Publishes these files in addition to all others. Returns the end of their revision.
    pub(super) async fn publish(
        &mut self,
        files: impl IntoIterator<Item = (String, String)>,
    ) -> anyhow::Result<String> {
        match self {
            Self::Git(_, repository) => Ok(repository.commit(files, "what the bench publishes").await?),
            Self::Oci(registry, all) => {
                all.extend(files);
                let files: Vec<_> = all.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
                Ok(registry.push("bench", "latest", &Artifact::from_files(&files)))
            }
        }
    }
}

/// Makes a GitRepository with this interval.
pub(super) fn git_repository(url: &str, interval: Duration) -> Value {
    json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"name": "bench", "namespace": "bench"},
           "spec": {"interval": format!("{}s", interval.as_secs()), "url": url, "ref": {"branch": "main"}}})
}
