//! A store of objects in memory that speaks S3: what tests fetch buckets from.
//!
//! Owns what is put into it, on the loopback address, checks signatures with code of its own, and hears every request, so that a test can
//! say what was sent. It does what a store does, and whatever else a test tells it to. It refuses to be more: nothing is put over the
//! network.

mod server;
mod signature;

pub use server::{Answer, BucketServer, Heard};
pub use signature::{Keys, SignatureError, check_signature};
