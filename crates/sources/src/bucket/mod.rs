//! Buckets of object stores that speak S3's protocol: signatures, listings, and objects into archives.
//!
//! Every connection goes through the dialer, as Git's do. Owns these rules, and refuses what breaks them:
//!
//! - The keys are used to sign, and go nowhere. A signature is for one host, one request and one moment.
//! - No redirect is followed. A store that says that the bucket is in another region is asked once more, signed for that region.
//! - What a listing says of an object is believed of nothing but when to fetch it: what arrives has the length that it is said to have, and
//!   the mark that its answer bears.
//! - An object's key becomes a path as it stands, or the bucket is refused: nothing is renamed.

mod client;
mod error;
mod fetch;
mod index;
mod listing;
mod request;
mod signature;
mod write;

pub use error::BucketError;
pub use fetch::fetch_bucket;
pub use request::{AccessKeys, BucketRequest, BucketSecrets};
