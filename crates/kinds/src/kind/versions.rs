//! The versions of one kind, for the owners of its fields.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use structured_merge::{Convert, ConvertError, Typing};

/// The types of all versions of a kind, served or not.
pub struct Types(Vec<(String, Typing)>);

impl Types {
    /// Creates the value from pairs of group-version and type.
    #[must_use]
    pub fn new(versions: Vec<(String, Typing)>) -> Self {
        Self(versions)
    }

    /// Returns the type in one version.
    #[must_use]
    pub fn get(&self, api_version: &str) -> Option<&Typing> {
        let found = self.0.iter().find(|(version, _)| version == api_version);
        found.map(|(_, typing)| typing)
    }

    /// Refuses a version that the kind doesn't have. Owners in such a version can't be determined, and the write that needs them fails.
    ///
    /// # Errors
    /// In the real server's words.
    pub fn check(&self, api_version: &str) -> Result<(), ConvertError> {
        match self.get(api_version) {
            Some(_) => Ok(()),
            None => Err(ConvertError::Failed(format!(
                "request to convert CR to an invalid group/version: {api_version}"
            ))),
        }
    }
}

/// The versions of a kind that differ in `apiVersion` only.
pub struct Renaming(Arc<Types>);

impl Renaming {
    /// Creates the versions of these types.
    #[must_use]
    pub fn new(types: Arc<Types>) -> Self {
        Self(types)
    }
}

impl Convert for Renaming {
    fn typing(&self, api_version: &str) -> Option<&Typing> {
        self.0.get(api_version)
    }

    fn convert<'a>(&self, object: &'a Value, api_version: &str) -> Result<Cow<'a, Value>, ConvertError> {
        self.0.check(api_version)?;
        if version_of(object) == api_version {
            return Ok(Cow::Borrowed(object));
        }
        let mut object = object.clone();
        set_api_version(&mut object, api_version);
        Ok(Cow::Owned(object))
    }
}

/// The versions of a built-in kind that have different fields.
pub struct BuiltinVersions {
    types: Types,
    convert: fn(Value, &str) -> Value,
}

impl BuiltinVersions {
    /// Creates the versions of these types, with `convert` as their conversion.
    #[must_use]
    pub fn new(types: Types, convert: fn(Value, &str) -> Value) -> Self {
        Self { types, convert }
    }
}

impl Convert for BuiltinVersions {
    fn typing(&self, api_version: &str) -> Option<&Typing> {
        self.types.get(api_version)
    }

    fn convert<'a>(&self, object: &'a Value, api_version: &str) -> Result<Cow<'a, Value>, ConvertError> {
        if self.types.get(api_version).is_none() {
            return Err(ConvertError::NoSuchVersion(api_version.to_owned()));
        }
        if version_of(object) == api_version {
            return Ok(Cow::Borrowed(object));
        }
        Ok(Cow::Owned((self.convert)(object.clone(), api_version)))
    }
}

/// Sets the version of an object.
pub fn set_api_version(object: &mut Value, api_version: &str) {
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), Value::from(api_version));
    }
}

/// Returns the `apiVersion` of an object.
pub fn version_of(object: &Value) -> &str {
    object.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
}
