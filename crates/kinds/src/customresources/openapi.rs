//! The OpenAPI v3 document of a group-version of custom resources, which kubectl needs to validate and explain.

use serde_json::{Map, Value, json};

use super::{find_version, get_text};
use crate::schema::BuiltinSchemas;

/// Makes the document for `group/version_name` out of the established definitions that serve it.
pub fn openapi_document<'a>(
    group: &str,
    version_name: &str,
    definitions: impl IntoIterator<Item = &'a Value>,
) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for definition in definitions {
        if definition.pointer("/spec/group").and_then(Value::as_str) != Some(group) {
            continue;
        }
        if let Some(version) =
            find_version(definition, version_name).filter(|version| version.get("served") == Some(&Value::Bool(true)))
        {
            add_version(group, version_name, definition, version, &mut paths, &mut schemas);
        }
    }
    for name in ["DeleteOptions", "ListMeta", "ObjectMeta", "Patch", "Status"] {
        add_builtin(&format!("{META}.{name}"), &mut schemas);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Adds a built-in definition and all definitions that it refers to.
fn add_builtin(name: &str, schemas: &mut Map<String, Value>) {
    let wanted = BuiltinSchemas::instance().openapi_definition(name);
    for (name, mut schema) in wanted {
        strip_facts(&mut schema);
        schemas.entry(name).or_insert(schema);
    }
}

/// Removes the notes about Go types, which are internal.
fn strip_facts(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.remove("x-go");
            map.values_mut().for_each(strip_facts);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_facts),
        _ => {}
    }
}

fn add_version(
    group: &str,
    version_name: &str,
    definition: &Value,
    version: &Value,
    paths: &mut Map<String, Value>,
    schemas: &mut Map<String, Value>,
) {
    let names = definition.pointer("/spec/names").unwrap_or(&Value::Null);
    let (kind, list_kind, plural) = (
        get_text(names, "kind"),
        get_text(names, "listKind"),
        get_text(names, "plural"),
    );
    let namespaced = definition.pointer("/spec/scope").and_then(Value::as_str) == Some("Namespaced");
    let gvk = |kind: &str| json!({"group": group, "version": version_name, "kind": kind});
    let reversed: Vec<&str> = group.split('.').rev().collect();
    let schema_name = |kind: &str| format!("{}.{version_name}.{kind}", reversed.join("."));
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});

    let mut schema = version
        .pointer("/schema/openAPIV3Schema")
        .cloned()
        .unwrap_or_else(|| json!({"type": "object"}));
    if let Some(map) = schema.as_object_mut() {
        let string = |description: &str| json!({"type": "string", "description": description});
        let mut metadata = json!({"description": "Standard object's metadata."});
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("allOf".into(), json!([reference(&format!("{META}.ObjectMeta"))]));
        }
        if let Value::Object(properties) = map.entry("properties").or_insert_with(|| json!({})) {
            properties.insert(
                "apiVersion".into(),
                string("The versioned schema of this representation of an object."),
            );
            properties.insert("kind".into(), string("The REST resource that this object represents."));
            properties.insert("metadata".into(), metadata);
        }
        map.insert("x-kubernetes-group-version-kind".into(), json!([gvk(kind)]));
    }
    schemas.insert(schema_name(kind), schema);
    let list = json!({
        "description": format!("{list_kind} is a list of {kind}"),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [reference(&format!("{META}.ListMeta"))]},
            "items": {"type": "array", "items": reference(&schema_name(kind))},
        },
        "x-kubernetes-group-version-kind": [gvk(list_kind)],
    });
    schemas.insert(schema_name(list_kind), list);

    let base = format!("/apis/{group}/{version_name}");
    let collection = if namespaced {
        format!("{base}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{base}/{plural}")
    };
    let route = Route {
        gvk: gvk(kind),
        schema: reference(&schema_name(kind)),
        list: reference(&schema_name(list_kind)),
        namespaced,
    };
    if namespaced {
        let mut everywhere = json!({"get": route.make_operation("list", &route.list, &[])});
        set_parameters(&mut everywhere, &[]);
        paths.insert(format!("{base}/{plural}"), everywhere);
    }
    paths.insert(collection.clone(), route.make_collection_path());
    paths.insert(format!("{collection}/{{name}}"), route.make_item_path(true));
    for subresource in ["status", "scale"] {
        if version.pointer(&format!("/subresources/{subresource}")).is_some() {
            paths.insert(
                format!("{collection}/{{name}}/{subresource}"),
                route.make_item_path(false),
            );
        }
    }
}

