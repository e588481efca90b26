//! One served resource in one version: its names, its verbs, and where its objects are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use structured_merge::Typing;
use tenure_kinds::schema::ObjectSchema;
use tenure_kinds::table::Columns;

use crate::conversion::{Conversion, Types};
use crate::keys;

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
    pub(crate) types: Arc<Types>,
    /// How its versions become each other.
    pub(crate) conversion: Arc<Conversion>,
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

    /// Whether an update of an object that is not there creates it, as Kubernetes has it for a few kinds.
    #[must_use]
    pub fn is_created_by_update(&self) -> bool {
        !self.is_custom()
            && matches!(
                (self.group.as_str(), self.plural.as_str()),
                ("", "endpoints" | "events" | "limitranges" | "services")
                    | ("events.k8s.io", "events")
                    | ("coordination.k8s.io", "leases" | "leasecandidates")
                    | ("node.k8s.io", "runtimeclasses")
                    | (
                        "rbac.authorization.k8s.io",
                        "roles" | "rolebindings" | "clusterroles" | "clusterrolebindings"
                    )
            )
    }

    /// Whether a deletion is answered with the object as it was, as Kubernetes has it for a few kinds, and not with a Status.
    #[must_use]
    pub fn is_answered_when_deleted(&self) -> bool {
        !self.is_custom()
            && matches!(
                (self.group.as_str(), self.plural.as_str()),
                (
                    "",
                    "namespaces"
                        | "persistentvolumeclaims"
                        | "persistentvolumes"
                        | "pods"
                        | "podtemplates"
                        | "resourcequotas"
                        | "serviceaccounts"
                        | "services"
                ) | (
                    "storage.k8s.io",
                    "storageclasses" | "csidrivers" | "csinodes" | "volumeattachments" | "volumeattributesclasses"
                )
            )
    }

    /// Whether it is defined by a CustomResourceDefinition.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        matches!(self.origin, Origin::Custom(_))
    }

    /// What every request is told, if this version is deprecated.
    #[must_use]
    pub fn deprecation(&self) -> Option<String> {
        match &self.origin {
            Origin::Custom(custom) => custom.deprecation.clone(),
            Origin::Builtin if self.group.is_empty() && self.plural == "endpoints" => {
                Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned())
            }
            Origin::Builtin => None,
        }
    }

    /// Whether objects are stored in this version.
    #[must_use]
    pub fn is_storage_version(&self) -> bool {
        self.storage_api_version == self.api_version()
    }

    /// The store's prefix of all objects, or of those in one namespace.
    #[must_use]
    pub fn prefix(&self, namespace: Option<&str>) -> String {
        let (group, plural) = &self.stored_as;
        keys::of_resource(group, plural, namespace.filter(|_| self.namespaced))
    }

    /// The store's key of one object.
    #[must_use]
    pub fn key(&self, namespace: Option<&str>, name: &str) -> String {
        let (group, plural) = &self.stored_as;
        keys::of_object(group, plural, namespace.filter(|_| self.namespaced), name)
    }
}
