//! An artifact of files of other artifacts: what an ArtifactGenerator generates.
//!
//! Owns the way from stored artifacts to another one. Nothing is fetched: what it is made of is in the store, found by source and digest, and
//! verified when it is loaded. It is the same archive whenever it is made of the same.

mod glob;
mod stage;
mod yaml;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use jiff::Timestamp;
use tenure_planner::artifact::{ArtifactFacts, IncludedArtifact, StoredArtifact};
use tenure_planner::external_artifact::ComposeRequest;
use tenure_planner::oci_repository::ORIGIN_REVISION;
use tenure_planner::source::{FetchFailure, FetchReason, Fetched};
use tokio::time::Instant;

use self::stage::Stage;
use crate::account::{self, Account, Growing};
use crate::archive_writer::{ArchiveWriter, WriteError};
use crate::artifact::{ArtifactStore, SourceKey};
use crate::budget::{Held, OverBudget};
use crate::cancel::spawn_cancellable;
use crate::error::StorageError;
use crate::ignore::Ignore;
use crate::limits::Limits;
use crate::tree::Tree;

/// Bytes that making one begins with: buffers of what unpacks and packs.
const BUFFER_BYTES: u64 = 1 << 20;

/// Why an artifact can't be made.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// What its recipe says can't be done with these files.
    #[error("{0}")]
    Invalid(String),
    /// A bound of [`Limits`] was reached.
    #[error("it is over the limit: {what} exceed {limit}")]
    TooLarge {
        /// What was counted.
        what: &'static str,
        /// The bound, with its unit.
        limit: String,
    },
    /// There is no room for it.
    #[error("{0}")]
    OverBudget(#[from] OverBudget),
    /// An artifact that it is made of could not be loaded, or itself not be stored.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It took longer than it may.
    #[error("it was not made within {0:?}")]
    Timeout(std::time::Duration),
    /// Nobody waits for it any more.
    #[error("it was given up")]
    Cancelled,
}

impl From<&ComposeError> for FetchFailure {
    /// What the planner is told of it.
    fn from(error: &ComposeError) -> Self {
        let reason = match error {
            ComposeError::Storage(StorageError::Missing { .. }) => FetchReason::SourceFetchFailed,
            ComposeError::Storage(_) => FetchReason::ArchiveOperationFailed,
            _ => FetchReason::BuildFailed,
        };
        Self {
            reason,
            message: error.to_string(),
            // Other files may do, and those of a source come without another spec.
            terminal: false,
            retry_after: None,
        }
    }
}

/// How many bytes the artifacts that one is made of take in memory together.
///
/// # Errors
/// [`StorageError::Missing`] when one of them is not stored any more, or another [`StorageError`].
pub fn count_parts(request: &ComposeRequest, store: &ArtifactStore) -> Result<u64, StorageError> {
    list_parts(request)?.iter().try_fold(0_u64, |bytes, (_, key, digest)| {
        Ok(bytes.saturating_add(store.loaded_size(key, digest)?))
    })
}

fn list_parts(request: &ComposeRequest) -> Result<Vec<(String, SourceKey, String)>, StorageError> {
    let artifacts = request.list_artifacts();
    let find = |(alias, source, uid, artifact): (
        &str,
        &tenure_planner::artifact_generator::FoundSource,
        &str,
        &IncludedArtifact,
    )| {
        let key = SourceKey::new(&source.kind, &source.namespace, &source.name, uid)?;
        Ok((alias.to_owned(), key, artifact.facts.digest.clone()))
    };
    artifacts.map(find).collect()
}

/// The known artifact, if just that would be made again.
pub fn find_made(source: &SourceKey, request: &ComposeRequest, store: &ArtifactStore) -> Option<Fetched> {
    let known = request.known.as_ref()?;
    let is_same = known.fingerprint == request.fingerprint && store.contains(source, &known.facts.digest);
    is_same.then(|| Fetched::Unchanged {
        revision: known.facts.revision.clone(),
    })
}

/// Makes an artifact; `room` is what its parts take in memory, and given back when it is made.
///
/// Cancel it by dropping the future: work on other threads stops.
///
/// # Errors
/// A [`ComposeError`] that says what failed.
pub async fn compose(
    source: &SourceKey,
    request: &ComposeRequest,
    room: Held,
    limits: &Limits,
    store: &ArtifactStore,
    account: &Account,
) -> Result<Fetched, ComposeError> {
    let deadline = Instant::now() + request.timeout;
    let composing = compose_in_turn(source, request, room, limits, store, account, deadline);
    match tokio::time::timeout_at(deadline, composing).await {
        Ok(result) => result,
        Err(_) => Err(ComposeError::Timeout(request.timeout)),
    }
}

