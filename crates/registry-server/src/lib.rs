//! A container registry in memory, for tests and the bench to fetch artifacts from.
//!
//! Content is pushed by function calls, and not over the network. The registry listens on the loopback address. It records every request, so that a test can check what
//! was sent to which host. It behaves like a real registry, unless a test changes its answers.

mod artifact;
mod server;

pub use artifact::{Artifact, compute_digest, pack_entries, pack_files};
pub use server::{Access, Answer, RecordedRequest, RegistryServer};
