//! Access to an object's metadata, and the text form of its times. These functions do not validate values.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

const MAY_BE_EMPTY: [&str; 5] = [
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
];

/// Short ways to an object's metadata.
pub trait ObjectExt {
    /// Returns the metadata, if it exists.
    fn metadata(&self) -> Option<&Map<String, Value>>;
    /// Returns the metadata; creates an empty map if it is missing.
    fn metadata_mut(&mut self) -> Option<&mut Map<String, Value>>;
    /// Returns a text in metadata; empty if it is missing.
    fn meta_str(&self, key: &str) -> &str;
    /// Returns the name; empty if it is missing.
    fn name(&self) -> &str {
        self.meta_str("name")
    }
    /// Returns the namespace; empty for a cluster-scoped object.
    fn namespace(&self) -> &str {
        self.meta_str("namespace")
    }
    /// Returns the UID.
    fn uid(&self) -> &str {
        self.meta_str("uid")
    }
    /// Returns the `resourceVersion` of the object.
    fn resource_version(&self) -> &str {
        self.meta_str("resourceVersion")
    }
    /// Returns the `resourceVersion` that a writer expects to replace; empty for any version.
    fn wanted_version(&self) -> &str {
        match self.resource_version() {
            "0" => "",
            other => other,
        }
    }
    /// Returns the finalizers, which delay the deletion.
    fn finalizers(&self) -> Vec<&str>;
    /// Returns whether the object is being deleted.
    fn is_deleting(&self) -> bool {
        !self.meta_str("deletionTimestamp").is_empty()
    }
    /// Writes a field of metadata.
    fn set_meta(&mut self, key: &str, value: Value);
    /// Removes a null or an empty map, which is equal to a missing field and is not stored.
    fn drop_empty_metadata(&mut self) {
        for key in MAY_BE_EMPTY {
            if self.is_empty_metadata(key) {
                self.remove_meta(key);
            }
        }
    }
    /// Returns whether [`ObjectExt::drop_empty_metadata`] would change the object.
    fn has_empty_metadata(&self) -> bool {
        MAY_BE_EMPTY.iter().any(|key| self.is_empty_metadata(key))
    }
    /// Returns whether a metadata field exists and is empty.
    fn is_empty_metadata(&self, key: &str) -> bool {
        match self.metadata().and_then(|metadata| metadata.get(key)) {
            Some(Value::Null) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            _ => false,
        }
    }
    /// Takes a field out of metadata.
    fn remove_meta(&mut self, key: &str) -> Option<Value>;
}

/// Returns a time in RFC 3339 with whole seconds, the form of every time in metadata.
pub fn format_timestamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Replaces the status.
pub fn set_status(object: &mut Value, status: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
}

/// The characters of generated suffixes: no vowels, so no words.
const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns a name with this prefix and a random rest.
#[must_use]
pub fn generate_name(base: &str, random: fn(&mut [u8])) -> String {
    let mut bytes = [0_u8; 5];
    random(&mut bytes);
    let mut name: String = base.chars().take(58).collect();
    for byte in bytes {
        let index = usize::from(byte) % SUFFIX.len();
        name.push(SUFFIX.get(index).copied().map_or('b', char::from));
    }
    name
}

impl ObjectExt for Value {
    fn metadata(&self) -> Option<&Map<String, Value>> {
        self.get("metadata").and_then(Value::as_object)
    }

    fn metadata_mut(&mut self) -> Option<&mut Map<String, Value>> {
        let map = self.as_object_mut()?;
        let metadata = map.entry("metadata").or_insert_with(|| json!({}));
        if !metadata.is_object() {
            *metadata = json!({});
        }
        metadata.as_object_mut()
    }

    fn meta_str(&self, key: &str) -> &str {
        self.metadata()
            .and_then(|metadata| metadata.get(key))
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn finalizers(&self) -> Vec<&str> {
        let list = self
            .metadata()
            .and_then(|metadata| metadata.get("finalizers"))
            .and_then(Value::as_array);
        list.map(|list| list.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default()
    }

    fn set_meta(&mut self, key: &str, value: Value) {
        if let Some(metadata) = self.metadata_mut() {
            metadata.insert(key.to_owned(), value);
        }
    }

    fn remove_meta(&mut self, key: &str) -> Option<Value> {
        self.metadata_mut()?.remove(key)
    }
}
