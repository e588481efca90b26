//! Errors of fetching a Git source, in words that a tenant can act on.
//!
//! Each error has one of Flux's reasons, and says whether a retry may help. No error carries a credential: every URL here is the display form of a [`crate::RemoteUrl`],
//! without user information, query and fragment.

use std::net::IpAddr;
use std::time::Duration;

use tenure_remote_requests::fetch::{FetchFailure, FetchReason};

use crate::budget::OverBudget;
use crate::connector::{ConnectFailure, ConnectRefusal};
use crate::policy::Denied;

/// Why a fetch of a Git repository gave no artifact, or why any connection failed. One variant for each operation that can fail.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// `spec.url` is no URL that a fetch supports.
    #[error("invalid Git URL {url}: {problem}")]
    InvalidUrl {
        /// The URL without credentials.
        url: String,
        /// The problem, and the accepted forms.
        problem: String,
    },
    /// A field of the specification has a value that can't be used.
    #[error("invalid {field}: {problem}")]
    InvalidField {
        /// Path of the field, as `spec.ref.semver`.
        field: &'static str,
        /// The problem.
        problem: String,
    },
    /// The Secret lacks a key or holds one that can't be read.
    #[error("the Secret of spec.secretRef can't be used: {problem}")]
    InvalidSecret {
        /// The key, and the expected content; never the value.
        problem: String,
    },
    /// The Secret is not of the kind that the provider needs.
    #[error("{problem}")]
    InvalidProvider {
        /// The missing or unexpected entry.
        problem: String,
    },
    /// The answer of an API other than Git's is unusable.
    #[error("{url}: {problem}")]
    HttpApi {
        /// The URL without credentials.
        url: String,
        /// The expected answer.
        problem: String,
    },
    /// The Secret of the proxy can't be used.
    #[error("the Secret of spec.proxySecretRef can't be used: {problem}")]
    InvalidProxy {
        /// The key, and the expected content; never the value.
        problem: String,
    },
    /// The policy denies the address of a connection.
    #[error("{0}")]
    AddressDenied(#[from] Denied),
    /// The process that opens connections for this one opened none.
    #[error("{0}")]
    NotOpened(#[from] ConnectRefusal),
    /// The host's name has no address.
    #[error("can't resolve host {host:?}: {source}")]
    Resolve {
        /// The host of the URL.
        host: String,
        /// The resolver's error.
        #[source]
        source: std::io::Error,
    },
    /// No address of the host accepted a connection.
    #[error("can't connect to {host}:{port} ({address}): {source}")]
    Connect {
        /// The host of the URL.
        host: String,
        /// The port of the URL.
        port: u16,
        /// The address tried last.
        address: IpAddr,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The TLS handshake failed.
    #[error("TLS with {host}:{port} failed: {problem}")]
    Tls {
        /// The host of the URL.
        host: String,
        /// The port of the URL.
        port: u16,
        /// The problem, and the Secret key that could solve it.
        problem: String,
    },
    /// The connection broke during use.
    #[error("connection to {url} broke: {problem}")]
    Broken {
        /// The URL without credentials.
        url: String,
        /// How the connection broke.
        problem: String,
    },
    /// The server sent a redirect that is not followed.
    #[error("redirect from {from} to {to} refused: {problem}")]
    Redirect {
        /// The URL that sent the redirect.
        from: String,
        /// The target.
        to: String,
        /// Why it is not followed.
        problem: &'static str,
    },
    /// The server requires credentials, or rejects the given ones.
    #[error("authentication to {url} failed: {problem}")]
    Unauthorized {
        /// The URL without credentials.
        url: String,
        /// The attempts, and the remedy.
        problem: String,
    },
    /// The server's ssh host key is not in the Secret's `known_hosts`.
    #[error("ssh host key of {host} refused: {problem}")]
    HostKey {
        /// Host, and port where it isn't 22.
        host: String,
        /// Its fingerprint, and the lines of `known_hosts`.
        problem: String,
    },
    /// The server answered with a status that isn't success.
    #[error("{url} answered HTTP {status}: {problem}{}", describe_wait(*retry_after))]
    HttpStatus {
        /// The URL without credentials.
        url: String,
        /// The HTTP status code.
        status: u16,
        /// The meaning of this status for a Git URL.
        problem: &'static str,
        /// The wait that the server requests.
        retry_after: Option<Duration>,
    },
    /// The server refused or failed the request in the Git protocol.
    #[error("the Git server at {url} said: {message}")]
    Remote {
        /// The URL without credentials.
        url: String,
        /// The server's words, cut to a line and without control characters.
        message: String,
    },
    /// The server violates the Git protocol.
    #[error("{url} does not answer as a Git server: {problem}")]
    Protocol {
        /// The URL without credentials.
        url: String,
        /// The problem, or the expected answer.
        problem: String,
    },
    /// The repository lacks the branch, tag, name or commit.
    #[error("{what} not found in {url}{}", close_names(.close))]
    ReferenceNotFound {
        /// As `branch "mian"`.
        what: String,
        /// The URL without credentials.
        url: String,
        /// Similar names in the repository, at most five.
        close: Vec<String>,
    },
    /// The reference leads to an object that is no commit.
    #[error("{name} in {url} leads to a {kind} and not to a commit: move it to a commit, or name another")]
    NoCommit {
        /// As `refs/tags/v1.1.0`.
        name: String,
        /// `tree` or `blob`.
        kind: &'static str,
        /// The URL without credentials.
        url: String,
    },
    /// A bound of [`crate::Limits`] was reached.
    #[error("repository over the size limit: {what} exceed {limit}; {advice}")]
    TooLarge {
        /// The counted unit, such as "received bytes".
        what: &'static str,
        /// The bound, with its unit.
        limit: String,
        /// The remedy, for the user or an administrator.
        advice: &'static str,
    },
    /// The budget of the tenant, or of all tenants, has no capacity for it.
    #[error(
        "repository over a budget: {0}; fetch less with spec.sparseCheckout or spec.ignore, or ask an administrator to raise the flag"
    )]
    OverBudget(#[from] OverBudget),
    /// The received objects are malformed or differ from their ids.
    #[error("the objects received from {url} are invalid: {problem}")]
    InvalidPack {
        /// The URL without credentials.
        url: String,
        /// The problem.
        problem: String,
    },
    /// A tree of the commit has an entry that can't be stored.
    #[error("commit {commit} can't be made into an artifact: {problem}")]
    InvalidTree {
        /// The commit, in hex.
        commit: String,
        /// The path and what is wrong with it.
        problem: String,
    },
    /// A folder of `spec.sparseCheckout` is not in the commit.
    #[error("failed to sparse checkout directories: sparse checkout dir {folder:?} does not exist in commit {commit}")]
    MissingFolder {
        /// The folder.
        folder: String,
        /// The commit, in hex.
        commit: String,
    },
    /// A submodule could not be fetched.
    #[error("submodule {path:?}: {error}")]
    Submodule {
        /// Its path.
        path: String,
        /// The cause.
        error: Box<Self>,
    },
    /// The content of a file in Git LFS could not be fetched.
    #[error(
        "{path:?} is in Git LFS, and its content can't be fetched: {error}. If no build needs the file, leave it out with spec.ignore"
    )]
    LfsFile {
        /// Its path.
        path: String,
        /// The cause.
        error: Box<Self>,
    },
    /// A server of Git LFS refused a request, or one object.
    #[error("{url} answered {code}: {problem}{}{}", describe_words(.words), describe_wait(*retry_after))]
    LfsRefused {
        /// The URL without credentials, path of an object and query.
        url: String,
        /// The HTTP status, or the server's code for the object.
        code: u16,
        /// The meaning of the code, and what to do.
        problem: &'static str,
        /// The server's words, cut to a line; empty if it has none.
        words: String,
        /// The wait that the server requests.
        retry_after: Option<Duration>,
    },
    /// A pointer of Git LFS contradicts another, or itself.
    #[error("its pointer is wrong: {problem}")]
    InvalidPointer {
        /// The problem.
        problem: String,
    },
    /// A required signature is missing, or no trusted key made it.
    #[error("{problem}")]
    Unverified {
        /// The reason as Flux names it.
        reason: FetchReason,
        /// The object, and the cause.
        problem: String,
    },
    /// The Secret with the trusted keys can't be used.
    #[error("the Secret of spec.verify.secretRef can't be used: {problem}")]
    InvalidKeys {
        /// The entry, and its required content.
        problem: String,
    },
    /// Files of an included source can't be put at their place.
    #[error("failed to include: {problem}")]
    Misplaced {
        /// The conflicting file, and what to do.
        problem: String,
    },
    /// The whole fetch took longer than `spec.timeout`.
    #[error("fetching {url} took longer than {} s (spec.timeout)", .timeout.as_secs_f64())]
    Timeout {
        /// The URL without credentials.
        url: String,
        /// `spec.timeout`.
        timeout: Duration,
    },
    /// The artifact could not be written or read.
    #[error("artifact storage: {0}")]
    Storage(#[from] StorageError),
}

