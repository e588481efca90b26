//! What quotas count of a kind beside the number of its objects, and which scopes of quotas its objects are in.

use serde_json::Value;

use crate::schema::resources::Resources;

/// Whether a quota's scope names what an object names.
pub type IsNamed<'a> = &'a dyn Fn(&str) -> bool;

/// What quotas know of a kind of whose objects more than the number counts.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Whether a change through an endpoint is charged, as a creation always is.
    pub is_charged: fn(Option<&str>) -> bool,
    /// Whether a change through an endpoint of the first object to the second one is charged after all: what falls under the same
    /// quotas as before may not be.
    pub is_charged_anew: fn(Option<&str>, &Value, &Value) -> bool,
    /// Whether a quota's resource of this name is about these, beside their number.
    pub counts: fn(&str) -> bool,
    /// Adds up how much an object is.
    pub add: fn(&Value, &mut Resources),
    /// What an object does not say although a quota with these resources counts it.
    pub check: fn(&Resources, &Value) -> Result<(), String>,
    /// Whether an object is in a quota's scope.
    pub is_in_scope: fn(&Value, &str, IsNamed<'_>) -> bool,
}
