//! A kind as one value: its facts beside its types, and its differences on the way into the store.
//!
//! This module defines the form of that value, the behavior that all kinds share, and the resource that carries the value. Each built-in
//! kind sets its own fields in one file of its group's folder (`apps/deployment.rs`) and takes the rest from [`Kind::new`]. All custom
//! kinds share [`crate::customresources::CUSTOM`]. No code in this module depends on a single kind.

mod admission;
mod allocated;
mod generation;
mod request;
mod resource;
mod review;
mod scale;
mod schema;
mod service_range;
mod usage;
mod versions;
mod writing;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::schema::FieldError;
use crate::schema::validation::names::NameRule;
use crate::table::plain_cells;

pub use admission::{Admitted, Awaited, Plugin, Rule};
pub use allocated::Allocated;
pub use generation::Generation;
pub use request::{Objects, Request};
pub use resource::{CustomKind, Origin, Resource, ScalePaths, Subresource};
pub use review::{Action, Review};
pub use scale::selector_text;
pub use schema::KindSchema;
pub use service_range::{InvalidRange, ServiceRange};
pub use usage::{IsNamed, Usage};
pub use versions::{BuiltinVersions, Renaming, Types, set_api_version, version_of};

/// The finite values that creates and updates of a kind share. Such writes run one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// Writes share nothing and run in parallel.
    Nothing,
    /// Writes share values that are checked, such as the names in definitions.
    Names,
    /// Writes share values that are allocated before any other check of an object.
    Allocated,
}

/// The endpoints where field owners are computed before the fields are restored that the endpoint does not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnersFirst {
    /// Never.
    Never,
    /// On subresources.
    OnSubresources,
    /// On every endpoint.
    Always,
}

/// Returns the errors in a single object.
pub type Check = fn(&Value, &mut Vec<FieldError>);
/// Returns the errors in an object that replaces another; the old object is the second argument.
pub type Compare = fn(&Value, &Value, &mut Vec<FieldError>);