impl From<&FetchError> for FetchFailure {
    /// Converts the error into the planner's form.
    fn from(error: &FetchError) -> Self {
        Self {
            reason: error.reason(),
            message: error.to_string(),
            terminal: error.is_stalled(),
            retry_after: error.retry_after().map(|wait| wait.as_secs()),
        }
    }
}

/// Why an artifact could not be stored or loaded.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A file of the store could not be read or written.
    #[error("can't {action} {path}: {source}")]
    Io {
        /// The attempted action, such as "write".
        action: &'static str,
        /// Path inside the store.
        path: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The artifact does not exist, or no longer.
    #[error("artifact {digest} is not in the store; it is fetched again at the next reconciliation")]
    Missing {
        /// The requested digest.
        digest: String,
    },
    /// The stored bytes have another digest.
    #[error("stored artifact has digest {found}, not {expected}; it was changed or damaged")]
    DigestMismatch {
        /// The requested digest.
        expected: String,
        /// The digest of the stored bytes.
        found: String,
    },
    /// The name of a source or a digest can't be part of a path.
    #[error("{what} can't be part of a storage path: {value:?}")]
    InvalidName {
        /// The kind of name, as "namespace".
        what: &'static str,
        /// The value.
        value: String,
    },
    /// The archive is malformed.
    #[error("artifact {digest} can't be read: {problem}")]
    InvalidArchive {
        /// The digest of the artifact.
        digest: String,
        /// The problem.
        problem: String,
    },
    /// The budget of the tenant, or of all tenants, has no capacity for it.
    #[error("{0}")]
    OverBudget(#[from] OverBudget),
    /// A bound of [`crate::Limits`] was reached while the artifact was loaded.
    #[error("artifact {digest} is over the limit: {what} exceed {limit}")]
    TooLarge {
        /// The digest of the artifact.
        digest: String,
        /// What was counted.
        what: &'static str,
        /// The bound, with its unit.
        limit: String,
    },
}

impl FetchError {
    /// Returns the reason of the condition `FetchFailed` (or `StorageOperationFailed`), as Flux's source-controller names it.
    pub fn reason(&self) -> FetchReason {
        match self {
            Self::InvalidUrl { .. } => FetchReason::UrlInvalid,
            Self::InvalidSecret { .. }
            | Self::InvalidProxy { .. }
            | Self::Unauthorized { .. }
            | Self::HostKey { .. } => FetchReason::AuthenticationFailed,
            Self::InvalidProvider { .. } => FetchReason::InvalidProviderConfiguration,
            Self::Storage(_) => FetchReason::ArchiveOperationFailed,
            Self::Unverified { reason, .. } => *reason,
            Self::Submodule { error, .. } | Self::LfsFile { error, .. } => match error.reason() {
                // The URL is not the object's.
                FetchReason::UrlInvalid => FetchReason::GitOperationFailed,
                reason => reason,
            },
            Self::InvalidKeys { .. } => FetchReason::VerificationError,
            Self::Misplaced { .. } => FetchReason::CopyFailure,
            Self::InvalidField { .. }
            | Self::AddressDenied(_)
            | Self::NotOpened(_)
            | Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Tls { .. }
            | Self::Broken { .. }
            | Self::Redirect { .. }
            | Self::HttpStatus { .. }
            | Self::HttpApi { .. }
            | Self::Remote { .. }
            | Self::Protocol { .. }
            | Self::ReferenceNotFound { .. }
            | Self::NoCommit { .. }
            | Self::TooLarge { .. }
            | Self::OverBudget(_)
            | Self::InvalidPack { .. }
            | Self::InvalidTree { .. }
            | Self::MissingFolder { .. }
            | Self::LfsRefused { .. }
            | Self::InvalidPointer { .. }
            | Self::Timeout { .. } => FetchReason::GitOperationFailed,
        }
    }

    /// Returns whether the same request may succeed later without a change of the object, its Secret or the repository.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Broken { .. }
            | Self::Timeout { .. }
            | Self::Remote { .. } => true,
            Self::Storage(StorageError::Io { .. }) => true,
            Self::NotOpened(refusal) => refusal.failure == ConnectFailure::Unreachable,
            Self::Submodule { error, .. } | Self::LfsFile { error, .. } => error.is_transient(),
            Self::OverBudget(refused) | Self::Storage(StorageError::OverBudget(refused)) => refused.is_transient(),
            Self::HttpStatus { status, .. } => is_transient_status(*status),
            // Not implemented, no storage, no bandwidth.
            Self::LfsRefused { code, .. } => is_transient_status(*code) && !matches!(code, 501 | 507 | 509),
            _ => false,
        }
    }

    /// Returns the wait that the server requests.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::HttpStatus { retry_after, .. } | Self::LfsRefused { retry_after, .. } => *retry_after,
            Self::Submodule { error, .. } | Self::LfsFile { error, .. } => error.retry_after(),
            _ => None,
        }
    }

    /// Returns true if only a change of the object itself can help: the object is `Stalled`.
    pub fn is_stalled(&self) -> bool {
        matches!(self, Self::InvalidUrl { .. } | Self::InvalidField { .. })
    }
}

/// Describes the wait that a server requests, for a message.
pub(crate) fn describe_wait(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(String::new, |wait| {
        format!("; it asks to wait for {} s", wait.as_secs())
    })
}

/// Checks whether the same request may succeed later after this HTTP status.
fn is_transient_status(status: u16) -> bool {
    status == 408 || status == 429 || status >= 500
}

/// Returns the part of a message that repeats a server's words; empty without words.
fn describe_words(words: &str) -> String {
    if words.is_empty() {
        String::new()
    } else {
        format!("; it says: {words}")
    }
}

/// Returns the part of a message that lists similar names; empty without names.
fn close_names(close: &[String]) -> String {
    if close.is_empty() {
        String::new()
    } else {
        format!("; close to it: {}", close.join(", "))
    }
}
