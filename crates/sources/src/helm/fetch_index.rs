//! One fetch of a repository's index: download it, stop if nothing changed, else check and store it.

use std::io::{Read as _, Seek as _};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tenure_remote_requests::artifact::{ArtifactFacts, StoredArtifact};
use tenure_remote_requests::fetch::Fetched;
use tokio::time::Instant;

use super::error::ChartError;
use super::index;
use super::request::IndexFetch;
use crate::artifact::ArtifactStore;
use crate::cancel::spawn_cancellable;
use crate::connector::Connector;
use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::fetch_budgets::FetchBudgets;
use crate::limits::{Limits, describe_bytes};

/// The largest index, in bytes (Flux's limit).
pub(super) const INDEX_BYTES: u64 = 50 << 20;
/// Bytes of the buffers of a connection.
const CONNECTION_BYTES: u64 = 512 << 10;

/// Fetches the index of the request, if it has changed.
///
/// Drop the future to cancel: connections close and work on other threads stops. Memory and disk are charged to the account and to the store; the fetch waits for memory.
///
/// # Errors
/// A [`ChartError`] that says what failed and what to do.
pub fn fetch_index<'a>(
    request: &'a IndexFetch,
    reach: impl Into<Connector>,
    limits: &'a Limits,
    store: &'a ArtifactStore,
    account: &'a FetchBudgets,
) -> BoxFuture<'a, Result<Fetched, ChartError>> {
    let reach = reach.into();
    Box::pin(async move {
        let dialer = Dialer::new(reach, limits);
        let timeout = request.asked.timeout;
        // Waits for capacity end shortly before the timeout, so that the error names the missing capacity.
        let deadline = Instant::now() + timeout.saturating_sub(Duration::from_secs(1).min(timeout / 10));
        let fetching = run(request, &dialer, limits, store, account, deadline);
        let result = tokio::time::timeout(timeout, fetching).await;
        let timed_out = || {
            let url = request.repository.display_address();
            Err(ChartError::IndexFetch(FetchError::Timeout { url, timeout }))
        };
        let result = result.unwrap_or_else(|_| timed_out());
        // If the byte limit was reached, it is the cause of any error that the protocol reported.
        result.map_err(|error| {
            dialer
                .budget()
                .limit_error()
                .map_or(error, ChartError::from_index_request)
        })
    })
}

async fn run(
    request: &IndexFetch,
    dialer: &Dialer,
    limits: &Limits,
    store: &ArtifactStore,
    account: &FetchBudgets,
    deadline: Instant,
) -> Result<Fetched, ChartError> {
    let FetchBudgets { lane, memory, .. } = account;
    let held = memory.acquire(lane, CONNECTION_BYTES, deadline).await?;
    let bound = ("the index", INDEX_BYTES.min(limits.received_bytes));
    let received = request
        .repository
        .download(&request.repository.index_url(), (dialer, store, lane), bound)
        .await
        .map_err(ChartError::from_index_request)?;
    drop(held);
    let known = request.asked.known.as_ref().filter(|known| {
        known.facts.digest == received.digest
            && known.fingerprint == request.fingerprint
            && store.contains(&request.source, &known.facts.digest)
    });
    if let Some(known) = known {
        let revision = known.facts.revision.clone();
        return Ok(Fetched::Unchanged { revision });
    }
    let (file, size) = (received.file, received.size);
    let turn = account.unpacking.acquire(lane, 1, deadline).await?;
    let memory = memory.acquire(lane, size.saturating_mul(2), deadline).await?;
    let checked = spawn_cancellable(move |cancelled| {
        let _held = (turn, memory);
        let text = read_text(file.file())?;
        index::read_index(&text, None, cancelled).map_err(ChartError::Index)?;
        Ok::<_, ChartError>(file)
    });
    let file = checked.await.map_err(|_| ChartError::Cancelled)??;
    let path = store.store_archive(&request.source, file, &received.digest)?;
    let artifact = StoredArtifact {
        facts: ArtifactFacts {
            revision: received.digest.clone(),
            digest: received.digest,
            origin_revision: None,
        },
        size,
        path,
        stored_at: Some(Timestamp::now()),
        fingerprint: request.fingerprint.clone(),
        ..StoredArtifact::default()
    };
    Ok(Fetched::Stored {
        artifact,
        subject: None,
    })
}

/// Reads the text of an index. Blocks on the disk.
///
/// # Errors
/// A [`ChartError::Index`] when the file is too large or no text.
pub(super) fn read_text(mut file: &std::fs::File) -> Result<String, ChartError> {
    let failed = |error: std::io::Error| ChartError::Index(error.to_string());
    file.rewind().map_err(failed)?;
    let mut text = String::new();
    file.take(INDEX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > INDEX_BYTES {
        return Err(ChartError::Index(format!(
            "it is larger than {}",
            describe_bytes(INDEX_BYTES)
        )));
    }
    Ok(text)
}
