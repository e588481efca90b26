//! Objects from the API server as JSON text, with the metadata that is needed before the text is parsed.
//!
//! The module splits lists and events. Objects stay unparsed, because a parsed object takes many times the memory of its text.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::discovery::Resource;

/// An object from a list or a watch. The `Debug` output shows no content, because the object may be a Secret.
#[derive(Clone)]
pub struct RawObject {
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The resourceVersion.
    pub revision: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The whole object, as JSON with `apiVersion` and `kind`.
    pub text: Arc<[u8]>,
}

impl fmt::Debug for RawObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RawObject")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

/// The fields that [`RawObject`] needs, which are read without parsing the rest of the object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    #[serde(borrow)]
    api_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    metadata: Option<HeadMetadata>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMetadata {
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

impl RawObject {
    /// Reads the head of an object whose text already has `apiVersion` and `kind`, and keeps the text. Other texts are
    /// completed.
    pub(crate) fn from_text(text: &[u8], resource: &Resource) -> Result<Self, serde_json::Error> {
        let head: Head<'_> = serde_json::from_slice(text)?;
        if head.api_version.is_none() || head.kind.is_none() {
            return Self::from_value(serde_json::from_slice(text)?, resource);
        }
        Ok(Self::new(head.metadata.unwrap_or_default(), text.into()))
    }

    /// Takes an object of a list, where objects of built-in kinds lack `apiVersion` and `kind`.
    fn from_value(mut object: Value, resource: &Resource) -> Result<Self, serde_json::Error> {
        if let Some(fields) = object.as_object_mut() {
            fields
                .entry("apiVersion")
                .or_insert_with(|| json!(resource.api_version()));
            fields.entry("kind").or_insert_with(|| json!(resource.kind));
        }
        let metadata = object.get("metadata").map(HeadMetadata::deserialize).transpose()?;
        Ok(Self::new(
            metadata.unwrap_or_default(),
            object.to_string().into_bytes().into(),
        ))
    }

    fn new(metadata: HeadMetadata, text: Arc<[u8]>) -> Self {
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            revision: metadata.resource_version.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            text,
        }
    }

    /// Parses the object.
    ///
    /// # Errors
    /// The text does not fit the type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.text)
    }
}

/// A page of a list.
#[derive(Debug, Default)]
pub(crate) struct RawPage {
    pub(crate) items: Vec<RawObject>,
    pub(crate) resource_version: String,
    /// The token for the next page; empty after the last page.
    pub(crate) next: String,
}

impl RawPage {
    /// Splits a page, one object at a time.
    pub(crate) fn from_text(text: &[u8], resource: &Resource) -> Result<Self, serde_json::Error> {
        let mut reading = serde_json::Deserializer::from_slice(text);
        let page = reading.deserialize_map(PageVisitor(resource))?;
        reading.end()?;
        Ok(page)
    }
}

struct PageVisitor<'r>(&'r Resource);

impl<'de> Visitor<'de> for PageVisitor<'_> {
    type Value = RawPage;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawPage, A::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ListMetadata {
            resource_version: Option<String>,
            r#continue: Option<String>,
        }
        let mut page = RawPage::default();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match key.as_ref() {
                "metadata" => {
                    let metadata: ListMetadata = map.next_value()?;
                    page.resource_version = metadata.resource_version.unwrap_or_default();
                    page.next = metadata.r#continue.unwrap_or_default();
                }
                "items" => page.items = map.next_value_seed(Items(self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(page)
    }
}

/// The objects of a page; an empty list may be written as null.
struct Items<'r>(&'r Resource);

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = Vec<RawObject>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = Vec<RawObject>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of objects")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut seen = Vec::new();
        while let Some(object) = items.next_element::<Value>()? {
            seen.push(RawObject::from_value(object, self.0).map_err(serde::de::Error::custom)?);
        }
        Ok(seen)
    }
}

/// An event of a watch.
#[derive(Debug)]
pub(crate) struct RawEvent {
    pub(crate) kind: String,
    pub(crate) object: RawObject,
}

