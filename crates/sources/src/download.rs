//! An artifact that another controller has made, from the address that its status names.
//!
//! Owns that what is stored is what the digest says, and nothing else of it is believed. The address was allowed by an administrator, and is
//! dialed as any other; no redirect is followed, and nobody is shown credentials.

use std::io::Write as _;

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Method, StatusCode};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tenure_planner::artifact::StoredArtifact;
use tenure_planner::external_artifact::DownloadRequest;
use tenure_planner::source::{FetchFailure, FetchReason, Fetched};
use tokio::io::AsyncReadExt as _;

use crate::account::{self, Account};
use crate::artifact::{ArtifactStore, Incoming, SourceKey, TaskWrite as _};
use crate::budget::OverBudget;
use crate::dialer::Dialer;
use crate::error::{FetchError, StorageError};
use crate::http::{HttpClient, HttpRequest};
use crate::limits::{Limits, describe_bytes};
use crate::policy::Endpoint;
use crate::reach::Reach;
use crate::secret::{Credentials, TlsOptions};

const AGENT: &str = concat!("tenure/", env!("CARGO_PKG_VERSION"));

/// Why an artifact could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The address is none.
    #[error("{0} is no address of an artifact")]
    InvalidUrl(String),
    /// The connection, or the dialer's policy.
    #[error(transparent)]
    Connection(#[from] FetchError),
    /// The answer isn't success.
    #[error("{url} answered HTTP {status}; redirects are not followed")]
    Status {
        /// Who answered.
        url: String,
        /// What.
        status: u16,
    },
    /// The answer broke off.
    #[error("{url} broke off: {problem}")]
    Broken {
        /// Where it came from.
        url: String,
        /// What the connection said.
        problem: String,
    },
    /// What came is not what the digest says.
    #[error("{url} has an artifact with digest {found}, and its status says {expected}")]
    Mismatch {
        /// Where it came from.
        url: String,
        /// What was expected.
        expected: String,
        /// What came.
        found: String,
    },
    /// It is longer than an artifact may be.
    #[error("{url} has an artifact of more than {limit}")]
    TooLarge {
        /// Where it came from.
        url: String,
        /// The bound, with its unit.
        limit: String,
    },
    /// There is no room for it.
    #[error("{0}")]
    OverBudget(#[from] OverBudget),
    /// It could not be stored.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<&DownloadError> for FetchFailure {
    /// What the planner is told of it.
    fn from(error: &DownloadError) -> Self {
        let reason = match error {
            DownloadError::Storage(_) | DownloadError::OverBudget(_) => FetchReason::ArchiveOperationFailed,
            _ => FetchReason::SourceFetchFailed,
        };
        Self {
            reason,
            message: error.to_string(),
            terminal: false,
            retry_after: None,
        }
    }
}

/// Fetches an artifact, if it isn't stored already.
///
/// Cancel it by dropping the future: the connection closes.
///
/// # Errors
/// A [`DownloadError`] that says what failed.
pub async fn download(
    source: &SourceKey,
    request: &DownloadRequest,
    reach: impl Into<Reach>,
    limits: &Limits,
    store: &ArtifactStore,
    account: &Account,
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
    let receiving = receive(request, &dialer, limits, store, account);
    let received = match tokio::time::timeout(request.timeout, receiving).await {
        Ok(received) => received,
        Err(_) => Err(DownloadError::Connection(FetchError::Timeout {
            url: request.url.clone(),
            timeout: request.timeout,
        })),
    };
    // Whatever the protocol made of the end of its stream: if too much arrived, that is the reason.
    let (incoming, size) = received.map_err(|error| dialer.budget().exceeded().map_or(error, DownloadError::from))?;
    let path = store.keep(source, incoming, &request.digest)?;
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

async fn receive(
    request: &DownloadRequest,
    dialer: &Dialer,
    limits: &Limits,
    store: &ArtifactStore,
    account: &Account,
) -> Result<(Incoming, u64), DownloadError> {
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
        });
    }
    answer.refuse_encoding()?;
    let mut body = answer.into_body();
    let mut incoming = store.incoming_file(&account.lane)?;
    let path = incoming.path().to_owned();
    let failed = |error: std::io::Error| match account::find_refusal(&error) {
        Some(refused) => DownloadError::OverBudget(refused),
        None => store.io("write", &path, error).into(),
    };
    // Written without leaving the thread: pieces of 64 KiB go to the page cache.
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

/// Who is asked, and for which path.
fn read_address(url: &str) -> Result<(Endpoint, String), DownloadError> {
    let invalid = || DownloadError::InvalidUrl(url.to_owned());
    let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
    let (host, path) = rest.split_once('/').ok_or_else(invalid)?;
    let endpoint = format!("{scheme}://{host}").parse().map_err(|_| invalid())?;
    Ok((endpoint, format!("/{path}")))
}
