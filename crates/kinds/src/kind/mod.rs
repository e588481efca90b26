//! A kind as one value: what is known of it beside its types, and what it does differently on its way into the store.
//!
//! Owns the shape of that value, what every kind does alike, and the resource that carries the value. Each built-in kind says in one
//! file of its group's folder (`apps/deployment.rs`) what is its own and takes all else from [`Kind::named`]; all custom kinds share
//! [`crate::customresources::CUSTOM`]. Refuses to know any single kind, and to ask which one it has before it.

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
pub use versions::{BuiltinVersions, Renaming, Types, rename, version_of};

/// What creates and updates of a kind share that is finite, so that they run one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// Nothing: they run beside each other.
    Nothing,
    /// Something that is looked at beside all else, as the names that definitions give.
    Names,
    /// Something that is given out before anything else of an object is looked at.
    Allocated,
}

/// When the owners of fields are settled before what an endpoint does not write is put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnersFirst {
    /// Never.
    Never,
    /// On subresources.
    OnSubresources,
    /// On every endpoint.
    Always,
}

/// Faults of an object alone.
pub type Check = fn(&Value, &mut Vec<FieldError>);
/// Faults of an object that is about to replace another, which comes second.
pub type Compare = fn(&Value, &Value, &mut Vec<FieldError>);

