//! Kubernetes objects as data: rendered from a file, desired, or live. Their printed and serialised forms leave out the values of Secrets.

use std::fmt;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_api::ObjectView;

/// A Kubernetes object. [`fmt::Debug`] and [`Serialize`] hide a Secret's values.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Object(pub Value);

impl Object {
    /// Returns a view of the object's fields.
    #[must_use]
    pub fn view(&self) -> ObjectView<'_> {
        ObjectView::new(&self.0)
    }

    /// Returns the revision of the object: revisions are numbers that grow (KEP-5504). A version that is not a number counts as the oldest.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.view().read_text("/metadata/resourceVersion").parse().unwrap_or(0)
    }

    /// Returns the object with a Secret's values replaced by their sizes.
    #[must_use]
    pub fn redact_values(&self) -> Value {
        let mut value = self.0.clone();
        let is_secret = self.view().read_text("/kind") == "Secret" && self.view().read_text("/apiVersion") == "v1";
        if is_secret {
            for field in ["data", "stringData"] {
                for value in value
                    .get_mut(field)
                    .and_then(Value::as_object_mut)
                    .into_iter()
                    .flat_map(|map| map.values_mut())
                {
                    *value = Value::String("(hidden)".to_owned());
                }
            }
            // kubectl keeps a copy of the whole object here.
            if let Some(annotations) = value
                .pointer_mut("/metadata/annotations")
                .and_then(Value::as_object_mut)
                && annotations.contains_key("kubectl.kubernetes.io/last-applied-configuration")
            {
                annotations.insert(
                    "kubectl.kubernetes.io/last-applied-configuration".to_owned(),
                    Value::String("(hidden)".to_owned()),
                );
            }
        }
        value
    }
}

/// Returns an object for a message; of a confidential object, only its identity.
pub(crate) fn describe_for_message(object: &Object, is_confidential: bool) -> Value {
    if !is_confidential {
        return object.redact_values();
    }
    let text = |path: &str| object.view().read_text(path);
    json!({
        "apiVersion": text("/apiVersion"),
        "kind": text("/kind"),
        "metadata": { "name": text("/metadata/name"), "namespace": text("/metadata/namespace") },
        "the rest": "(hidden)",
    })
}

impl fmt::Debug for Object {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.redact_values())
    }
}

impl Serialize for Object {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.redact_values().serialize(serializer)
    }
}

/// The place of a rendered object in its source: a file, and the line of the object's first field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// Path within the source.
    pub path: String,
    /// Line, from 1; 0 when not known (a generated object).
    pub line: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = tenure_api::text::visible_line(&self.path);
        if self.line == 0 {
            formatter.write_str(&path)
        } else {
            write!(formatter, "{path}:{}", self.line)
        }
    }
}

/// A rendered object, and its origin. Its printed and serialised forms leave out confidential content.
#[derive(Clone, PartialEq, Deserialize)]
pub struct RenderedObject {
    /// The object.
    pub object: Object,
    /// The origin.
    #[serde(default)]
    pub origin: Origin,
    /// Whether the object may contain a value of a Secret, whatever its kind.
    #[serde(default)]
    pub confidential: bool,
}

impl fmt::Debug for RenderedObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = describe_for_message(&self.object, self.confidential);
        write!(formatter, "RenderedObject({object}, {})", self.origin)
    }
}

impl Serialize for RenderedObject {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("RenderedObject", 3)?;
        fields.serialize_field("object", &describe_for_message(&self.object, self.confidential))?;
        fields.serialize_field("origin", &self.origin)?;
        fields.serialize_field("confidential", &self.confidential)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidential_values_appear_in_no_text() {
        let mut rendered = RenderedObject {
            object: Object(json!({ "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "a": "hunter2" } })),
            origin: Origin::default(),
            confidential: true,
        };
        let texts = |rendered: &RenderedObject| [format!("{rendered:?}"), serde_json::to_string(rendered).unwrap()];
        for text in texts(&rendered) {
            assert!(text.contains("ConfigMap") && !text.contains("hunter2"), "{text}");
        }
        rendered.confidential = false;
        for text in texts(&rendered) {
            assert!(text.contains("hunter2"), "{text}");
        }
    }
}
