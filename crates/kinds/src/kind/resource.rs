//! A served resource in one version: its names, its verbs, and the place of its objects in the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use structured_merge::Typing;

use super::{Kind, Types};
use crate::schema::ObjectSchema;
use crate::table::Columns;

/// A subresource such as `status`.
#[derive(Debug, Clone)]
pub struct Subresource {
    /// The last part of the URL.
    pub name: String,
    /// The group of the body; empty with an empty `version` means the resource's own.
    pub group: String,
    /// The version of the body.
    pub version: String,
    /// The kind of the body.
    pub kind: String,
    /// The verbs it allows.
    pub verbs: Vec<String>,
}

/// The origin of a resource.
#[derive(Debug, Clone)]
pub enum Origin {
    /// The resource is part of this program.
    Builtin,
    /// A CustomResourceDefinition defines it.
    Custom(Arc<CustomKind>),
}

/// A version of a kind that a CustomResourceDefinition defines.
#[derive(Clone)]
pub struct CustomKind {
    /// The resourceVersion of the CustomResourceDefinition.
    pub revision: String,
    /// Whether the definition is being deleted, which prevents the creation of objects.
    pub terminating: bool,
    /// Fields that field selectors may name, without the leading dot.
    pub selectable_fields: Vec<String>,
    /// The schema of each version, served or not, by group and version.
    pub schemas: Arc<BTreeMap<String, Arc<dyn ObjectSchema>>>,
    /// Group and version of each version that is served or stored and has a status subresource.
    pub with_status: Vec<String>,
    /// The warning for users, if this version is deprecated.
    pub deprecation: Option<String>,
    /// The places that the scale subresource reads, if the kind has one.
    pub scale: Option<ScalePaths>,
    /// The schema of the objects.
    pub schema: Arc<dyn ObjectSchema>,
    /// The columns in tables.
    pub columns: Columns,
    /// The type for the owners of fields.
    pub typing: Typing,
    /// The types of its versions, served or not, for the owners of fields.
    pub types: Arc<Types>,
}

/// The places of the values that a kind's scale subresource shows, as JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// The wanted number.
    pub spec: String,
    /// The observed number.
    pub status: String,
    /// The selector as a text.
    pub selector: Option<String>,
}

impl std::fmt::Debug for CustomKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CustomKind")
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

/// A resource in one version.
#[derive(Debug, Clone)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version, such as `v1`.
    pub version: String,
    /// The plural in URLs.
    pub plural: String,
    /// The singular.
    pub singular: String,
    /// The kind.
    pub kind: String,
    /// The kind of lists.
    pub list_kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Short names for the command line.
    pub short_names: Vec<String>,
    /// Categories such as `all`.
    pub categories: Vec<String>,
    /// Verbs of the resource itself.
    pub verbs: Vec<String>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Group and plural under which objects are stored. Two resources with equal values are views of the same objects.
    pub stored_as: (String, String),
    /// apiVersion in which objects are stored.
    pub storage_api_version: String,
    /// The special rules of its kind.
    pub behavior: &'static Kind,
    /// The origin of the resource.
    pub origin: Origin,
}

impl Resource {
    /// Returns `apps/v1`, or `v1` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the name in error messages: `deployments.apps`, or `configmaps` for the core group.
    #[must_use]
    pub fn qualified_name(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Returns whether the verb is served, on the resource or on one of its subresources.
    #[must_use]
    pub fn allows(&self, verb: &str, subresource: Option<&str>) -> bool {
        let verbs = match subresource {
            None => &self.verbs,
            Some(name) => match self.subresource(name) {
                Some(subresource) => &subresource.verbs,
                None => return false,
            },
        };
        verbs.iter().any(|allowed| allowed == verb)
    }

    /// Returns the subresource of this name.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Returns apiVersion and kind of the body that the resource, or one of its subresources, accepts.
    #[must_use]
    pub fn taken_by(&self, subresource: Option<&str>) -> (String, String) {
        match subresource.and_then(|name| self.subresource(name)) {
            None => (self.api_version(), self.kind.clone()),
            Some(sub) if sub.version.is_empty() => (self.api_version(), sub.kind.clone()),
            Some(sub) if sub.group.is_empty() => (sub.version.clone(), sub.kind.clone()),
            Some(sub) => (format!("{}/{}", sub.group, sub.version), sub.kind.clone()),
        }
    }

    /// Returns whether status is written through its own subresource only.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Returns whether a CustomResourceDefinition defines the resource.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        matches!(self.origin, Origin::Custom(_))
    }

    /// Returns whether messages must not repeat the content of a request. For a custom kind, the name decides.
    #[must_use]
    pub fn is_confidential(&self) -> bool {
        self.behavior.is_confidential || (self.is_custom() && self.plural == "secrets")
    }

    /// Returns the warning for every request, if this version is deprecated.
    #[must_use]
    pub fn deprecation(&self) -> Option<String> {
        match &self.origin {
            Origin::Custom(custom) => custom.deprecation.clone(),
            Origin::Builtin => self.behavior.deprecation.map(str::to_owned),
        }
    }

    /// Returns whether objects are stored in this version.
    #[must_use]
    pub fn is_storage_version(&self) -> bool {
        self.storage_api_version == self.api_version()
    }
}
