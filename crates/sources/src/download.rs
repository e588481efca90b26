//! Downloads an artifact of another controller from the address in its status.
//!
//! Only the digest is trusted: the stored content has this digest. An administrator has allowed the address, and the dialer checks it like any other. No redirect is
//! followed, and no credentials are sent.

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Method, StatusCode};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tenure_remote_requests::artifact::StoredArtifact;
use tenure_remote_requests::download::DownloadRequest;
use tenure_remote_requests::fetch::{FetchFailure, FetchReason, Fetched};
use tokio::io::AsyncReadExt as _;

use crate::artifact::{ArtifactStore, IncomingFile, SourceKey, TaskWrite as _};
use crate::budget::OverBudget;
use crate::connector::Connector;
use crate::dialer::Dialer;
use crate::error::{FetchError, StorageError, describe_wait};
use crate::fetch_budgets::{self, FetchBudgets};
use crate::http::{HttpClient, HttpRequest};
use crate::limits::{Limits, describe_bytes};
use crate::policy::Endpoint;
use crate::secret::{Credentials, TlsOptions};

const AGENT: &str = concat!("tenure/", env!("CARGO_PKG_VERSION"));

/// Why the artifact of another controller could not be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The address is no URL.
    #[error("{0} is no address of an artifact")]
    InvalidUrl(String),
    /// The connection failed, or the policy denied it.
    #[error(transparent)]
    Connection(#[from] FetchError),
    /// The answer is no success.
    #[error("{url} answered HTTP {status}; redirects are not followed{}", describe_wait(*retry_after))]
    Status {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The wait that the server requests.
        retry_after: Option<Duration>,
    },
    /// The answer broke off.
    #[error("{url} broke off: {problem}")]
    Broken {
        /// The address.
        url: String,
        /// The error of the connection.
        problem: String,
    },
    /// The content has another digest.
    #[error("{url} has an artifact with digest {found}, and its status says {expected}")]
    Mismatch {
        /// The address.
        url: String,
        /// The expected digest.
        expected: String,
        /// The digest of the content.
        found: String,
    },
    /// The content is longer than an artifact may be.
    #[error("{url} has an artifact of more than {limit}")]
    TooLarge {
        /// The address.
        url: String,
        /// The bound, with its unit.
        limit: String,
    },
    /// A budget has no capacity for it.
    #[error("{0}")]
    OverBudget(#[from] OverBudget),
    /// The content could not be stored.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<&DownloadError> for FetchFailure {
    /// Converts the error into the planner's form.
    fn from(error: &DownloadError) -> Self {
        let reason = match error {
            DownloadError::Storage(_) | DownloadError::OverBudget(_) => FetchReason::ArchiveOperationFailed,
            _ => FetchReason::SourceFetchFailed,
        };
        let retry_after = match error {
            DownloadError::Status { retry_after, .. } => *retry_after,
            DownloadError::Connection(error) => error.retry_after(),
            _ => None,
        };
        Self {
            reason,
            message: error.to_string(),
            terminal: false,
            retry_after: retry_after.map(|wait| wait.as_secs()),
        }
    }
}

/// Downloads an artifact, if it isn't stored already.
///
/// Drop the future to cancel: the connection closes.
///
/// # Errors
/// A [`DownloadError`] that says what failed.
pub async fn download(
    source: &SourceKey,
    request: &DownloadRequest,
    reach: impl Into<Connector>,
    limits: &Limits,
    store: &ArtifactStore,
    account: &FetchBudgets,
) -> Result<Fetched, DownloadError> {
    let known = request
        .known
        .as_ref()
        .filter(|known| known.facts.digest == request.digest);
    if let Some(known) = known.filter(|known| store.contains(source, &known.facts.digest)) {
        if known.facts == request.facts() {
            let revision = request.revision.clone();
            return Ok(Fetched::Unchanged { revision });
        }
        let artifact = StoredArtifact {
            facts: request.facts(),
            ..known.clone()
        };
        return Ok(Fetched::Stored {
            artifact,
            subject: None,
        });
    }
    let dialer = Dialer::new(reach.into(), limits);
    let receiving = receive_archive(request, &dialer, limits, store, account);
    let received = match tokio::time::timeout(request.timeout, receiving).await {
        Ok(received) => received,
        Err(_) => Err(DownloadError::Connection(FetchError::Timeout {
            url: request.url.clone(),
            timeout: request.timeout,
        })),
    };
    // If the byte limit was reached, it is the cause of any error that the protocol reported.
    let (incoming, size) =
        received.map_err(|error| dialer.budget().limit_error().map_or(error, DownloadError::from))?;
    let path = store.store_archive(source, incoming, &request.digest)?;
    Ok(Fetched::Stored {
        artifact: StoredArtifact {
            facts: request.facts(),
            size,
            path,
            stored_at: Some(Timestamp::now()),
            ..StoredArtifact::default()
        },
        subject: None,
    })
}

async fn receive_archive(
    request: &DownloadRequest,
    dialer: &Dialer,
    limits: &Limits,
    store: &ArtifactStore,
    account: &FetchBudgets,
) -> Result<(IncomingFile, u64), DownloadError> {
    let (endpoint, target) = read_address(&request.url)?;
    let mut client = HttpClient::new(
        dialer.clone(),
        &endpoint,
        &Credentials::Anonymous,
        &TlsOptions::default(),
        AGENT,
    );
    let asked = HttpRequest {
        method: Method::GET,
        endpoint,
        target,
        headers: HeaderMap::new(),
        body: Bytes::new(),
        shown: request.url.clone(),
    };
    let answer = client.send(&asked).await?;
    if answer.status() != StatusCode::OK {
        return Err(DownloadError::Status {
            url: request.url.clone(),
            status: answer.status().as_u16(),
            retry_after: answer.retry_after(),
        });
    }
    answer.refuse_encoding()?;
    let mut body = answer.into_body();
    let mut incoming = store.incoming_file(&account.lane)?;
    let path = incoming.path().to_owned();
    let failed = |error: std::io::Error| match fetch_budgets::find_refusal(&error) {
        Some(refused) => DownloadError::OverBudget(refused),
        None => store.io_error("write", &path, error).into(),
    };
    // This task writes to the disk itself: pieces of 64 KiB go to the page cache, so the task blocks only briefly.
    let mut out = incoming.task_writer(store);
    let mut hash = Sha256::new();
    let mut size = 0_u64;
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = body.read(&mut piece).await;
        let length = read.map_err(|error| DownloadError::Broken {
            url: request.url.clone(),
            problem: error.to_string(),
        })?;
        if length == 0 {
            break;
        }
        size = size.saturating_add(length as u64);
        if size > limits.received_bytes {
            return Err(DownloadError::TooLarge {
                url: request.url.clone(),
                limit: describe_bytes(limits.received_bytes),
            });
        }
        let bytes = piece.get(..length).unwrap_or_default();
        hash.update(bytes);
        out.write_ready(bytes).await.map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    drop(out);
    incoming.complete();
    let found = format!("sha256:{}", hex::encode(hash.finalize()));
    if found != request.digest {
        return Err(DownloadError::Mismatch {
            url: request.url.clone(),
            expected: request.digest.clone(),
            found,
        });
    }
    Ok((incoming, size))
}

/// Reads the server and the path of an address.
fn read_address(url: &str) -> Result<(Endpoint, String), DownloadError> {
    let invalid = || DownloadError::InvalidUrl(url.to_owned());
    let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
    let (host, path) = rest.split_once('/').ok_or_else(invalid)?;
    let endpoint = format!("{scheme}://{host}").parse().map_err(|_| invalid())?;
    Ok((endpoint, format!("/{path}")))
}
