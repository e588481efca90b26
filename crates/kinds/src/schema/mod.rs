//! What the served kinds look like: types, decoding as Kubernetes' Go types decode, defaults, validation, OpenAPI.
//!
//! Owns everything that is known about a kind's *shape*: from data recorded from a real kube-apiserver (see
//! `crates/kinds/data`) for built-in kinds, and from a CustomResourceDefinition's schema for custom ones (see
//! [`crate::customresources`]). Pure: values in, values out. It refuses to store or fetch anything, and it decides
//! nothing about *who* may do something.
//!
//! The order in which a write uses it, as the real server does:
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
pub use decode::{base64_fault, decode as decode_struct, found, plain_number};
pub(crate) use defaults::declared as fill_declared;
pub use definition::{Definition, Field, ListKind, PatchStrategy, Shape};
pub use field_error::LONGEST_PATH;
pub use field_error::{FieldError, FieldErrorKind, FieldPath, invalid_status};
pub use field_error::{Shown, aggregate, fit_for_html, go_quoted, once, shortened};
pub use go_words::quantity;

/// The schema of one kind in one version, whether built in or defined by a CustomResourceDefinition.
pub trait ObjectSchema: Send + Sync {
    /// Brings a parsed body into the form that the kind's own types would print: unknown fields dropped and named,
    /// nulls and empty optional fields dropped, quantities in canonical form.
    ///
    /// # Errors
    /// A value whose type does not fit; the real server answers 400 with this text.
    fn decode(&self, value: Value) -> Result<Decoded, DecodeError>;

    /// The messages of strict decoding, `unknown field "spec.zz"`, in the order of the fields.
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

    /// Whether there are rules whose cost is not in proportion to what they look at.
    fn has_rules(&self) -> bool {
        false
    }

    /// Fills in the defaults, as the real server does on every read and write. Doing it twice changes nothing.
    fn default(&self, value: &mut Value);

    /// What is wrong with an object that is about to be created. Metadata is checked too.
    fn validate(&self, value: &Value) -> Vec<FieldError>;

    /// What is wrong with an object that is about to replace `old`: [`Self::validate`] plus what may not change.
    fn validate_update(&self, value: &Value, old: &Value) -> Vec<FieldError>;

    /// As [`Self::validate_update`] for the status subresource: metadata and status only.
    fn validate_status_update(&self, value: &Value, old: &Value) -> Vec<FieldError>;
}

#[cfg(test)]
mod tests;
