//! The form of the served kinds: types, decoding as in Kubernetes' Go types, defaults, validation, OpenAPI.
//!
//! The *shape* of built-in kinds comes from data recorded from a real kube-apiserver (see `crates/kinds/data`). The shape of custom kinds
//! comes from a CustomResourceDefinition's schema (see [`crate::customresources`]). All functions are pure: values in, values out. They
//! store and fetch nothing, and do not decide about rights.
//!
//! A write uses these functions in the order of the real server:
//! [`strict::read_json`] → [`ObjectSchema::decode`] (400 on a wrong type; collects unknown fields) →
//! [`ObjectSchema::default`] → the resource's own preparation → [`ObjectSchema::validate`] (422).

mod archive;
pub use archive::inflate;
mod builtin;
mod decode;
pub(crate) mod defaults;
mod definition;
mod field_error;
pub mod json_syntax;
pub mod openapi;
pub mod resources;
pub mod strict;
mod time;
pub mod validation;

use serde_json::Value;

pub use builtin::BuiltinSchemas;
pub use decode::{DecodeError, Decoded};
pub use decode::{base64_fault, decode as decode_struct, json_type_name, plain_number};
pub(crate) use defaults::fill_declared_defaults as fill_declared;
pub use definition::{Definition, Field, ListKind, PatchStrategy, Shape};
pub use field_error::LONGEST_PATH;
pub use field_error::{FieldError, FieldErrorKind, FieldPath, invalid_status};
pub use field_error::{Shown, aggregate_errors, fit_for_html, go_quoted, remove_duplicates, shorten_key};
pub use go_words::quantity;

/// The schema of one kind in one version, whether built in or defined by a CustomResourceDefinition.
pub trait ObjectSchema: Send + Sync {
    /// Converts a parsed body into the form that the kind's own types print. Unknown fields are dropped and reported, nulls and empty
    /// optional fields dropped, and quantities made canonical.
    ///
    /// # Errors
    /// For a value of the wrong type. The real server answers 400 with this text.
    fn decode(&self, value: Value) -> Result<Decoded, DecodeError>;

    /// Returns the messages of strict decoding, `unknown field "spec.zz"`, in the order of the fields.
    fn unknown_fields(&self, value: &Value) -> Vec<String> {
        self.decode(value.clone())
            .map(|decoded| decoded.unknown_fields)
            .unwrap_or_default()
    }

    /// Drops the fields that the schema does not know.
    fn prune(&self, value: &mut Value) {
        if let Ok(decoded) = self.decode(value.clone()) {
            *value = decoded.value;
        }
    }

    /// Returns whether the schema has rules whose cost is not proportional to the size of the checked values.
    fn has_rules(&self) -> bool {
        false
    }

    /// Fills in the defaults, as the real server does on every read and write. Doing it twice changes nothing.
    fn default(&self, value: &mut Value);

    /// Returns the errors in a new object, also in its metadata.
    fn validate(&self, value: &Value) -> Vec<FieldError>;

    /// Returns the errors in an object that replaces `old`: [`Self::validate`], and changes of immutable fields.
    fn validate_update(&self, value: &Value, old: &Value) -> Vec<FieldError>;

    /// Like [`Self::validate_update`] for the status subresource: only metadata and status are checked.
    fn validate_status_update(&self, value: &Value, old: &Value) -> Vec<FieldError>;
}

#[cfg(test)]
mod tests;
