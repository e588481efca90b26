//! Reads an agent's configuration from the artifact of the source that an administrator named.
//!
//! While this process lives, an unreadable file does not change the entries that it had before. The artifact's content is trusted only after its
//! digest was verified.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::access::provider::{AccessProvider, Agent};
use tenure_git_access::configuration::{Configuration, File, Reading, read_file};
use tenure_planner::artifact_address::ArtifactAddress;
use tenure_sources::{Entry, Tree, read_archive, read_archive_size};

use super::AccessHub;
use crate::cluster_view::key::Key;
use crate::endpoints::artifact_endpoint::ArtifactKeeper as _;
use crate::lane_kinds::source::find_source_kind;

/// How long a read waits for memory.
const PATIENCE: Duration = Duration::from_secs(30);

/// The configuration of a provider's agent as last read, and the artifact from which it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct LastRead {
    /// The agent and its source.
    of: Option<Agent>,
    group: String,
    /// The digest of the last attempt, successful or not.
    digest: String,
    pub(super) revision: Option<String>,
    pub(super) configuration: Option<Arc<Configuration>>,
    /// Why the last configuration could not be read.
    pub(super) problem: Option<String>,
}

/// Reads the configuration of a provider's agent, if it changed.
pub(super) async fn read(access_hub: &AccessHub, provider: &AccessProvider, last: &mut LastRead) {
    let Some(agent) = &provider.spec.agent else {
        *last = LastRead::default();
        return;
    };
    if last.of.as_ref() != Some(agent) || last.group != provider.spec.top_level_group {
        *last = LastRead {
            of: Some(agent.clone()),
            group: provider.spec.top_level_group.clone(),
            ..LastRead::default()
        };
    }
    match read_artifact(access_hub, agent, &last.digest).await {
        Ok(None) => {}
        Ok(Some((digest, revision, tree))) => {
            last.digest = digest;
            match read_tree(&tree, agent, &last.group) {
                Ok(configuration) => {
                    last.revision = Some(revision);
                    last.configuration = Some(Arc::new(configuration));
                    last.problem = None;
                }
                Err(problem) => last.problem = Some(problem),
            }
        }
        Err(problem) => last.problem = Some(problem),
    }
}

/// Returns the artifact, unless it has the digest `before`.
async fn read_artifact(
    access_hub: &AccessHub,
    agent: &Agent,
    before: &str,
) -> Result<Option<(String, String, Tree)>, String> {
    let platform = access_hub.platform();
    let source = &agent.source_ref;
    let name = format!("{} {platform}/{}", source.kind, source.name);
    let shard = access_hub.hub.find_shard(platform);
    let object: Option<Value> = shard
        .zip(find_source_kind(&source.kind))
        .and_then(|(shard, kind)| shard.write_object(&Key::new(kind.kind, platform, &source.name)));
    let object = object
        .ok_or_else(|| format!("{name} does not exist: create it, or name another one in spec.agent.sourceRef"))?;
    let view = ObjectView::new(&object);
    let digest = view.read_text("/status/artifact/digest").to_owned();
    if digest.is_empty() {
        return Err(format!("{name} has no artifact yet: look at its conditions"));
    }
    if digest == before {
        return Ok(None);
    }
    let revision = view.read_text("/status/artifact/revision").to_owned();
    let gone = || format!("the artifact of {name} does not exist yet");
    let address = ArtifactAddress::new(&source.kind, (platform, &source.name), &digest).ok_or_else(gone)?;
    let (file, _) = access_hub.hub.open(&address).await.ok_or_else(gone)?;
    let limits = access_hub.hub.context.artifact_storage.limits;
    let size = read_archive_size(&file).map_err(|error| format!("the artifact of {name}: {error}"))?;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let room = access_hub
        .hub
        .context
        .artifact_storage
        .take_tree_room("platform", size, deadline)
        .await;
    let _room = room.map_err(|error| format!("the artifact of {name} can't be read now: {error}"))?;
    let expected = digest.clone();
    let reading = tokio::task::spawn_blocking(move || read_archive(&file, &expected, &limits));
    match reading.await {
        Ok(Ok(tree)) => Ok(Some((digest, revision, tree))),
        Ok(Err(error)) => Err(format!("the artifact of {name}: {error}")),
        Err(_) => Err(format!("the artifact of {name} can't be read")),
    }
}

/// Reads both files of an agent. Each file may be missing.
fn read_tree(tree: &Tree, agent: &Agent, group: &str) -> Result<Configuration, String> {
    let mut configuration = Configuration::default();
    let mut is_there = false;
    for (file, is_own) in [("config.yaml", false), ("flux-access.yaml", true)] {
        let path = format!(".gitlab/agents/{}/{file}", agent.name);
        let Some(Entry::File(content)) = tree.entry(&path) else {
            continue;
        };
        is_there = true;
        let file = File { path: &path, is_own };
        match read_file(file, content, group) {
            Reading::Read(read) => configuration = configuration.join(read),
            Reading::Unreadable(problem) => return Err(problem.to_string()),
        }
    }
    match is_there {
        true => Ok(configuration),
        false => Err(format!(
            "it has neither .gitlab/agents/{0}/config.yaml nor .gitlab/agents/{0}/flux-access.yaml",
            agent.name
        )),
    }
}
