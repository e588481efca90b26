//! One version of a custom kind: its schema put to work on objects.

use serde_json::{Map, Value, json};

use super::rules::Rules;
use super::structural::{Additional, Node};
use super::{defaulting, lists, pruning, text, values, version};
use crate::schema::validation::names::NameRule;
use crate::schema::validation::{labels, object_meta, object_meta_update};
use crate::schema::{BuiltinSchemas, DecodeError, Decoded, FieldError, FieldErrorKind, FieldPath, ObjectSchema};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The schema of one version of a definition.
#[derive(Debug)]
pub struct CustomSchema {
    kind: String,
    version: String,
    root: Node,
    rules: Option<Rules>,
    replicas_path: Option<String>,
}

impl CustomSchema {
    /// Parses a version's schema; `None` if the definition has no such version.
    pub fn new(definition: &Value, version_name: &str) -> Option<Self> {
        let version = version(definition, version_name)?;
        let schema = version
            .pointer("/schema/openAPIV3Schema")
            .cloned()
            .unwrap_or_else(|| json!({}));
        let mut root = Node::parse(&schema);
        // A definition of old that keeps everything.
        root.preserve |= definition.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true));
        let replicas = version
            .pointer("/subresources/scale/specReplicasPath")
            .and_then(Value::as_str);
        Some(Self {
            kind: definition
                .pointer("/spec/names/kind")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            version: version_name.to_owned(),
            root,
            rules: Rules::parse(&schema),
            replicas_path: replicas.map(str::to_owned),
        })
    }

    fn values(&self, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let strip = |object: &Value| {
            let mut object = object.clone();
            if let Some(map) = object.as_object_mut() {
                for field in ["apiVersion", "kind", "metadata"] {
                    map.remove(field);
                }
            }
            object
        };
        let (bare, old_bare) = (strip(value), old.map(strip));
        values::check(&self.root, &bare, old_bare.as_ref(), "", errors);
        embedded(&self.root, &bare, "", errors);
        let mut duplicates = Vec::new();
        lists::check(&self.root, &bare, "", &mut duplicates);
        // What was bad before may stay so.
        let was_bad = old_bare.is_some_and(|old| {
            let mut before = Vec::new();
            lists::check(&self.root, &old, "", &mut before);
            !before.is_empty()
        });
        if !was_bad {
            errors.extend(duplicates);
        }
        self.rules(value, old, errors);
        self.replicas(value, errors);
    }

    /// Rules are evaluated on objects that are of their types.
    fn rules(&self, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let Some(rules) = &self.rules else { return };
        let blocking = |error: &FieldError| {
            use FieldErrorKind::{Required, TooLong, TooMany, TypeInvalid};
            matches!(error.kind, Required | TooLong | TooMany | TypeInvalid)
        };
        if errors.iter().any(blocking) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.push(FieldError::invalid("<nil>", Value::Null, detail));
            return;
        }
        rules.check(value, old, errors);
    }

    /// The scale subresource must be able to read the number of replicas.
    fn replicas(&self, value: &Value, errors: &mut Vec<FieldError>) {
        let Some(path) = &self.replicas_path else { return };
        let mut found = value;
        for name in path.split('.').filter(|name| !name.is_empty()) {
            let Value::Object(map) = found else {
                let detail = format!(
                    "{path} accessor error: {} is of the type {}, expected map[string]interface{{}}",
                    go_text(found),
                    go_type(found)
                );
                errors.push(FieldError::invalid(path, 0, detail));
                return;
            };
            match map.get(name) {
                Some(inner) => found = inner,
                None => return,
            }
        }
        match found.as_i64() {
            Some(count) if count < 0 => {
                errors.push(FieldError::invalid(path, count, "should be a non-negative integer"))
            }
            Some(count) if count > i64::from(i32::MAX) => {
                errors.push(FieldError::invalid(
                    path,
                    count,
                    "should be less than or equal to 2147483647",
                ));
            }
            Some(_) => {}
            None => {
                let detail = format!(
                    "{path} accessor error: {} is of the type {}, expected int64",
                    go_text(found),
                    go_type(found)
                );
                errors.push(FieldError::invalid(path, 0, detail));
            }
        }
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string().trim_end_matches(".0").to_owned(),
        other => other.to_string(),
    }
}

/// Embedded objects say what they are, and have metadata that is metadata.
fn embedded(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(object) => {
            if node.embedded {
                for field in ["apiVersion", "kind"] {
                    if text(value, field).is_empty() {
                        errors.push(FieldError::required(values::child(path, field), ""));
                    }
                }
                if let Some(Value::Object(map)) = value.pointer("/metadata/labels") {
                    labels(map, &FieldPath::new(path).child("metadata").child("labels"), errors);
                }
            }
            for (name, value) in object {
                let at = values::child(path, name);
                if let Some(property) = node.properties.get(name) {
                    embedded(property, value, &at, errors);
                } else if let Some(Additional::Schema(inner)) = &node.additional {
                    embedded(inner, value, &at, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    embedded(inner, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

impl ObjectSchema for CustomSchema {
    fn decode(&self, value: Value) -> Result<Decoded, DecodeError> {
        let refused = |problem: String| DecodeError {
            kind: self.kind.clone(),
            version: self.version.clone(),
            problem,
        };
        let Value::Object(mut object) = value else {
            return Err(refused("json: cannot unmarshal the body into an object".to_owned()));
        };
        let mut unknown_fields = Vec::new();
        let metadata = object.remove("metadata").unwrap_or_else(|| Value::Object(Map::new()));
        if let Some(definition) = BuiltinSchemas::shared().definition(OBJECT_META) {
            let decoded = crate::schema::decode_struct(&definition, &self.kind, &self.version, metadata)?;
            let prefixed = |message: &String| message.replacen("unknown field \"", "unknown field \"metadata.", 1);
            unknown_fields.extend(decoded.unknown_fields.iter().map(prefixed));
            object.insert("metadata".into(), decoded.value);
        }
        pruning::prune_object(&self.root, &mut object, &mut unknown_fields);
        let metadata = object.remove("metadata");
        let mut value = Value::Object(object);
        defaulting::prune_nulls(&self.root, &mut value);
        if let (Some(map), Some(metadata)) = (value.as_object_mut(), metadata) {
            map.insert("metadata".into(), metadata);
        }
        Ok(Decoded { value, unknown_fields })
    }

    fn prune(&self, value: &mut Value) {
        if let Value::Object(object) = value {
            pruning::prune_object(&self.root, object, &mut Vec::new());
            let metadata = object.remove("metadata");
            defaulting::prune_nulls(&self.root, value);
            if let (Some(map), Some(metadata)) = (value.as_object_mut(), metadata) {
                map.insert("metadata".into(), metadata);
            }
        }
    }

    fn default(&self, value: &mut Value) {
        if let Value::Object(object) = value {
            defaulting::default_object(&self.root, object);
        }
    }

    fn validate(&self, value: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        object_meta(value, NameRule::Subdomain, &FieldPath::new("metadata"), &mut errors);
        self.values(value, None, &mut errors);
        errors
    }

    fn validate_update(&self, value: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        object_meta_update(value, old, &FieldPath::new("metadata"), &mut errors);
        self.values(value, Some(old), &mut errors);
        errors
    }

    fn validate_status_update(&self, value: &Value, old: &Value) -> Vec<FieldError> {
        self.validate_update(value, old)
    }
}