/// A kind. A field that its file does not set has the value of a kind without special rules.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// The kind's name.
    pub name: &'static str,
    /// The plural in URLs.
    pub plural: &'static str,

    /// The valid names of objects.
    pub names: NameRule,
    /// The other resource, as group and plural, that stores the objects of this kind.
    pub stored_as: Option<(&'static str, &'static str)>,
    /// The group and version in which objects are stored, if it differs from the resource's.
    pub stored_version: Option<&'static str>,
    /// The versions of its group with different fields, including the stored version.
    pub versions: &'static [&'static str],
    /// Converts an object into another version, if versions differ in more than their name.
    pub convert: Option<fn(Value, &str) -> Value>,
    /// The folder in etcd, if it is not the plural. Some error messages contain it.
    pub etcd_folder: Option<&'static str>,
    /// The warning for every request.
    pub deprecation: Option<&'static str>,
    /// The fields for field selectors, in addition to name and namespace.
    pub selectable_fields: &'static [&'static str],
    /// The error for an unsupported field in a field selector, if it has special words.
    pub refuse_field: Option<fn(&str) -> String>,

    /// The question that an object of this kind asks, if the server answers it and stores nothing.
    pub review: Option<Review>,
    /// Returns the action of an endpoint that doesn't read or write the object itself.
    pub action: fn(Option<&str>) -> Option<Action>,
    /// Whether objects decide about requests. No such object applies to requests about its own kind, because it could prevent its own
    /// removal.
    pub judges_requests: bool,
    /// Whether messages must not repeat the content of a request.
    pub is_confidential: bool,

    /// Whether a PUT of a missing object creates it.
    pub is_created_by_update: bool,
    /// Whether a deletion returns the old object instead of a Status.
    pub is_answered_when_deleted: bool,
    /// Whether a PUT must contain the `resourceVersion` that it replaces.
    pub needs_resource_version: bool,
    /// The values that creates and updates share.
    pub shares: Shared,
    /// Whether objects define other resources.
    pub defines_resources: bool,
    /// Whether objects contain other objects, as namespaces do.
    pub holds_objects: bool,
    /// The endpoints that compute field owners before they restore fields.
    pub owners_first: OwnersFirst,
    /// The default treatment of dependents on deletion.
    pub default_propagation: Option<&'static str>,
    /// The warning for a deletion that does not set the treatment of dependents.
    pub deletion_warning: Option<&'static str>,

    /// The rule for counting changes.
    pub generation: Generation,
    /// A metadata field whose changes also count.
    pub counted_metadata: Option<&'static str>,
    /// Whether a new object may contain a status.
    pub takes_status: bool,
    /// The status of a new object.
    pub initial_status: Option<fn() -> Value>,
    /// Whether the status endpoint writes metadata.
    pub status_writes_metadata: bool,
    /// The metadata fields that a status write still does not change.
    pub kept_from_status: &'static [&'static str],
    /// The JSON pointer of the Pod spec.
    pub pod_spec: Option<&'static str>,

    /// The admission rules beside the rules for all kinds, in this order.
    pub admission: &'static [Rule],

    /// Whether quotas may name the number of objects by the plural alone.
    pub is_counted_by_plural: bool,
    /// The amounts that quotas count beside the number of objects.
    pub usage: Option<Usage>,

    /// Adds the defaults beyond those of the structs. The first argument is the version within the group.
    pub defaults: fn(&str, &mut Map<String, Value>),
    /// Converts alternative forms into the stored form, before owners are computed.
    pub normalize: fn(&Resource, &mut Value),
    /// Makes values agree that two versions, or two fields, express differently.
    pub unify: fn(&mut Value),
    /// Writes null where Kubernetes does not omit the field. For an empty list this happens only if the last argument is true, which means
    /// that the object is about to be stored.
    pub write_nulls: fn(&Resource, &mut Value, bool),
    /// Removes fields that Kubernetes knows but has disabled, unless the stored object has them.
    pub drop_disabled: fn(&mut Value, Option<&Value>),
    /// Prepares an object that is about to be created.
    pub prepare_create: fn(&Request<'_>, &mut Value),
    /// Adds the fields that appear when a new object is read back.
    pub complete_created: fn(&mut Value),
    /// Prepares an object that is about to replace another, which comes second.
    pub prepare_update: fn(&Request<'_>, &Value, &mut Value),
    /// Prepares an object that now waits for its finalizers.
    pub prepare_delete: fn(&mut Value, Timestamp),
    /// Returns the new object with the live object's fields that an endpoint does not write. Returns none unless the
    /// endpoint is one of the kind's own.
    pub reset: fn(Option<&str>, &Value, &Value) -> Option<Value>,
    /// Restores the fields that a status write can't remove. The live object is the first argument.
    pub keep_from_status: fn(&Value, &mut Value),

    /// Returns errors for actions of the server that the writer has no right to trigger. It runs for an object without other errors.
    pub check_rights: fn(&Admitted<'_>, &Value) -> Vec<FieldError>,
    /// Returns errors of a new object that depend on other objects.
    pub check_create: fn(&Request<'_>, &Value) -> Vec<FieldError>,
    /// Checks a change; the live object is the last argument.
    pub check_update: fn(&Request<'_>, &Value, &Value) -> Vec<FieldError>,
    /// Whether metadata is checked only if no other errors exist.
    pub metadata_comes_last: bool,
    /// Checks an object, new or changed.
    pub validate: Check,
    /// Checks rules for new objects only.
    pub validate_create: Check,
    /// Checks a changed object against its old form.
    pub validate_update: Compare,
    /// Checks a status against its old form.
    pub validate_status: Compare,
    /// Returns every error of a write to an endpoint with its own rules. The arguments are the new object, the live object and the
    /// endpoint.
    pub validate_part: fn(&Value, &Value, Option<&str>) -> Option<Vec<FieldError>>,
    /// Returns warnings for the writer of an accepted object. The second object is the old one.
    pub warnings: fn(&Value, Option<&Value>) -> Vec<String>,

    /// Returns the table cells of one object.
    pub cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// Returns the condition of a table row.
    pub row_condition: fn(&Value) -> Option<Value>,
}

impl Kind {
    /// Creates a kind without special rules.
    pub const fn new(group: &'static str, name: &'static str, plural: &'static str) -> Self {
        Self {
            group,
            name,
            plural,
            names: NameRule::Subdomain,
            stored_as: None,
            stored_version: None,
            versions: &[],
            convert: None,
            etcd_folder: None,
            deprecation: None,
            selectable_fields: &[],
            refuse_field: None,
            review: None,
            action: |_| None,
            judges_requests: false,
            is_confidential: false,
            is_created_by_update: false,
            is_answered_when_deleted: false,
            needs_resource_version: false,
            shares: Shared::Nothing,
            defines_resources: false,
            holds_objects: false,
            owners_first: OwnersFirst::Never,
            default_propagation: None,
            deletion_warning: None,
            generation: Generation::Never,
            counted_metadata: None,
            takes_status: false,
            initial_status: None,
            status_writes_metadata: true,
            kept_from_status: &[],
            pod_spec: None,
            admission: &[],
            is_counted_by_plural: false,
            usage: None,
            defaults: |_, _| {},
            normalize: |_, _| {},
            unify: |_| {},
            write_nulls: |_, _, _| {},
            drop_disabled: |_, _| {},
            prepare_create: |_, _| {},
            complete_created: |_| {},
            prepare_update: |_, _, _| {},
            prepare_delete: |_, _| {},
            reset: |_, _, _| None,
            keep_from_status: |_, _| {},
            check_rights: |_, _| Vec::new(),
            check_create: |_, _| Vec::new(),
            check_update: |_, _, _| Vec::new(),
            metadata_comes_last: false,
            validate: |_, _| {},
            validate_create: |_, _| {},
            validate_update: |_, _, _| {},
            validate_status: |_, _, _| {},
            validate_part: |_, _, _| None,
            warnings: |_, _| Vec::new(),
            cells: plain_cells,
            row_condition: |_| None,
        }
    }

    /// Returns the place of the Pod template, if the kind has one.
    #[must_use]
    pub fn pod_template(&self) -> Option<&'static str> {
        self.pod_spec?.strip_suffix("/spec").filter(|at| !at.is_empty())
    }
}

/// A built-in kind without special rules.
pub static PLAIN: Kind = Kind::new("", "", "");
