//! What can go wrong in the server and its repositories, one variant for each operation.

use std::io;
use std::path::PathBuf;

/// Why the server, or one of its repositories, could not do as it was told.
#[derive(Debug, thiserror::Error)]
pub enum GitServerError {
    /// The name can't be a repository's.
    #[error("{0:?} can't be a repository's name: use letters, digits, '.', '-' and '_', in parts separated by '/'")]
    InvalidName(String),
    /// The repository exists already.
    #[error("the repository {0:?} exists already")]
    Exists(String),
    /// There is no such repository.
    #[error("there is no repository {0:?}")]
    Missing(String),
    /// A file or folder could not be used.
    #[error("can't {action} {}: {source}", .path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
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
        /// What it wrote to its error output.
        message: String,
    },
    /// A path of a commit can't be written.
    #[error("{0:?} can't be a path in a commit")]
    InvalidPath(String),
    /// The address could not be listened on.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Certificates or keys can't be used.
    #[error("can't use the certificates or keys given: {0}")]
    Keys(String),
}
