//! Bare repositories in a folder, served over smart HTTP and ssh by the installed git.
//!
//! Owns the folder that it is given and nothing outside it: what a client names is a repository's name, never a path.
//! Git runs with a clean environment, so the user's configuration, hooks templates, helpers and identity play no part.
//! Whom it lets in is said in its options, or by repository in an [`Access`], which may change while it runs.
//! It is what the demo and the tests fetch from; it refuses to be more: no web pages, no listening beyond
//! the address it is told (loopback unless the caller says otherwise).

mod access;
mod error;
mod git;
mod http;
mod mirror;
mod repository;
mod server;
mod ssh;

pub use access::{Access, Clock, NewKey, NewToken, Repositories};
pub use error::GitServerError;
pub use mirror::Mirror;
pub use repository::{Content, Repository};
pub use server::{GitServer, HttpAuthentication, Options, ProtocolVersions, Push, Pushes, SshOptions, Tls};
