//! A Git host in memory, from which tests and the demo request credentials.
//!
//! The host has projects, groups, people and issued credentials, and serves them as the public documents of GitLab, GitHub and Gitea say. Holders of a credential clone
//! from the `git-server` beside the host, and pull from a container registry that accepts this host's tokens. Tests configure faults, read the requests that the host
//! received, and list the credentials that are valid. The host listens on the loopback address and stores nothing on disk; the program uses it only for `tenure demo
//! access`.

mod asked;
mod clock;
mod fault;
mod gitea;
mod github;
mod gitlab;
mod oauth;
mod registry_token;
mod server;
mod world;

pub use fault::{Fault, Misbehaviour};
pub use server::{ForgeServer, Kind, RecordedRequest};
pub use world::{Issue, LiveCredential, LiveCredentialKind, Owner};