impl RawEvent {
    /// Reads a line of a watch. A line in the usual form is parsed only as far as needed, any other line completely.
    pub(crate) fn from_line(line: &[u8], resource: &Resource) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Parts {
            r#type: String,
            object: Value,
        }
        if let Some((kind, object)) = split_usual_line(line)
            && let Ok(object) = RawObject::from_text(object, resource)
        {
            let kind = kind.to_owned();
            return Ok(Self { kind, object });
        }
        let parts: Parts = serde_json::from_slice(line)?;
        Ok(Self {
            kind: parts.r#type,
            object: RawObject::from_value(parts.object, resource)?,
        })
    }
}

/// Splits `{"type":"ADDED","object":{…}}`, the form that API servers write, into the type and the text at the object's place.
fn split_usual_line(line: &[u8]) -> Option<(&str, &[u8])> {
    let rest = line.trim_ascii().strip_prefix(br#"{"type":""#)?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let (kind, rest) = rest.split_at_checked(end)?;
    if !kind.iter().all(u8::is_ascii_uppercase) {
        return None;
    }
    let object = rest.strip_prefix(br#"","object":"#)?.strip_suffix(b"}")?;
    Some((str::from_utf8(kind).ok()?, object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_maps() -> Resource {
        Resource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            plural: "configmaps".to_owned(),
            namespaced: true,
            watchable: true,
        }
    }

    #[test]
    fn a_page_is_taken_apart() {
        let text = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":1},
            "items":[{"metadata":{"namespace":"team","name":"a","resourceVersion":"3","labels":{"app":"web"}},"data":{"k":"v"}},{}]}"#;
        let page = RawPage::from_text(text.as_bytes(), &config_maps()).unwrap();
        assert_eq!((page.resource_version.as_str(), page.next.as_str()), ("7", "c"));
        let [object, empty] = page.items.as_slice() else {
            panic!("{:?}", page.items);
        };
        assert_eq!((object.namespace.as_str(), object.name.as_str()), ("team", "a"));
        assert_eq!((object.revision.as_str(), object.labels["app"].as_str()), ("3", "web"));
        let value: Value = object.read().unwrap();
        assert_eq!(value["kind"], "ConfigMap");
        assert_eq!(value["data"]["k"], "v");
        assert_eq!(empty.name, "");
    }

    #[test]
    fn empty_page_is_read_and_incomplete_page_is_refused() {
        for text in [r#"{"items":null}"#, r#"{"items":[]}"#, "{}"] {
            assert!(
                RawPage::from_text(text.as_bytes(), &config_maps())
                    .unwrap()
                    .items
                    .is_empty()
            );
        }
        for text in [
            r#"{"items":[{}"#,
            r#"{"items":{}}"#,
            "{} {}",
            "[]",
            r#"{"items":[{"metadata":1}]}"#,
        ] {
            assert!(RawPage::from_text(text.as_bytes(), &config_maps()).is_err(), "{text}");
        }
    }

    /// The object is the same for every spelling of an event.
    #[test]
    fn an_event_is_taken_apart_in_every_form() {
        let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"3"},"data":{"k":"}\u007d"}}"#;
        let lines = [
            format!(r#"{{"type":"ADDED","object":{object}}}"#),
            format!(r#" {{"type":"ADDED","object":{object}}} "#),
            format!(r#"{{ "type": "ADDED", "object": {object} }}"#),
            format!(r#"{{"object":{object},"type":"ADDED"}}"#),
            format!(r#"{{"type":"ADDED","object":{object},"more":{{}}}}"#),
            format!(r#"{{"type":"\u0041DDED","object":{object}}}"#),
        ];
        for line in lines {
            let event = RawEvent::from_line(line.as_bytes(), &config_maps()).unwrap();
            assert_eq!(event.kind, "ADDED", "{line}");
            assert_eq!((event.object.name.as_str(), event.object.revision.as_str()), ("a", "3"));
            let value: Value = event.object.read().unwrap();
            assert_eq!(value["data"]["k"], "}}");
        }
    }

    #[test]
    fn malformed_event_is_refused() {
        for line in [
            r#"{"type":"ADDED","object":{}"#,
            r#"{"type":"ADDED","object":}"#,
            r#"{"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":{"a":}}"#,
            r#"{"type":"ADDED","object":{}},{}}"#,
        ] {
            assert!(RawEvent::from_line(line.as_bytes(), &config_maps()).is_err(), "{line}");
        }
    }
}
