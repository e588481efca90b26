//! A version of a custom kind: applies its schema to objects.

use serde_json::{Map, Value, json};

use super::rules::RuleTree;
use super::scaling::ScaleChecks;
use super::structural::{Additional, Node};
use super::value_path::ValuePath;
use super::{defaulting, find_version, get_text, lists, pruning, values};
use crate::schema::validation::names::NameRule;
use crate::schema::validation::{object_meta, object_meta_update, validate_labels};
use crate::schema::{BuiltinSchemas, DecodeError, Decoded, FieldError, FieldErrorKind, FieldPath, ObjectSchema};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The schema of one version of a definition.
#[derive(Debug)]
pub struct CustomSchema {
    kind: String,
    version: String,
    root: Node,
    rules: Option<RuleTree>,
    scale: Option<ScaleChecks>,
}

impl CustomSchema {
    /// Parses a version's schema; `None` if the definition has no such version.
    pub fn new(definition: &Value, version_name: &str) -> Option<Self> {
        let version = find_version(definition, version_name)?;
        let schema = version
            .pointer("/schema/openAPIV3Schema")
            .cloned()
            .unwrap_or_else(|| json!({}));
        let mut root = Node::parse(&schema);
        // A definition from v1beta1 may keep all unknown fields.
        root.preserve |= definition.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true));
        Some(Self {
            kind: definition
                .pointer("/spec/names/kind")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            version: version_name.to_owned(),
            root,
            rules: RuleTree::parse(&schema),
            scale: ScaleChecks::from_version(version),
        })
    }

    /// Returns the errors in an object. An object of another kind is not checked further.
    fn find_kind_error(&self, value: &Value) -> Vec<FieldError> {
        let found = get_text(value, "kind");
        let fault = || FieldError::invalid("kind", found, format!("must be {}", self.kind));
        (found != self.kind).then(fault).into_iter().collect()
    }

    fn validate_values(&self, value: &Value, old: Option<&Value>, only_status: bool, errors: &mut Vec<FieldError>) {
        // The whole object is checked, because a schema may require metadata, or restrict the name.
        if only_status {
            self.validate_status(value, old, errors);
        } else {
            values::check(&self.root, value, old, &ValuePath::ROOT, errors);
        }
        if let Some(scale) = &self.scale {
            if !only_status {
                scale.check_spec(value, errors);
            }
            scale.check_status(value, errors);
        }
        validate_embedded(&self.root, value, &ValuePath::ROOT, errors);
        let duplicates = self.find_duplicates(value);
        // Duplicates of the old object may stay.
        if !duplicates.is_empty() && old.is_none_or(|old| self.find_duplicates(old).is_empty()) {
            errors.extend(duplicates);
        }
        self.check_rules(value, old, errors);
    }

    /// Returns the duplicates in sets and maps.
    fn find_duplicates(&self, value: &Value) -> Vec<FieldError> {
        let mut found = Vec::new();
        lists::check(&self.root, value, &ValuePath::ROOT, &mut found);
        found
    }

    /// Checks the status alone. Errors name the whole field, and their text contains the path below it.
    fn validate_status(&self, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let (Some(node), Some(status)) = (self.root.properties.get("status"), value.get("status")) else {
            return;
        };
        let mut found = Vec::new();
        values::check(
            node,
            status,
            old.and_then(|old| old.get("status")),
            &ValuePath::ROOT,
            &mut found,
        );
        for error in &mut found {
            match error.field.as_str() {
                "<nil>" => error.field = "status".to_owned(),
                field if field.starts_with('[') => error.field = format!("status{field}"),
                "" => error.field = "status".to_owned(),
                field => error.field = ValuePath::ROOT.field("status").field(field).to_string(),
            }
        }
        errors.extend(found);
    }

    /// Evaluates the rules, unless the object has errors of a kind that rules can't handle, such as a wrong type.
    fn check_rules(&self, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let Some(rules) = &self.rules else { return };
        let blocking = |error: &FieldError| {
            use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(error.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
        };
        if errors.iter().any(blocking) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.push(FieldError::invalid("<nil>", Value::Null, detail));
            return;
        }
        rules.check(value, old, errors);
    }
}

/// Converts the metadata of an object of this kind and version into the form of its type. Returns the fields that the type lacks.
pub fn read_metadata(kind: &str, version: &str, object: &mut Map<String, Value>) -> Result<Vec<String>, DecodeError> {
    let Some(definition) = BuiltinSchemas::instance().definition(OBJECT_META) else {
        return Ok(Vec::new());
    };
    let metadata = object.remove("metadata").unwrap_or_else(|| Value::Object(Map::new()));
    let decoded = crate::schema::decode_struct(&definition, kind, version, metadata)?;
    object.insert("metadata".into(), decoded.value);
    let prefixed = |message: &String| message.replacen("unknown field \"", "unknown field \"metadata.", 1);
    Ok(decoded.unknown_fields.iter().map(prefixed).collect())
}

/// Checks that embedded objects have a type and valid metadata.
fn validate_embedded(node: &Node, value: &Value, path: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    if !node.has_embedded {
        return;
    }
    match value {
        Value::Object(object) => {
            if node.embedded {
                for field in ["apiVersion", "kind"] {
                    if get_text(value, field).is_empty() {
                        errors.push(FieldError::required(path.field(field), ""));
                    }
                }
                if let Some(Value::Object(map)) = value.pointer("/metadata/labels") {
                    validate_labels(
                        map,
                        &FieldPath::new(&path.to_string()).child("metadata").child("labels"),
                        errors,
                    );
                }
            }
            for (name, value) in object {
                let at = path.field(name);
                if let Some(property) = node.properties.get(name) {
                    validate_embedded(property, value, &at, errors);
                } else if let Some(Additional::Schema(inner)) = &node.additional {
                    validate_embedded(inner, value, &at, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    validate_embedded(inner, item, &path.item(index), errors);
                }
            }
        }
        _ => {}
    }
}

impl ObjectSchema for CustomSchema {
    fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    fn decode(&self, value: Value) -> Result<Decoded, DecodeError> {
        let refused = |problem: String| DecodeError {
            kind: self.kind.clone(),
            version: self.version.clone(),
            problem,
        };
        let Value::Object(mut object) = value else {
            return Err(refused("json: cannot unmarshal the body into an object".to_owned()));
        };
        let mut unknown_fields = read_metadata(&self.kind, &self.version, &mut object)?;
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
        let mut errors = self.find_kind_error(value);
        if !errors.is_empty() {
            return errors;
        }
        object_meta(value, NameRule::Subdomain, &FieldPath::new("metadata"), &mut errors);
        self.validate_values(value, None, false, &mut errors);
        errors
    }

    fn validate_update(&self, value: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.find_kind_error(value);
        if !errors.is_empty() {
            return errors;
        }
        object_meta_update(value, old, &FieldPath::new("metadata"), &mut errors);
        self.validate_values(value, Some(old), false, &mut errors);
        errors
    }

    fn validate_status_update(&self, value: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.find_kind_error(value);
        if !errors.is_empty() {
            return errors;
        }
        object_meta_update(value, old, &FieldPath::new("metadata"), &mut errors);
        self.validate_values(value, Some(old), true, &mut errors);
        errors
    }
}
