//! Owns who a request comes from: users and the groups that come by themselves, and what a ServiceAccount's token claims. Refuses to say what they may do; that is [`crate::authorization`]'s question.

pub mod claims;
mod user;

use std::sync::Arc;

use serde_json::Value;

pub use user::*;

/// What this asks the store for: the present state of one object.
///
/// Implemented by the server on a snapshot of its store, so that the answer is consistent and needs no I/O.
pub trait Lookup {
    /// The object, or `None` if it is not there. `group` is empty for the core group; `namespace` is `None`
    /// for objects of the cluster.
    fn get(&self, group: &str, resource: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Value>>;
}
