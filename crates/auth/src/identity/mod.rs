//! The sender of a request: users and their implied groups, and the claims of a ServiceAccount's token. Rights are in
//! [`crate::authorization`].

pub mod claims;
mod user;

use std::sync::Arc;

use serde_json::Value;

pub use user::*;

/// Reads the current state of one object.
///
/// The server implements this trait on a snapshot of its store, so that the answer is consistent and needs no I/O.
pub trait ObjectLookup {
    /// Returns the object, or `None` if it is missing. `group` is empty for the core group; `namespace` is `None` for
    /// cluster-scoped objects.
    fn get(&self, group: &str, resource: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Value>>;
}
