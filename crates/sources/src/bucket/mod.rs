//! Buckets of object stores that speak S3's protocol: signatures, listings, and objects into archives.
//!
//! Every connection goes through the dialer, as for Git. A fetch fails if one of these rules is broken:
//!
//! - The secret key only signs, and is sent to no host. A signature is for one host, one request and one moment.
//! - No redirect is followed. If a store says that the bucket is in another region, the request is repeated once, signed for that region.
//! - A listing only decides when to fetch an object. The received object must have its declared length and the mark of its answer.
//! - An object's key becomes a path unchanged, or the bucket is refused: no object is renamed.

mod client;
mod error;
mod fetch;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod index;
mod listing;
mod request;
mod signature;
mod write;

pub use error::BucketError;
pub use fetch::fetch_bucket;
pub use request::{AccessKeys, BucketRequest, BucketSecrets};
