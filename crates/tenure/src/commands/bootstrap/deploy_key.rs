//! The deploy key of the platform: its Secret, and the proof that the key reads the repository and can't push. The private half is only in the Secret, and in the memory of this
//! process while it makes or proves the key.

use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::{KNOWN_HOSTS_ENTRY, MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE};
use tenure_inspection::bootstrap::{DEPLOY_KEY_SECRET, FLUX_NAMESPACE, KeyState};
use tenure_remote_requests::git_host::ProbeResult;
use tenure_sources::{DeployKey, FetchError, KeyUse, SecretData, probe_key, read_pair};
use tokio::time::Instant;

use super::cluster::{Cluster, FIELD_MANAGER, Objects};
use super::hosts::HostProject;
use crate::failure::Failure;
use crate::output;
use crate::own_connections::make_connector;
use crate::progress::Progress;

/// The entries of the Secret, in the form that Flux's sources read.
const IDENTITY: &str = "identity";
const PUBLIC: &str = "identity.pub";
/// The time between two proofs, and the time for one.
const PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of questions about pushes without an answer.
const ATTEMPTS: u32 = 5;

/// A Secret with a deploy key.
pub(super) struct DeployKeySecret {
    namespace: String,
    name: String,
    /// The bootstrap makes the key. Otherwise the Secret is Flux's, and its key stays.
    is_own: bool,
    data: Option<SecretData>,
}

/// Returns the host keys that the platform's Secret has.
pub(super) async fn find_pinned(cluster: &Cluster) -> Result<Option<String>, Failure> {
    let key = DeployKeySecret::read_own(cluster).await?;
    Ok(key.known_hosts().map(str::to_owned))
}

impl DeployKeySecret {
    /// Reads the Secret of the platform's Surface.
    pub(super) async fn read_own(cluster: &Cluster) -> Result<Self, Failure> {
        Self::read(cluster, (PLATFORM_NAMESPACE, DEPLOY_KEY_SECRET), true).await
    }

    /// Reads the Secret of Flux's source.
    pub(super) async fn read_of_flux(cluster: &Cluster, name: &str) -> Result<Self, Failure> {
        Self::read(cluster, (FLUX_NAMESPACE, name), false).await
    }

