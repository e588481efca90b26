//! An object store in memory that speaks S3, for tests to fetch buckets from.
//!
//! Objects are put by function calls, and not over the network. The store listens on the loopback address, checks signatures with code of its own, and records every
//! request, so that a test can check what was sent. It behaves like a real store, unless a test changes its answers.

mod server;
mod signature;

pub use server::{Answer, BucketServer, RecordedRequest};
pub use signature::{Keys, SignatureError, check_signature};
