//! A host of repositories in memory: what tests, and a demonstration, ask for credentials.
//!
//! Owns projects, groups, people and the credentials that it gave out, and speaks of them as the public documents of GitLab, GitHub and Gitea
//! say; who holds a credential clones with it from the `git-server` beside it, and pulls from a container registry that takes this host's tokens.
//! It does whatever else a test tells it to, counts what it is asked, and knows which credentials live. It refuses to be more: it listens on the
//! loopback address and keeps nothing; the program has it for its demonstration alone.

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
pub use server::{ForgeServer, Heard, Kind};
pub use world::{Issue, Live, LiveKind, Owner};
