//! Short ways to an object's metadata, and how its times are written. Refuses to judge what it finds.

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
    /// The metadata, if there is any.
    fn metadata(&self) -> Option<&Map<String, Value>>;
    /// The metadata, made if there is none.
    fn metadata_mut(&mut self) -> Option<&mut Map<String, Value>>;
    /// A text in metadata; empty if it is not there.
    fn meta_str(&self, key: &str) -> &str;
    /// Its name; empty as long as there is none.
    fn name(&self) -> &str {
        self.meta_str("name")
    }
    /// Its namespace; empty for everything without one.
    fn namespace(&self) -> &str {
        self.meta_str("namespace")
    }
    /// Its UID.
    fn uid(&self) -> &str {
        self.meta_str("uid")
    }
    /// The version that it is in the store, or says to be.
    fn resource_version(&self) -> &str {
        self.meta_str("resourceVersion")
    }
    /// The version that a writer expects to replace; empty if any will do.
    fn wanted_version(&self) -> &str {
        match self.resource_version() {
            "0" => "",
            other => other,
        }
    }
    /// What has to happen before it may go.
    fn finalizers(&self) -> Vec<&str>;
    /// Whether it is on its way out.
    fn is_deleting(&self) -> bool {
        !self.meta_str("deletionTimestamp").is_empty()
    }
    /// Writes a field of metadata.
    fn set_meta(&mut self, key: &str, value: Value);
    /// A null or an empty map says the same as nothing: it is not stored.
    fn drop_empty_metadata(&mut self) {
        for key in MAY_BE_EMPTY {
            if self.is_empty_metadata(key) {
                self.remove_meta(key);
            }
        }
    }
    /// Whether there is something for [`ObjectExt::drop_empty_metadata`].
    fn has_empty_metadata(&self) -> bool {
        MAY_BE_EMPTY.iter().any(|key| self.is_empty_metadata(key))
    }
    /// Whether a field of metadata is there and says nothing.
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

/// RFC 3339 in whole seconds: the form of every time in metadata.
pub fn timestamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Puts a status in the place of whatever was there.
pub fn set_status(object: &mut Value, status: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
}

/// The characters of generated suffixes: no vowels, so no words.
const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A name that begins like this and goes on at random.
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
