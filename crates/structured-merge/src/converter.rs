//! Objects in other versions of their kind. A manager that wrote another version owns fields of that version.
//!
//! The converter in this module converts only kinds whose versions differ in nothing but `apiVersion`.

use std::borrow::Cow;

use serde_json::Value;

use crate::schema::Typing;

/// Brings objects of one kind from one version into another.
pub trait Convert: Send + Sync {
    /// Returns the type of the kind in `api_version`; `None` if that version is no longer served.
    fn typing(&self, api_version: &str) -> Option<&Typing>;

    /// Returns the object in `api_version`, borrowed if nothing changes.
    ///
    /// # Errors
    /// [`ConvertError::NoSuchVersion`] if that version is no longer served. The fields of its managers are then forgotten.
    /// [`ConvertError::Failed`] for any other error; the write then fails.
    fn convert<'a>(&self, object: &'a Value, api_version: &str) -> Result<Cow<'a, Value>, ConvertError>;
}

/// The reason why an object can't be converted into a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The version isn't served.
    #[error("no version {0:?} of this kind is served")]
    NoSuchVersion(String),
    /// The conversion failed, for example a webhook's.
    #[error("{0}")]
    Failed(String),
}

/// The converter of kinds whose versions have the same fields, or whose only version is known. It changes only `apiVersion` (the conversion
/// strategy `None` of a CustomResourceDefinition).
#[derive(Clone, Debug)]
pub struct SameShape {
    versions: Vec<(String, Typing)>,
}

impl SameShape {
    /// Returns the versions that are served (`group/version`) and the kind's type in each.
    #[must_use]
    pub fn new(versions: Vec<(String, Typing)>) -> Self {
        Self { versions }
    }
}

impl Convert for SameShape {
    fn typing(&self, api_version: &str) -> Option<&Typing> {
        self.versions
            .iter()
            .find(|(version, _)| version == api_version)
            .map(|(_, typing)| typing)
    }

    fn convert<'a>(&self, object: &'a Value, api_version: &str) -> Result<Cow<'a, Value>, ConvertError> {
        if self.typing(api_version).is_none() {
            return Err(ConvertError::NoSuchVersion(api_version.to_owned()));
        }
        if object.get("apiVersion").and_then(Value::as_str) == Some(api_version) {
            return Ok(Cow::Borrowed(object));
        }
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), Value::from(api_version));
        }
        Ok(Cow::Owned(object))
    }
}
