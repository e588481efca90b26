//! Composes an artifact from files of other artifacts, as an ArtifactGenerator orders.
//!
//! Nothing is fetched: the parts are in the store, found by source and digest, and verified when they are loaded. The same parts always give the same archive.

mod stage;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use jiff::Timestamp;
use tenure_remote_requests::artifact::{ArtifactFacts, IncludedArtifact, StoredArtifact};
use tenure_remote_requests::composition::ComposeRequest;
use tenure_remote_requests::fetch::{FetchFailure, FetchReason, Fetched};
use tenure_remote_requests::oci::ORIGIN_REVISION;
use tokio::time::Instant;

use self::stage::Stage;
use crate::archive_writer::{ArchiveWriter, WriteError};
use crate::artifact::{ArtifactStore, SourceKey};
use crate::budget::{HeldBytes, OverBudget};
use crate::cancel::spawn_cancellable;
use crate::error::StorageError;
use crate::fetch_budgets::{self, FetchBudgets, GrowingCharge};
use crate::ignore::Ignore;
use crate::limits::Limits;
use crate::tree::Tree;

/// Bytes that composing begins with: the buffers of unpacking and packing.
const BUFFER_BYTES: u64 = 1 << 20;

/// Why an artifact can't be composed from the files of other artifacts.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// The recipe can't be followed with these files.
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
    /// A budget has no capacity for it.
    #[error("{0}")]
    OverBudget(#[from] OverBudget),
    /// A part could not be loaded, or the result not be stored.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Composing exceeded its time limit.
    #[error("it was not made within {0:?}")]
    Timeout(std::time::Duration),
    /// The caller no longer waits for the artifact.
    #[error("it was given up")]
    Cancelled,
}

impl From<&ComposeError> for FetchFailure {
    /// Converts the error into the planner's form.
    fn from(error: &ComposeError) -> Self {
        let reason = match error {
            ComposeError::Storage(StorageError::Missing { .. }) => FetchReason::SourceFetchFailed,
            ComposeError::Storage(_) => FetchReason::ArchiveOperationFailed,
            _ => FetchReason::BuildFailed,
        };
        Self {
            reason,
            message: error.to_string(),
            // Other files may work, and the files of a source change without a new spec.
            terminal: false,
            retry_after: None,
        }
    }
}

/// Counts the bytes of memory that the parts of an artifact take together.
///
/// # Errors
/// [`StorageError::Missing`] when a part is no longer stored, or another [`StorageError`].
pub fn count_parts(request: &ComposeRequest, store: &ArtifactStore) -> Result<u64, StorageError> {
    list_parts(request)?.iter().try_fold(0_u64, |bytes, (_, key, digest)| {
        Ok(bytes.saturating_add(store.loaded_size(key, digest)?))
    })
}

/// Lists the artifacts that a request needs, each with its alias, source and digest.
fn list_parts(request: &ComposeRequest) -> Result<Vec<(String, SourceKey, String)>, StorageError> {
    let artifacts = request.list_artifacts();
    let find = |(alias, source, uid, artifact): (
        &str,
        &tenure_remote_requests::composition::FoundSource,
        &str,
        &IncludedArtifact,
    )| {
        let key = SourceKey::new(&source.kind, &source.namespace, &source.name, uid)?;
        Ok((alias.to_owned(), key, artifact.facts.digest.clone()))
    };
    artifacts.map(find).collect()
}

/// Returns the known artifact if composing would give the same one again.
pub fn find_made(source: &SourceKey, request: &ComposeRequest, store: &ArtifactStore) -> Option<Fetched> {
    let known = request.known.as_ref()?;
    let is_same = known.fingerprint == request.fingerprint && store.contains(source, &known.facts.digest);
    is_same.then(|| Fetched::Unchanged {
        revision: known.facts.revision.clone(),
    })
}

/// Composes an artifact. `room` is the memory of its parts, and is released when the artifact is complete.
///
/// Drop the future to cancel: work on other threads stops.
///
/// # Errors
/// A [`ComposeError`] that says what failed.
pub async fn compose(
    source: &SourceKey,
    request: &ComposeRequest,
    room: HeldBytes,
    limits: &Limits,
    store: &ArtifactStore,
    account: &FetchBudgets,
) -> Result<Fetched, ComposeError> {
    let deadline = Instant::now() + request.timeout;
    let composing = compose_in_turn(source, request, room, limits, store, account, deadline);
    match tokio::time::timeout_at(deadline, composing).await {
        Ok(result) => result,
        Err(_) => Err(ComposeError::Timeout(request.timeout)),
    }
}

/// Composes an artifact when it is the lane's turn for blocking work.
async fn compose_in_turn(
    source: &SourceKey,
    request: &ComposeRequest,
    room: HeldBytes,
    limits: &Limits,
    store: &ArtifactStore,
    account: &FetchBudgets,
    deadline: Instant,
) -> Result<Fetched, ComposeError> {
    let FetchBudgets { lane, memory, .. } = account;
    let mut memory = GrowingCharge::new_used(memory.acquire(lane, BUFFER_BYTES, deadline).await?);
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
    (limits, store, account): (&Limits, &ArtifactStore, &FetchBudgets),
    memory: &mut GrowingCharge,
    cancelled: &AtomicBool,
) -> Result<Fetched, ComposeError> {
    let mut stage = Stage::new(parts, limits, memory, cancelled);
    stage.follow_recipe(&request.recipe)?;
    let files = std::mem::take(&mut stage.files);
    drop(stage);
    // Flux leaves these files out of every archive that it makes.
    let ignore = Ignore::new(&[], None);
    let mut target = store.incoming_file(&account.lane)?;
    let path = target.path().to_owned();
    let explain = |error: WriteError| match error {
        WriteError::Invalid(problem) => ComposeError::Invalid(problem),
        WriteError::TooLarge { what, limit } => ComposeError::TooLarge { what, limit },
        WriteError::OverBudget(refused) => ComposeError::OverBudget(refused),
        WriteError::Io(error) => match fetch_budgets::find_refusal(&error) {
            Some(refused) => ComposeError::OverBudget(refused),
            None => store.io_error("write", &path, error).into(),
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
    let artifact = describe_artifact(request, &written.digest);
    let is_new = request
        .known
        .as_ref()
        .is_none_or(|known| known.facts.digest != written.digest);
    let path = store.store_archive(source, target, &written.digest)?;
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

/// Describes the artifact besides its file: its revision, and its parts.
fn describe_artifact(request: &ComposeRequest, digest: &str) -> StoredArtifact {
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
