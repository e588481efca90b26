//! metadata.generation: which kinds count changes of the spec, and which changes count.

use serde_json::{Value, json};

use super::Resource;
use crate::object::ObjectExt;

/// How `metadata.generation` counts the changes of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Objects have no generation.
    Never,
    /// The generation stays 1, because no controller watches these kinds for changes.
    Fixed,
    /// The generation is missing until the first change.
    Late,
    /// The generation is counted from the creation on.
    Counted,
}

impl Resource {
    /// Returns whether new objects of this resource carry a generation.
    #[must_use]
    pub fn has_generation(&self) -> bool {
        matches!(self.behavior.generation, Generation::Fixed | Generation::Counted)
    }

    /// Counts a change of anything but metadata and status.
    pub fn bump_generation(&self, subresource: Option<&str>, live: &Value, new: &mut Value) {
        let counts = |name: &str| matches!(name, "scale" | "ephemeralcontainers" | "resize");
        if matches!(self.behavior.generation, Generation::Never | Generation::Fixed)
            || subresource.is_some_and(|name| !counts(name))
        {
            return;
        }
        let metadata = |object: &Value, field: &str| {
            let found = object.metadata().and_then(|metadata| metadata.get(field));
            found.cloned()
        };
        let counted = self.behavior.counted_metadata;
        let annotated = counted.is_some_and(|field| metadata(live, field) != metadata(new, field));
        let with_status = !self.has_status();
        if annotated || list_counted_fields(live, with_status) != list_counted_fields(new, with_status) {
            let generation = live
                .metadata()
                .and_then(|metadata| metadata.get("generation"))
                .and_then(Value::as_i64)
                .unwrap_or_default();
            new.set_meta("generation", json!(generation + 1));
        }
    }
}

/// Returns the fields that the user controls: everything except metadata, and except a status with its own endpoint.
fn list_counted_fields(object: &Value, with_status: bool) -> Vec<(&String, &Value)> {
    object
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| match key.as_str() {
            "metadata" | "apiVersion" | "kind" => false,
            "status" => with_status,
            _ => true,
        })
        .collect()
}
