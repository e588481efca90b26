//! The amounts of a kind that quotas count beside the number of objects, and the quota scopes of its objects.

use serde_json::Value;

use crate::schema::resources::Resources;

/// Checks whether a quota's scope contains the name in an object.
pub type IsNamed<'a> = &'a dyn Fn(&str) -> bool;

/// The quota rules of a kind for which more than the number of objects counts.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Returns whether a change through an endpoint is charged. A creation is always charged.
    pub is_charged: fn(Option<&str>) -> bool,
    /// Checks whether a change through an endpoint, from the first object to the second, is charged. A change under the same quotas as
    /// before may be free.
    pub is_charged_anew: fn(Option<&str>, &Value, &Value) -> bool,
    /// Returns whether a quota's resource name counts these objects by usage.
    pub counts: fn(&str) -> bool,
    /// Adds the amounts of an object.
    pub add: fn(&Value, &mut Resources),
    /// Returns an error for counted resources that an object omits.
    pub check: fn(&Resources, &Value) -> Result<(), String>,
    /// Returns whether an object is in a quota's scope.
    pub is_in_scope: fn(&Value, &str, IsNamed<'_>) -> bool,
}
