//! A container registry in memory: what tests fetch artifacts from.
//!
//! Owns what is pushed into it, on the loopback address, and hears every request, so that a test can say what was sent to whom. It does
//! what a registry does, and whatever else a test tells it to. It refuses to be more: nothing is pushed over the network.

mod artifact;
mod server;

pub use artifact::{Artifact, digest, pack, pack_as_said};
pub use server::{Access, Answer, Heard, RegistryServer};
