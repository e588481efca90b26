//! The schema of a built-in kind in one version: its recorded type, and the defaults and checks of its kind value.

use std::sync::Arc;

use serde_json::Value;

use super::Kind;
use crate::schema::validation::metadata;
use crate::schema::{
    DecodeError, Decoded, Definition, FieldError, FieldPath, ObjectSchema, decode_struct, fill_declared,
};

/// The schema of one built-in kind.
#[derive(Clone, Debug)]
pub struct KindSchema {
    behavior: &'static Kind,
    group: Box<str>,
    version: Box<str>,
    kind: Box<str>,
    definition: Arc<Definition>,
}

impl KindSchema {
    /// Creates the schema of a kind in a group and version, `apps/v1`, with its type.
    #[must_use]
    pub fn new(behavior: &'static Kind, api_version: &str, kind: &str, definition: Arc<Definition>) -> Self {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        Self {
            behavior,
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            definition,
        }
    }

    /// Returns the API group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the kind's name.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the kind's type, which strategic merge patches follow.
    #[must_use]
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }
}

impl ObjectSchema for KindSchema {
    fn decode(&self, value: Value) -> Result<Decoded, DecodeError> {
        decode_struct(&self.definition, &self.kind, &self.version, value)
    }

    fn default(&self, value: &mut Value) {
        fill_declared(&self.definition, value);
        if let Value::Object(object) = value {
            (self.behavior.defaults)(&self.version, object);
        }
    }

    fn validate(&self, value: &Value) -> Vec<FieldError> {
        let of_metadata = |errors: &mut Vec<FieldError>| {
            metadata::object_meta(value, self.behavior.names, &FieldPath::new("metadata"), errors);
            metadata::standard_finalizers(value, errors);
        };
        let mut errors = Vec::new();
        if !self.behavior.metadata_comes_last {
            of_metadata(&mut errors);
        }
        (self.behavior.validate)(value, &mut errors);
        (self.behavior.validate_create)(value, &mut errors);
        if self.behavior.metadata_comes_last && errors.is_empty() {
            of_metadata(&mut errors);
        }
        errors
    }

    fn validate_update(&self, value: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        metadata::object_meta_update(value, old, &FieldPath::new("metadata"), &mut errors);
        metadata::standard_finalizers(value, &mut errors);
        (self.behavior.validate)(value, &mut errors);
        (self.behavior.validate_update)(value, old, &mut errors);
        errors
    }

    fn validate_status_update(&self, value: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        metadata::object_meta_update(value, old, &FieldPath::new("metadata"), &mut errors);
        (self.behavior.validate_status)(value, old, &mut errors);
        errors
    }
}
