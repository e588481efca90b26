//! What a kind is told of the request that writes one of its objects, and how it looks at others.

use jiff::Timestamp;
use serde_json::Value;
use tenure_access::identity::{Lookup, UserInfo};

use super::{Allocated, Resource, ServiceRange};

/// All objects at one moment, in the versions that they are stored in. The registry implements it on a snapshot of its store.
pub trait Objects: Lookup {
    /// The objects of one resource, in one namespace or everywhere.
    fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Value>;

    /// How many Services hold this, in all namespaces; those that were stored since that moment may be among them. Each Service that is made
    /// asks so, whoever's the others are: the answer may not cost more the more there are.
    fn count_holders(&self, allocated: Allocated) -> usize;
}

/// One write, as far as a kind has to know it.
pub struct Request<'a> {
    /// The resource that is written.
    pub resource: &'a Resource,
    /// The endpoint, if it is none of the resource itself.
    pub subresource: Option<&'a str>,
    /// Who asks.
    pub user: &'a UserInfo,
    /// Whether nothing is to be stored: then nothing is given out.
    pub dry_run: bool,
    /// The present time.
    pub now: Timestamp,
    /// Fills with random bytes.
    pub random: fn(&mut [u8]),
    /// Tells the writer something.
    pub warn: &'a dyn Fn(String),
    /// Where Services get their addresses from.
    pub services: ServiceRange,
    /// Everything else there is.
    pub objects: &'a dyn Objects,
}
