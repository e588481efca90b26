//! One served resource in one version: its names, its verbs, and where its objects are kept.

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
    /// Group of what it takes and returns; empty with an empty `version` means the resource's own.
    pub group: String,
    /// Version of what it takes and returns.
    pub version: String,
    /// Kind of what it takes and returns.
    pub kind: String,
    /// The verbs it allows.
    pub verbs: Vec<String>,
}

/// Where a resource comes from.
#[derive(Debug, Clone)]
pub enum Origin {
    /// It is part of this program.
    Builtin,
    /// A CustomResourceDefinition defines it.
    Custom(Arc<CustomKind>),
}

/// One version of a kind that a CustomResourceDefinition defines.
#[derive(Clone)]
pub struct CustomKind {
    /// The resourceVersion of the CustomResourceDefinition.
    pub revision: String,
    /// Whether the definition is being deleted, so that nothing new is created.
    pub terminating: bool,
    /// Fields that field selectors may name, without the leading dot.
    pub selectable_fields: Vec<String>,
    /// What its objects look like in each version, served or not, by group and version.
    pub schemas: Arc<BTreeMap<String, Arc<dyn ObjectSchema>>>,
    /// Group and version of every version that is served or stored and has a status of its own.
    pub with_status: Vec<String>,
    /// What its users are told, if this version is deprecated.
    pub deprecation: Option<String>,
    /// Where the scale subresource finds its numbers, if there is one.
    pub scale: Option<ScalePaths>,
    /// What its objects look like.
    pub schema: Arc<dyn ObjectSchema>,
    /// Its columns in tables.
    pub columns: Columns,
    /// Its type, for the owners of fields.
    pub typing: Typing,
    /// The types of its versions, served or not, for the owners of fields.
    pub types: Arc<Types>,
}

/// Where a kind keeps what its scale subresource shows, as JSON pointers.
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

/// One resource in one version.
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
    /// Group and plural under which objects are stored: two resources with the same one are views of the same objects.
    pub stored_as: (String, String),
    /// apiVersion in which objects are stored.
    pub storage_api_version: String,
    /// What its kind does differently.
    pub behavior: &'static Kind,
    /// Where it comes from.
    pub origin: Origin,
}

impl Resource {
    /// `apps/v1`, or `v1` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `deployments.apps`, or `configmaps` for the core group: how error messages name it.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether the verb is served, on the resource or on one of its subresources.
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

    /// The subresource of this name.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// apiVersion and kind of what the resource, or one of its subresources, takes in a body.
    #[must_use]
    pub fn taken_by(&self, subresource: Option<&str>) -> (String, String) {
        match subresource.and_then(|name| self.subresource(name)) {
            None => (self.api_version(), self.kind.clone()),
            Some(sub) if sub.version.is_empty() => (self.api_version(), sub.kind.clone()),
            Some(sub) if sub.group.is_empty() => (sub.version.clone(), sub.kind.clone()),
            Some(sub) => (format!("{}/{}", sub.group, sub.version), sub.kind.clone()),
        }
    }

    /// Whether status is written through its own subresource only.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Whether it is defined by a CustomResourceDefinition.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        matches!(self.origin, Origin::Custom(_))
    }

    /// Whether what is sent is not repeated to anybody. Of a custom kind only its name can say so.
    #[must_use]
    pub fn is_confidential(&self) -> bool {
        self.behavior.is_confidential || (self.is_custom() && self.plural == "secrets")
    }

    /// What every request is told, if this version is deprecated.
    #[must_use]
    pub fn deprecation(&self) -> Option<String> {
        match &self.origin {
            Origin::Custom(custom) => custom.deprecation.clone(),
            Origin::Builtin => self.behavior.deprecation.map(str::to_owned),
        }
    }

    /// Whether objects are stored in this version.
    #[must_use]
    pub fn is_storage_version(&self) -> bool {
        self.storage_api_version == self.api_version()
    }
}
