//! Errors of the server and its repositories, one variant for each operation.

use std::io;
use std::path::PathBuf;

/// Why an operation of the server or a repository failed.
#[derive(Debug, thiserror::Error)]
pub enum GitServerError {
    /// The name is invalid for a repository.
    #[error("{0:?} can't be a repository's name: use letters, digits, '.', '-' and '_', in parts separated by '/'")]
    InvalidName(String),
    /// The repository exists already.
    #[error("the repository {0:?} exists already")]
    Exists(String),
    /// The repository does not exist.
    #[error("there is no repository {0:?}")]
    Missing(String),
    /// A file or folder could not be used.
    #[error("can't {action} {}: {source}", .path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The installed git could not be run.
    #[error("can't run git: {0}; install it, or put it on the PATH")]
    Spawn(#[source] io::Error),
    /// Git ran and failed.
    #[error("git {command} failed: {message}")]
    Git {
        /// The subcommand.
        command: String,
        /// Its error output.
        message: String,
    },
    /// A path of a commit is invalid.
    #[error("{0:?} can't be a path in a commit")]
    InvalidPath(String),
    /// The server can't listen on the address.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Certificates or keys can't be used.
    #[error("can't use the certificates or keys given: {0}")]
    Keys(String),
}
