//! The facts about a write that a kind needs, and its access to other objects.

use jiff::Timestamp;
use serde_json::Value;
use tenure_auth::identity::{ObjectLookup, UserInfo};

use super::{Allocated, Resource, ServiceRange};

/// The objects at one moment, in their stored versions. The registry implements the trait on a snapshot of its store.
pub trait Objects: ObjectLookup {
    /// Returns the objects of one resource, in one namespace or everywhere.
    fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Value>;

    /// Returns how many Services hold this value, in all namespaces. Services that were stored after the snapshot may be included. Called
    /// for every new Service, so the cost must not grow with their number.
    fn count_holders(&self, allocated: Allocated) -> usize;
}

/// A write, with the facts that a kind needs.
pub struct Request<'a> {
    /// The resource that is written.
    pub resource: &'a Resource,
    /// The subresource; `None` for the resource itself.
    pub subresource: Option<&'a str>,
    /// The requester.
    pub user: &'a UserInfo,
    /// Whether the request is a dry run, which stores and allocates nothing.
    pub dry_run: bool,
    /// The present time.
    pub now: Timestamp,
    /// Fills with random bytes.
    pub random: fn(&mut [u8]),
    /// Sends a warning to the writer.
    pub warn: &'a dyn Fn(String),
    /// The range for the addresses of Services.
    pub services: ServiceRange,
    /// The stored objects, at one moment.
    pub objects: &'a dyn Objects,
}
