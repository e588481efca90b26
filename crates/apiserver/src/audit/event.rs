//! One line of the audit log: an `Event` of `audit.k8s.io/v1`, with Kubernetes' names and in its order of fields. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::HeaderMap;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::policy::{Level, Stage};

/// Longest user agent in bytes; longer ones are cut.
const USER_AGENT: usize = 1024;

/// An event of the audit log: the facts of a request that are known at a stage.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: Level,
    #[serde(rename = "auditID")]
    pub(super) audit_id: String,
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: String,
    pub(super) verb: String,
    pub(super) user: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authentication_metadata: Option<Value>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub(super) source_ips: Vec<IpAddr>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<Value>,
    #[serde(serialize_with = "micro_time")]
    pub(super) request_received_timestamp: Timestamp,
    #[serde(serialize_with = "micro_time")]
    pub(super) stage_timestamp: Timestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// The field `objectRef` of an event: the resource and the object of the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
}

fn micro_time<S: serde::Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}

impl ObjectReference {
    /// Fills in fields that the URL lacks from an object in the body.
    pub(super) fn fill_from_object(&mut self, object: &Value) {
        let text = |key: &str| object.pointer(key).and_then(Value::as_str).unwrap_or_default();
        for (field, pointer) in [
            (&mut self.namespace, "/metadata/namespace"),
            (&mut self.name, "/metadata/name"),
            (&mut self.uid, "/metadata/uid"),
            (&mut self.resource_version, "/metadata/resourceVersion"),
        ] {
            if field.is_empty() {
                text(pointer).clone_into(field);
            }
        }
    }
}

/// Returns an object, a list or a table without `managedFields`.
pub(super) fn without_managed_fields(mut value: Value) -> Value {
    fn strip_managed_fields(object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    strip_managed_fields(&mut value);
    for item in list(&mut value, "items") {
        strip_managed_fields(item);
    }
    for row in list(&mut value, "rows") {
        if let Some(object) = row.get_mut("object") {
            strip_managed_fields(object);
        }
    }
    value
}

fn list<'a>(value: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Returns the source addresses of a request, by its headers and its connection. The client can forge all but the
/// last.
pub(super) fn source_ips(headers: &HeaderMap, remote: Option<IpAddr>) -> Vec<IpAddr> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let mut found: Vec<IpAddr> = text("x-forwarded-for")
        .split(',')
        .filter_map(|part| part.trim().parse().ok())
        .collect();
    if let Ok(real) = text("x-real-ip").parse()
        && !found.contains(&real)
    {
        found.push(real);
    }
    if let Some(remote) = remote
        && found.last() != Some(&remote)
    {
        found.push(remote);
    }
    found
}

/// Returns the client's user agent, cut if it is too long.
pub(super) fn user_agent(headers: &HeaderMap) -> String {
    let sent = headers
        .get(http::header::USER_AGENT)
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    let mut sent = sent.unwrap_or_default().into_owned();
    if sent.len() > USER_AGENT {
        let end = (0..=USER_AGENT)
            .rev()
            .find(|end| sent.is_char_boundary(*end))
            .unwrap_or(0);
        sent.truncate(end);
        sent.push_str("...TRUNCATED");
    }
    sent
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn the_address_of_the_connection_comes_last() {
        let remote = Some("10.0.0.9".parse().unwrap());
        let ips = |pairs: &[(&'static str, &str)]| {
            let found = source_ips(&headers(pairs), remote);
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ips(&[]), "10.0.0.9");
        assert_eq!(
            ips(&[("x-forwarded-for", "1.1.1.1, nonsense, ::1"), ("x-real-ip", "1.1.1.1")]),
            "1.1.1.1 ::1 10.0.0.9"
        );
        assert_eq!(
            ips(&[("x-forwarded-for", "1.1.1.1,10.0.0.9"), ("x-real-ip", "2.2.2.2")]),
            "1.1.1.1 10.0.0.9 2.2.2.2 10.0.0.9"
        );
        assert_eq!(ips(&[("x-forwarded-for", "10.0.0.9")]), "10.0.0.9");
    }

    #[test]
    fn long_names_are_cut() {
        let long = "é".repeat(600);
        let cut = user_agent(&headers(&[("user-agent", "short")]));
        assert_eq!(cut, "short");
        let mut map = HeaderMap::new();
        map.insert("user-agent", http::HeaderValue::from_bytes(long.as_bytes()).unwrap());
        assert_eq!(user_agent(&map).len(), 1024 + "...TRUNCATED".len());
    }

    #[test]
    fn managed_fields_go_from_objects_lists_and_tables() {
        let object = json!({"metadata": {"name": "a", "managedFields": [1]}});
        let bare = json!({"metadata": {"name": "a"}});
        assert_eq!(without_managed_fields(object.clone()), bare);
        let list = json!({"metadata": {}, "items": [object], "rows": [{"object": object, "cells": []}]});
        let expected = json!({"metadata": {}, "items": [bare], "rows": [{"object": bare, "cells": []}]});
        assert_eq!(without_managed_fields(list), expected);
    }
}
