//! The identity of an object in an inventory, in Flux's text form `namespace_name_group_Kind` with `:` in names written `__`.
//! Forged ids are refused: their parts could be no object's name.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The identity of an object: group, kind, namespace and name, without the version. Ordered and serialised by its text
/// form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectId {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
}

/// The reason why a text or an object gives no [`ObjectId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectIdError {
    /// The text does not have the four parts.
    #[error("{id:?} is not an inventory id: it must be namespace_name_group_Kind")]
    Shape {
        /// The text.
        id: String,
    },
    /// A part can't be the name of an object.
    #[error("{id:?} is not an inventory id: its {part} is not valid")]
    Part {
        /// The text.
        id: String,
        /// The invalid part.
        part: &'static str,
    },
    /// An object lacks what identifies it.
    #[error("the object has no {field}")]
    Field {
        /// The missing field.
        field: &'static str,
    },
}

impl ObjectId {
    /// Returns the id of an object.
    ///
    /// # Errors
    /// [`ObjectIdError::Field`] when `kind`, `apiVersion` or `metadata.name` is missing, [`ObjectIdError::Part`] when one is not valid.
    pub fn from_object(object: &Value) -> Result<Self, ObjectIdError> {
        let text = |pointer: &str, field: &'static str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .ok_or(ObjectIdError::Field { field })
        };
        let api_version = text("/apiVersion", "apiVersion")?;
        let (group, _) = split_api_version(api_version);
        let id = Self {
            namespace: object
                .pointer("/metadata/namespace")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            name: text("/metadata/name", "metadata.name")?.to_owned(),
            group: group.to_owned(),
            kind: text("/kind", "kind")?.to_owned(),
        };
        id.check()?;
        Ok(id)
    }

    /// Refuses parts that could be no object's name, and could lead a path built from them elsewhere. Names follow the rule
    /// for path segments, which is the widest that Kubernetes has (RBAC kinds use it).
    fn check(&self) -> Result<(), ObjectIdError> {
        let part = |part| ObjectIdError::Part {
            id: self.to_string(),
            part,
        };
        if !self.namespace.is_empty() && !crate::names::is_dns_label(&self.namespace) {
            return Err(part("namespace"));
        }
        let forbidden =
            |character: char| matches!(character, '/' | '%' | '?' | '#') || character.is_control() || character == ' ';
        if self.name.is_empty()
            || self.name.len() > 253
            || self.name == "."
            || self.name == ".."
            || self.name.contains(forbidden)
        {
            return Err(part("name"));
        }
        if !self.group.is_empty() && !crate::names::is_dns_subdomain(&self.group) {
            return Err(part("group"));
        }
        if self.kind.is_empty() || !self.kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(part("kind"));
        }
        Ok(())
    }

    /// Returns `Kind namespace/name` or `Kind name`, for a sentence. Invisible characters in the name are escaped.
    #[must_use]
    pub fn describe(&self) -> String {
        self.subject().replacen('/', " ", 1)
    }

    /// Returns `Kind/namespace/name` or `Kind/name`, as Flux writes an object in messages. Invisible characters in the name are escaped.
    #[must_use]
    pub fn subject(&self) -> String {
        let name = crate::text::visible_line(&self.name);
        if self.namespace.is_empty() {
            format!("{}/{name}", self.kind)
        } else {
            format!("{}/{}/{name}", self.kind, self.namespace)
        }
    }
}

/// Splits an `apiVersion` into group (empty for core) and version.
#[must_use]
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

impl fmt::Display for ObjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}_{}_{}_{}",
            self.namespace,
            self.name.replace(':', "__"),
            self.group,
            self.kind
        )
    }
}

impl FromStr for ObjectId {
    type Err = ObjectIdError;

    fn from_str(id: &str) -> Result<Self, ObjectIdError> {
        let shape = || ObjectIdError::Shape { id: id.to_owned() };
        let (namespace, rest) = id.split_once('_').ok_or_else(shape)?;
        let (rest, kind) = rest.rsplit_once('_').ok_or_else(shape)?;
        let (name, group) = rest.rsplit_once('_').ok_or_else(shape)?;
        let id = Self {
            namespace: namespace.to_owned(),
            name: name.replace("__", ":"),
            group: group.to_owned(),
            kind: kind.to_owned(),
        };
        id.check()?;
        Ok(id)
    }
}

impl TryFrom<String> for ObjectId {
    type Error = ObjectIdError;

    fn try_from(id: String) -> Result<Self, ObjectIdError> {
        id.parse()
    }
}

impl From<ObjectId> for String {
    fn from(id: ObjectId) -> String {
        id.to_string()
    }
}

/// An entry of an inventory. The id is a text that the controller checks before use, since a status can be forged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ResourceRef {
    /// Identity of the object: `namespace_name_group_Kind`.
    pub id: String,
    /// API version, without the group, that the object was applied with.
    pub v: String,
    /// The object existed before its first apply and belonged to no Kustomization.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
}

/// An object whose deletion was allowed. The controller checks the list against the digest that allowed it, since a status can be forged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct AllowedDeletion {
    /// Identity of the object: `namespace_name_group_Kind`.
    pub id: String,
    /// Uid of the object.
    pub uid: String,
}

/// Objects that were applied and that the Kustomization still tracks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ResourceInventory {
    /// One entry for each object.
    #[serde(default)]
    #[schemars(required)]
    pub entries: Vec<ResourceRef>,
}