/// The kind of one custom resource, its schemas and its scope, from which its paths are made.
struct Route {
    gvk: Value,
    schema: Value,
    list: Value,
    namespaced: bool,
}

/// Query parameters of writes; kubectl looks for `fieldValidation` to know that the server validates.
const WRITE: [(&str, &str); 3] = [
    (
        "dryRun",
        "When present, indicates that modifications should not be persisted.",
    ),
    (
        "fieldManager",
        "The name of the actor or entity that is making these changes.",
    ),
    (
        "fieldValidation",
        "How to handle unknown or duplicate fields: Ignore, Warn or Strict.",
    ),
];

impl Route {
    fn make_operation(&self, action: &str, answer: &Value, query: &[(&str, &str)]) -> Value {
        let mut operation = json!({
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": answer}}}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self.gvk,
        });
        set_parameters(&mut operation, query);
        operation
    }

    fn make_write_operation(&self, action: &str, content_types: &[&str], query: &[(&str, &str)]) -> Value {
        let mut operation = self.make_operation(action, &self.schema, query);
        let body = if content_types == ["*/*"] {
            self.schema.clone()
        } else {
            json!({"$ref": format!("#/components/schemas/{META}.Patch")})
        };
        let content: Map<String, Value> = content_types
            .iter()
            .map(|content_type| ((*content_type).to_owned(), json!({"schema": body})))
            .collect();
        if let Some(map) = operation.as_object_mut() {
            map.insert("requestBody".into(), json!({"required": true, "content": content}));
        }
        operation
    }

    fn make_collection_path(&self) -> Value {
        let mut path = json!({
            "get": self.make_operation("list", &self.list, &[]),
            "post": self.make_write_operation("post", &["*/*"], &WRITE),
            "delete": self.make_operation("deletecollection", &status_reference(), &[]),
        });
        self.path_parameters(&mut path, false);
        path
    }

    fn make_item_path(&self, whole: bool) -> Value {
        let force = ("force", "Force is going to \"force\" Apply requests.");
        let patch: Vec<(&str, &str)> = WRITE.iter().copied().chain([force]).collect();
        let mut path = json!({
            "get": self.make_operation("get", &self.schema, &[]),
            "put": self.make_write_operation("put", &["*/*"], &WRITE),
            "patch": self.make_write_operation("patch", &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"], &patch),
        });
        if whole && let Some(map) = path.as_object_mut() {
            map.insert("delete".into(), self.make_operation("delete", &status_reference(), &[]));
        }
        self.path_parameters(&mut path, true);
        path
    }

    fn path_parameters(&self, path: &mut Value, named: bool) {
        let mut list = Vec::new();
        if named {
            list.push(json!({"name": "name", "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}}));
        }
        if self.namespaced {
            list.push(json!({"name": "namespace", "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}}));
        }
        if let Some(map) = path.as_object_mut() {
            map.insert("parameters".into(), Value::Array(list));
        }
    }
}

fn status_reference() -> Value {
    json!({"$ref": format!("#/components/schemas/{META}.Status")})
}

fn set_parameters(operation: &mut Value, query: &[(&str, &str)]) {
    let list: Vec<Value> = query
        .iter()
        .map(|(name, description)| {
            let kind = if *name == "force" { "boolean" } else { "string" };
            json!({"name": name, "in": "query", "description": description, "schema": {"type": kind, "uniqueItems": true}})
        })
        .collect();
    if let Some(map) = operation.as_object_mut()
        && !list.is_empty()
    {
        map.insert("parameters".into(), Value::Array(list));
    }
}
