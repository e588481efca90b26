//! A small valid object of each of Tenure's own kinds, for the page of the kind.

use serde_json::{Value, json};

/// An example, and the sentence above it.
pub(super) struct Example {
    pub(super) caption: &'static str,
    name: &'static str,
    namespace: Option<&'static str>,
    spec: Value,
}

impl Example {
    /// Returns the whole object.
    pub(super) fn object(&self, api_version: &str, kind: &str) -> Value {
        let mut metadata = json!({ "name": self.name });
        if let (Some(namespace), Some(metadata)) = (self.namespace, metadata.as_object_mut()) {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": self.spec })
    }
}

const PLATFORM: Option<&str> = Some("tenure-system");
const HASH: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const REQUEST: &str = "work-42-1f2e3d4c5b6a";

/// Returns the example of a kind.
pub(super) fn find_example(kind: &str) -> Option<Example> {
    let (caption, namespace, name, spec) = match kind {
        "AccessProvider" => (
            "A GitLab host. An account in the platform namespace makes the credentials:",
            PLATFORM,
            "work",
            json!({
                "kind": "gitlab", "address": "https://gitlab.example.org", "topLevelGroup": "group-1", "namespaces": ["team-a"],
                "authoriser": { "serviceAccountName": "gitlab-authoriser", "secretRef": { "name": "gitlab-authoriser" } },
            }),
        ),
        "Enforcement" => (
            "The controllers write the only Enforcement and its status. Read it with `kubectl get enforcement tenure -o yaml`:",
            None,
            "tenure",
            json!({}),
        ),
        "FluxAccess" => (
            "A tenant asks for read access to a project, for one of its namespaces:",
            Some("team-a"),
            "app",
            json!({
                "provider": "work", "role": "read_repository",
                "projects": [{ "id": "group-1/app", "namespaces": ["team-a"] }],
            }),
        ),
        "FluxAccessGrant" => (
            "`tenure access approve` writes such a grant. It repeats fields of the request:",
            PLATFORM,
            "work-42-1f2e3d4c5b6a-alice",
            json!({
                "requestRef": { "name": REQUEST, "uid": "0c2d9e6c-7d0f-4c8a-9f4e-2f6a3b1c5d7e" }, "target": "work-42", "specHash": HASH,
                "requestedBy": "bob", "decision": "Approved", "approvedBy": "alice",
            }),
        ),
        "FluxAccessRequest" => (
            "The controllers write this object for an entry of a FluxAccess:",
            PLATFORM,
            REQUEST,
            json!({
                "provider": "work", "target": { "id": 42, "path": "group-1/app", "scope": "project" }, "role": "read_repository", "rotate": "90d",
                "namespaces": ["team-a"], "secretName": "gitlab-flux-token", "requestedBy": "bob", "specHash": HASH,
                "askedIn": { "kind": "FluxAccess", "name": "app", "namespace": "team-a", "tenant": "team-a" },
                "clusterUid": "5b1f0c1e-3a52-4b3f-8a55-6a4f2f0d9c11",
            }),
        ),
        "FluxAccessStandingGrant" => (
            "All requests of one tenant for one project are approved, for namespaces that begin with `team-a-`:",
            PLATFORM,
            "team-a-app",
            json!({
                "tenant": "team-a", "targets": ["work-42"], "namespaces": ["team-a-*"], "roles": ["read_repository"], "maxRotate": "90d",
                "approvedBy": "alice",
            }),
        ),
        "FluxAccessTarget" => (
            "The controllers write this object for a requested project:",
            None,
            "work-42",
            json!({ "provider": "work", "id": 42, "scope": "project" }),
        ),
        "Surface" => (
            "The namespace `team-a` is a tenant's home namespace, so this Surface acts as the tenant:",
            Some("team-a"),
            "app",
            json!({ "sources": [{ "name": "app", "url": "https://git.example.org/team-a/app.git", "path": "deploy" }] }),
        ),
        _ => return None,
    };
    Some(Example {
        caption,
        name,
        namespace,
        spec,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    /// Lists differences between a value and its schema. Patterns and rules are not checked.
    fn compare(path: &str, value: &Value, schema: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        let number = |keyword: &str| schema[keyword].as_u64().unwrap_or(u64::MAX);
        match value {
            Value::Object(map) => {
                let properties = schema["properties"].as_object().cloned().unwrap_or_else(Map::new);
                let required = schema["required"].as_array().into_iter().flatten();
                let missing = required.filter(|name| !map.contains_key(name.as_str().unwrap()));
                wrong.extend(missing.map(|name| format!("{path} lacks {name}")));
                for (name, inner) in map {
                    match properties.get(name) {
                        Some(schema) => wrong.extend(compare(&format!("{path}.{name}"), inner, schema)),
                        None => wrong.push(format!("{path}.{name} is unknown")),
                    }
                }
            }
            Value::Array(items) => {
                if schema["type"] != "array" || items.len() as u64 > number("maxItems") {
                    wrong.push(path.to_owned());
                }
                wrong.extend(items.iter().flat_map(|item| compare(path, item, &schema["items"])));
            }
            Value::String(text) => {
                let values = schema["enum"].as_array();
                if schema["type"] != "string"
                    || text.len() as u64 > number("maxLength")
                    || values.is_some_and(|values| !values.contains(value))
                {
                    wrong.push(path.to_owned());
                }
            }
            _ if schema["type"] == "integer" && value.is_u64() => {}
            _ => wrong.push(path.to_owned()),
        }
        wrong
    }

    #[test]
    fn examples_fit_their_schemas() {
        let mut found = 0;
        for definition in tenure_api::crds::crds().unwrap() {
            let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
            let Some(example) = find_example(kind) else {
                continue;
            };
            found += 1;
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
            assert_eq!(compare(kind, &example.spec, schema), Vec::<String>::new());
            let is_namespaced = definition["spec"]["scope"] == "Namespaced";
            assert_eq!(example.namespace.is_some(), is_namespaced, "{kind}");
        }
        assert_eq!(found, 8);
    }
}