/// One kind. Every field has the value of a kind of which nothing special is said, unless its file says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// The kind's name.
    pub name: &'static str,
    /// The plural in URLs.
    pub plural: &'static str,

    /// What objects may be called.
    pub names: NameRule,
    /// Another resource, group and plural, whose objects are these too.
    pub stored_as: Option<(&'static str, &'static str)>,
    /// The group and version in which objects are kept, where it is another one than the resource's.
    pub stored_version: Option<&'static str>,
    /// The versions of its group that say things in different ways, the stored one among them.
    pub versions: &'static [&'static str],
    /// An object in another version, where versions differ in more than their name.
    pub convert: Option<fn(Value, &str) -> Value>,
    /// Where etcd would keep the objects, if not under the plural: some refusals tell it.
    pub etcd_folder: Option<&'static str>,
    /// What every request is told.
    pub deprecation: Option<&'static str>,
    /// Fields that field selectors may name, beside name and namespace.
    pub selectable_fields: &'static [&'static str],
    /// The refusal of another field, where it has words of its own.
    pub refuse_field: Option<fn(&str) -> String>,

    /// The question that an object is, if it is answered and not stored.
    pub review: Option<Review>,
    /// What is done through an endpoint, if that is no view of the object.
    pub action: fn(Option<&str>) -> Option<Action>,
    /// Whether objects judge requests, so that none judges requests about them, or it could shut out its own removal.
    pub judges_requests: bool,
    /// Whether what is sent is not repeated to anybody.
    pub is_confidential: bool,

    /// Whether a PUT of an object that is not there creates it.
    pub is_created_by_update: bool,
    /// Whether a deletion is answered with the object as it was, and not with a Status.
    pub is_answered_when_deleted: bool,
    /// Whether a PUT has to say which version it replaces.
    pub needs_resource_version: bool,
    /// What creates and updates share.
    pub shares: Shared,
    /// Whether objects define other resources.
    pub defines_resources: bool,
    /// Whether objects hold others, as namespaces do.
    pub holds_objects: bool,
    /// When owners are settled first.
    pub owners_first: OwnersFirst,
    /// What becomes of dependents if nobody says.
    pub default_propagation: Option<&'static str>,
    /// What is told to who deletes and says nothing of dependents.
    pub deletion_warning: Option<&'static str>,

    /// Whether and when changes are counted.
    pub generation: Generation,
    /// A field of metadata whose changes count too.
    pub counted_metadata: Option<&'static str>,
    /// Whether a status may come with the object that is created.
    pub takes_status: bool,
    /// The status of a new object.
    pub initial_status: Option<fn() -> Value>,
    /// Whether metadata is written through the status endpoint.
    pub status_writes_metadata: bool,
    /// What of metadata is not, even so.
    pub kept_from_status: &'static [&'static str],
    /// Where the spec of its pods is.
    pub pod_spec: Option<&'static str>,

    /// What its objects meet in admission beside the rules for all kinds, in this order.
    pub admission: &'static [Rule],

    /// Whether quotas may name the number of objects by the plural alone.
    pub is_counted_by_plural: bool,
    /// What quotas count beside the number.
    pub usage: Option<Usage>,

    /// Fills in, at the group's version given first, what objects get beyond their structs' own defaults.
    pub defaults: fn(&str, &mut Map<String, Value>),
    /// Brings what may be written in two ways into the one that is stored, before owners are settled.
    pub normalize: fn(&Resource, &mut Value),
    /// Says what two versions, or two fields, say in different ways as the server says it.
    pub unify: fn(&mut Value),
    /// Writes null where Kubernetes writes it rather than nothing; for an empty list too if the last argument says that the object is
    /// about to be stored.
    pub write_nulls: fn(&Resource, &mut Value, bool),
    /// Leaves out what Kubernetes knows and has switched off, unless the stored object has it.
    pub drop_disabled: fn(&mut Value, Option<&Value>),
    /// Prepares an object that is about to be created.
    pub prepare_create: fn(&Request<'_>, &mut Value),
    /// Fills in what is filled in when a new object is read back.
    pub complete_created: fn(&mut Value),
    /// Prepares an object that is about to replace another, which comes second.
    pub prepare_update: fn(&Request<'_>, &Value, &mut Value),
    /// Prepares an object that waits for its finalizers from now on.
    pub prepare_delete: fn(&mut Value, Timestamp),
    /// The object with the live one's fields where an endpoint does not write, if this endpoint is one of the kind's own.
    pub reset: fn(Option<&str>, &Value, &Value) -> Option<Value>,
    /// Puts back what a status can't take away from the live object, which comes first.
    pub keep_from_status: fn(&Value, &mut Value),

    /// What the writer has no right to make the server do, of an object without other faults.
    pub check_rights: fn(&Admitted<'_>, &Value) -> Vec<FieldError>,
    /// Faults that only show beside other objects, on creation.
    pub check_create: fn(&Request<'_>, &Value) -> Vec<FieldError>,
    /// The same on a change; the live object comes second.
    pub check_update: fn(&Request<'_>, &Value, &Value) -> Vec<FieldError>,
    /// Whether faults of metadata are looked for only when there are no others.
    pub metadata_comes_last: bool,
    /// Faults of an object, new or changed.
    pub validate: Check,
    /// Faults of a new object alone.
    pub validate_create: Check,
    /// Faults of a changed object beside what it replaces.
    pub validate_update: Compare,
    /// Faults of a status beside what it replaces.
    pub validate_status: Compare,
    /// All faults of a write to an endpoint that is judged by rules of its own: the new object, the live one, the endpoint.
    pub validate_part: fn(&Value, &Value, Option<&str>) -> Option<Vec<FieldError>>,
    /// Texts for the writer of an object that is accepted all the same; the second object is what it replaces.
    pub warnings: fn(&Value, Option<&Value>) -> Vec<String>,

    /// The cells of one object.
    pub cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// What a row says of its object beside the cells.
    pub row_condition: fn(&Value) -> Option<Value>,
}

impl Kind {
    /// A kind of which nothing special is said.
    pub const fn named(group: &'static str, name: &'static str, plural: &'static str) -> Self {
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

    /// Where the template of its pods is, if it makes some.
    #[must_use]
    pub fn pod_template(&self) -> Option<&'static str> {
        self.pod_spec?.strip_suffix("/spec").filter(|at| !at.is_empty())
    }
}

/// A built-in kind of which nothing special is said.
pub static PLAIN: Kind = Kind::named("", "", "");
