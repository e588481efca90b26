//! `/api` and `/apis`: the served resources, aggregated in one document or in one document per group and version.

use http::{HeaderMap, Response};
use serde_json::{Map, Value, json};

use crate::catalog::{Catalog, Resource};
use crate::http::negotiate::parse_accept;
use crate::http::{Body, etag, respond};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers a discovery path; `None` for an unknown name.
pub(crate) fn serve(path: &str, headers: &HeaderMap, catalog: &Catalog, address: &str) -> Option<Response<Body>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let answer = |value: Value| Some(etag::respond_with_etag(headers, respond::JSON, to_line(&value)));
    match parts.as_slice() {
        ["api"] | ["apis"] => {
            let core = parts == ["api"];
            if wants_aggregated(headers) {
                return Some(etag::respond_with_etag(
                    headers,
                    AGGREGATED,
                    to_line(&write_aggregated_discovery(catalog, core)),
                ));
            }
            if core {
                return answer(json!({
                    "kind": "APIVersions", "versions": ["v1"],
                    "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
                }));
            }
            let groups: Vec<Value> = catalog
                .groups()
                .iter()
                .filter(|(group, _)| !group.is_empty())
                .map(|(group, versions)| api_group(group, versions))
                .collect();
            answer(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["api", version] => resource_list(catalog, "", version).and_then(answer),
        ["apis", group] => {
            let groups = catalog.groups();
            let (group, versions) = groups.iter().find(|(name, _)| name == group && !name.is_empty())?;
            let mut value = api_group(group, versions);
            if let Some(map) = value.as_object_mut() {
                map.insert("kind".to_owned(), json!("APIGroup"));
                map.insert("apiVersion".to_owned(), json!("v1"));
            }
            answer(value)
        }
        ["apis", group, version] if !group.is_empty() => resource_list(catalog, group, version).and_then(answer),
        _ => None,
    }
}

fn to_line(value: &Value) -> Vec<u8> {
    let mut out = serde_json::to_vec(value).unwrap_or_default();
    out.push(b'\n');
    out
}

/// Checks whether the client prefers the aggregated format to plain JSON.
fn wants_aggregated(headers: &HeaderMap) -> bool {
    for range in parse_accept(headers) {
        if !matches!(range.media_type.as_str(), "application/json" | "*/*" | "application/*") {
            continue;
        }
        match (range.parameter("g"), range.parameter("v"), range.parameter("as")) {
            ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => return true,
            ("", "", "") => return false,
            _ => {}
        }
    }
    false
}

fn api_group(group: &str, versions: &[String]) -> Value {
    let entry = |version: &String| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let mut value = json!({"name": group, "versions": versions.iter().map(entry).collect::<Vec<_>>()});
    if let (Some(preferred), Some(map)) = (versions.first(), value.as_object_mut()) {
        map.insert("preferredVersion".to_owned(), entry(preferred));
    }
    value
}

fn resource_list(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in catalog.in_version(group, version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs,
        });
        if let Some(map) = entry.as_object_mut() {
            insert_list(map, "shortNames", &resource.short_names);
            insert_list(map, "categories", &resource.categories);
            if resource.allows("list", None) {
                map.insert("storageVersionHash".to_owned(), json!(storage_hash(resource)));
            }
        }
        resources.push(entry);
        for subresource in &resource.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, subresource.name), "singularName": "",
                "namespaced": resource.namespaced, "kind": subresource.kind, "verbs": subresource.verbs,
            });
            if let Some(map) = entry.as_object_mut()
                && !subresource.version.is_empty()
            {
                map.insert("group".to_owned(), json!(subresource.group));
                map.insert("version".to_owned(), json!(subresource.version));
            }
            resources.push(entry);
        }
    }
    if resources.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    }))
}

fn insert_list(map: &mut Map<String, Value>, key: &str, list: &[String]) {
    if !list.is_empty() {
        map.insert(key.to_owned(), json!(list));
    }
}

/// Returns a hash that changes with the stored version of a resource; opaque to clients.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    // The text for the core group begins with a slash, although the group's name is empty.
    let core = if resource.stored_as.0.is_empty() { "/" } else { "" };
    // kube-apiserver stores CustomResourceDefinitions as v1beta1. Clients can see that only by this hash.
    let version = match resource.qualified_name().as_str() {
        "customresourcedefinitions.apiextensions.k8s.io" => "apiextensions.k8s.io/v1beta1",
        _ => resource.storage_api_version.as_str(),
    };
    let text = format!("{core}{version}/{}", resource.kind);
    let digest = <sha2::Sha256 as sha2::Digest>::digest(text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(digest.get(..8).unwrap_or_default())
}

fn write_aggregated_discovery(catalog: &Catalog, core: bool) -> Value {
    let mut items = Vec::new();
    for (group, versions) in catalog.groups() {
        if group.is_empty() != core {
            continue;
        }
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| {
                let resources: Vec<Value> = catalog
                    .in_version(&group, version)
                    .map(|r| aggregated_resource(r))
                    .collect();
                json!({"version": version, "resources": resources, "freshness": "Current"})
            })
            .collect();
        let metadata = if core { json!({}) } else { json!({"name": group}) };
        items.push(json!({"metadata": metadata, "versions": versions}));
    }
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let (group, version) = if resource.is_custom() {
        (resource.group.as_str(), resource.version.as_str())
    } else {
        ("", "")
    };
    let mut entry = json!({
        "resource": resource.plural, "responseKind": kind(group, version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs,
    });
    if let Some(map) = entry.as_object_mut() {
        insert_list(map, "shortNames", &resource.short_names);
        insert_list(map, "categories", &resource.categories);
        let subresources: Vec<Value> = resource
            .subresources
            .iter()
            .map(|sub| {
                let (group, version) = if sub.version.is_empty() {
                    (group, version)
                } else {
                    (sub.group.as_str(), sub.version.as_str())
                };
                json!({"subresource": sub.name, "responseKind": kind(group, version, &sub.kind), "verbs": sub.verbs})
            })
            .collect();
        if !subresources.is_empty() {
            map.insert("subresources".to_owned(), Value::from(subresources));
        }
    }
    entry
}