    async fn read(cluster: &Cluster, (namespace, name): (&str, &str), is_own: bool) -> Result<Self, Failure> {
        let found = cluster.installation.find(&write_path(namespace, name)).await?;
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            is_own,
            data: found.as_ref().map(read_data),
        })
    }

    /// Returns the Secret's name for messages.
    pub(super) fn subject(&self) -> String {
        format!("Secret/{}/{}", self.namespace, self.name)
    }

    pub(super) fn is_missing(&self) -> bool {
        self.data.is_none()
    }

    /// Returns the host keys of the Secret.
    pub(super) fn known_hosts(&self) -> Option<&str> {
        self.find_text(KNOWN_HOSTS_ENTRY)
    }

    fn find_text(&self, entry: &str) -> Option<&str> {
        let bytes = self.data.as_ref()?.get(entry)?;
        std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty())
    }

    /// Returns the state of the key for the plan.
    pub(super) fn state(&self) -> KeyState {
        let Some(data) = &self.data else {
            return KeyState::Missing;
        };
        let get = |entry: &str| data.get(entry).map(Vec::as_slice).unwrap_or_default();
        let problem = match self.is_own {
            true => read_pair(get(IDENTITY), get(PUBLIC)).err(),
            false => get(IDENTITY).is_empty().then_some("it has no entry identity"),
        };
        match (problem, self.known_hosts()) {
            (Some(problem), _) => KeyState::Unusable(format!("{}: {problem}", self.subject())),
            (None, hosts) => KeyState::Present {
                known_hosts: hosts.unwrap_or_default().to_owned(),
            },
        }
    }

    /// Makes a key pair, and creates the Secret in its namespace. An existing Secret is never overwritten.
    pub(super) async fn make(&mut self, cluster: &Cluster, objects: &Objects, hosts: &str) -> Result<(), Failure> {
        let namespace = objects.find_namespace(&self.namespace);
        let namespaces = cluster
            .installation
            .find(&format!("/api/v1/namespaces/{}", self.namespace))
            .await?;
        if namespaces.is_none() {
            cluster.apply_quietly(&[namespace]).await?;
        }
        let key =
            DeployKey::generate(&format!("tenure:{}/{}", self.namespace, self.name)).map_err(Failure::environment)?;
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": self.name, "namespace": self.namespace, "labels": { MANAGED_BY: MANAGED_BY_TENURE } },
            "stringData": { IDENTITY: key.reveal(), PUBLIC: key.public().line, KNOWN_HOSTS_ENTRY: hosts },
        });
        let collection = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        cluster.installation.create(&collection, FIELD_MANAGER, &object).await?;
        let texts = [
            (IDENTITY, key.reveal()),
            (PUBLIC, &key.public().line),
            (KNOWN_HOSTS_ENTRY, hosts),
        ];
        self.data = Some(
            texts
                .into_iter()
                .map(|(entry, text)| (entry.to_owned(), text.as_bytes().to_vec()))
                .collect(),
        );
        Ok(())
    }

    /// Writes other host keys into the Secret. The key stays.
    pub(super) async fn pin(&mut self, cluster: &Cluster, hosts: &str) -> Result<(), Failure> {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "data": { KNOWN_HOSTS_ENTRY: base64::engine::general_purpose::STANDARD.encode(hosts) },
        });
        let path = write_path(&self.namespace, &self.name);
        cluster.installation.apply(&path, FIELD_MANAGER, &object).await?;
        if let Some(data) = &mut self.data {
            data.insert(KNOWN_HOSTS_ENTRY.to_owned(), hosts.as_bytes().to_vec());
        }
        Ok(())
    }

    /// Proves that the key reads the repository and can't push. Until the server accepts the key, the host's API adds it, or the user does.
    pub(super) async fn prove(
        &self,
        url: &str,
        project: Option<&HostProject>,
        timeout: Duration,
        progress: &Progress,
    ) -> Result<(), Failure> {
        self.wait_until_readable(url, project, timeout, progress).await?;
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            match self.ask(url, KeyUse::Push).await? {
                Ok(ProbeResult::Refused(_)) => {
                    progress.succeed(format!("the deploy key reads {url} and can't push"));
                    return Ok(());
                }
                // Flux's automation of images may push with Flux's own key.
                Ok(ProbeResult::Accepted) if !self.is_own => {
                    progress.warn(format!(
                        "the key in {} may push to {url}: a thief of the key could change what this cluster applies",
                        self.subject()
                    ));
                    return Ok(());
                }
                Ok(ProbeResult::Accepted) => {
                    return Err(Failure::negative(format!("the deploy key may push to {url}: a thief of the key could change what this cluster applies. Nothing was pushed or installed"))
                        .hint(format!("remove the key from the repository, add it for reading only, and run the same command again: {}", self.public())));
                }
                Ok(ProbeResult::Unclear(why) | ProbeResult::Limited { why, .. }) => last = why,
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(
            Failure::environment(format!("{url}: it is unknown whether the deploy key may push: {last}"))
                .hint("run the same command again when the server answers"),
        )
    }

    async fn wait_until_readable(
        &self,
        url: &str,
        project: Option<&HostProject>,
        timeout: Duration,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let started = Instant::now();
        let mut waiting = None;
        let mut is_shown = false;
        loop {
            let why = match self.ask(url, KeyUse::Read).await? {
                Ok(ProbeResult::Accepted) => return Ok(()),
                Ok(ProbeResult::Refused(why)) => {
                    match project {
                        _ if is_shown => {}
                        Some(project) if self.is_own => {
                            project.allow_key(self.public()).await?;
                            progress.succeed("the host has the deploy key, for reading only");
                        }
                        _ => {
                            output::print_note(format!("add this deploy key, for reading only, to {url}:"));
                            output::print_line(self.public());
                        }
                    }
                    is_shown = true;
                    why
                }
                Ok(ProbeResult::Unclear(why) | ProbeResult::Limited { why, .. }) => why,
                Err(error) => error.to_string(),
            };
            if started.elapsed() >= timeout {
                return Err(Failure::negative(format!(
                    "{url} did not accept the deploy key in {} s: {why}",
                    timeout.as_secs()
                ))
                .hint(format!(
                    "add it to the repository, for reading only, and run the same command again: {}",
                    self.public()
                )));
            }
            let line = waiting.get_or_insert_with(|| progress.wait(format!("{url} to accept the deploy key")));
            line.set_step(&why);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks the server about the key. A wrong host key ends the bootstrap at once.
    async fn ask(&self, url: &str, tried: KeyUse) -> Result<Result<ProbeResult, FetchError>, Failure> {
        let empty = SecretData::new();
        let secret = self.data.as_ref().unwrap_or(&empty);
        let reach = make_connector();
        let asked = tokio::time::timeout(PATIENCE, probe_key(url, secret, &reach, tried)).await;
        let Ok(answer) = asked else {
            return Ok(Ok(ProbeResult::Unclear(format!(
                "no answer in {} s",
                PATIENCE.as_secs()
            ))));
        };
        match answer {
            Err(error @ FetchError::HostKey { .. }) => Err(Failure::environment(error.to_string())
                .hint("if the server has a new key, name it with --known-hosts FILE")),
            Err(error @ (FetchError::InvalidSecret { .. } | FetchError::InvalidUrl { .. })) => {
                Err(Failure::negative(format!("{}: {error}", self.subject())))
            }
            answer => Ok(answer),
        }
    }

    /// Returns the public half, as one line.
    fn public(&self) -> &str {
        self.find_text(PUBLIC).map_or("(the public half of the key)", str::trim)
    }
}

fn write_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets/{name}")
}

fn read_data(secret: &Value) -> SecretData {
    let decode = |text: &str| base64::engine::general_purpose::STANDARD.decode(text).ok();
    let entries = ObjectView::new(secret).find_map("/data").into_iter().flatten();
    let decoded = entries.filter_map(|(entry, text)| Some((entry.clone(), decode(text.as_str()?)?)));
    decoded.collect()
}
