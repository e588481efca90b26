//! Serves bare repositories in a folder over smart HTTP and ssh, with the installed git. The demo and the tests fetch from it.
//!
//! The server uses only its own folder: a client names a repository, never a path. Git runs with a clean environment, so the user's configuration, hook templates,
//! helpers and identity have no effect. The options name the accepted credentials. An [`Access`] adds credentials for single repositories, and may change while the
//! server runs. The server has no web pages, and listens only on its given address (loopback unless the caller chooses another).

mod access;
mod error;
mod git;
mod http;
mod large_files;
mod mirror;
mod repository;
mod server;
mod ssh;

pub use access::{Access, Clock, NewKey, NewToken, Repositories};
pub use error::GitServerError;
pub use large_files::{Damage, LargeFileOptions, LargeFileRequest};
pub use mirror::Mirror;
pub use repository::{Content, Repository};
pub use server::{GitServer, HttpAuthentication, Options, ProtocolVersions, Push, Pushes, SshOptions, Tls};