async fn compose_in_turn(
    source: &SourceKey,
    request: &ComposeRequest,
    room: Held,
    limits: &Limits,
    store: &ArtifactStore,
    account: &Account,
    deadline: Instant,
) -> Result<Fetched, ComposeError> {
    let Account { lane, memory, .. } = account;
    let mut memory = Growing::used(memory.acquire(lane, BUFFER_BYTES, deadline).await?);
    let turn = account.unpacking.acquire(&account.lane, 1, deadline).await?;
    let (request, limits, store, account) = (request.clone(), *limits, store.clone(), account.clone());
    let source = source.clone();
    let work = move |cancelled: &AtomicBool| {
        let _turn = turn;
        let mut parts = BTreeMap::new();
        for (alias, key, digest) in list_parts(&request)? {
            parts.insert(alias, store.load(&key, &digest, &limits)?);
        }
        let made = write(
            &source,
            &request,
            &parts,
            (&limits, &store, &account),
            &mut memory,
            cancelled,
        );
        drop((parts, room));
        made
    };
    spawn_cancellable(work).await.map_err(|error| StorageError::Io {
        action: "write",
        path: "the artifact".to_owned(),
        source: std::io::Error::other(error),
    })?
}

/// Makes the archive and stores it. Blocks.
fn write(
    source: &SourceKey,
    request: &ComposeRequest,
    parts: &BTreeMap<String, Tree>,
    (limits, store, account): (&Limits, &ArtifactStore, &Account),
    memory: &mut Growing,
    cancelled: &AtomicBool,
) -> Result<Fetched, ComposeError> {
    let mut stage = Stage::new(parts, limits, memory, cancelled);
    stage.follow(&request.recipe)?;
    let files = std::mem::take(&mut stage.files);
    drop(stage);
    // What Flux leaves out of every archive that it makes without being told.
    let ignore = Ignore::new(&[], None);
    let mut target = store.incoming_file(&account.lane)?;
    let path = target.path().to_owned();
    let explain = |error: WriteError| match error {
        WriteError::Invalid(problem) => ComposeError::Invalid(problem),
        WriteError::TooLarge { what, limit } => ComposeError::TooLarge { what, limit },
        WriteError::OverBudget(refused) => ComposeError::OverBudget(refused),
        WriteError::Io(error) => match account::find_refusal(&error) {
            Some(refused) => ComposeError::OverBudget(refused),
            None => store.io("write", &path, error).into(),
        },
    };
    let mut archive = ArchiveWriter::new(target.writer(store), limits, &account.trees);
    for (path, file) in &files {
        if cancelled.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(ComposeError::Cancelled);
        }
        let excluded = ignore.excludes(path);
        let excluded = excluded.ok_or_else(|| ComposeError::Invalid("it has too many files to look at".to_owned()))?;
        if !excluded {
            let content = (file.content.len() as u64, file.content.as_ref());
            archive.add_file(path, file.is_executable, content).map_err(explain)?;
        }
    }
    let written = archive.finish().map_err(explain)?;
    target.complete();
    let artifact = describe(request, &written.digest);
    let is_new = request
        .known
        .as_ref()
        .is_none_or(|known| known.facts.digest != written.digest);
    let path = store.keep(source, target, &written.digest)?;
    let stored_at = request
        .known
        .as_ref()
        .filter(|_| !is_new)
        .and_then(|known| known.stored_at);
    Ok(Fetched::Stored {
        artifact: StoredArtifact {
            size: written.size,
            path,
            stored_at: stored_at.or_else(|| Some(Timestamp::now())),
            ..artifact
        },
        subject: None,
    })
}

/// What is known of it besides the file: its revision, and what it was made of.
fn describe(request: &ComposeRequest, digest: &str) -> StoredArtifact {
    let artifacts: BTreeMap<&str, &IncludedArtifact> = request
        .list_artifacts()
        .map(|(alias, _, _, artifact)| (alias, artifact))
        .collect();
    let find = |alias: &Option<String>| artifacts.get(alias.as_deref()?).copied();
    let revision = find(&request.recipe.revision).map(|artifact| artifact.facts.revision.clone());
    let origin = find(&request.recipe.origin).map(|artifact| {
        let facts = &artifact.facts;
        facts.origin_revision.clone().unwrap_or_else(|| facts.revision.clone())
    });
    let metadata = origin.iter().map(|origin| (ORIGIN_REVISION.to_owned(), origin.clone()));
    StoredArtifact {
        facts: ArtifactFacts {
            revision: revision.unwrap_or_else(|| format!("latest@{digest}")),
            digest: digest.to_owned(),
            origin_revision: origin.clone(),
        },
        fingerprint: request.fingerprint.clone(),
        metadata: metadata.collect(),
        ..StoredArtifact::default()
    }
}

#[cfg(test)]
mod tests;
