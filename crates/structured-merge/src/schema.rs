//! The facts about a type that the merge needs: which lists are maps, sets or atomic, which maps are atomic, which fields a struct has, and
//! the defaults of list-map keys.
//!
//! The merge validates no formats, enums or required fields, and does not default or prune objects; the server's own schemas do that.

mod build;
mod structural;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

/// The types of one group version, of one custom resource version, or of nothing in particular.
/// Immutable; build it once per group version and share it.
#[derive(Debug)]
pub struct Schema {
    types: Vec<Type>,
    kinds: HashMap<(String, String, String), TypeRef>,
    names: HashMap<String, TypeRef>,
}

/// The position of a type in its [`Schema`]. It means nothing in another schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeRef(u32);

/// A type together with the schema that it is of.
#[derive(Clone, Debug)]
pub struct Typing {
    /// The schema.
    pub schema: Arc<Schema>,
    /// The type in it.
    pub type_ref: TypeRef,
}

/// A schema that the merge can't use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A schema, or an object inside a schema, is of another type.
    #[error("schema {at}: must be an object")]
    NotAnObject {
        /// The place in the definitions.
        at: String,
    },
    /// A `$ref` to a missing definition.
    #[error("schema {at}: no definition is named {name:?}")]
    UnknownReference {
        /// The place in the definitions.
        at: String,
        /// The name that the reference ends with.
        name: String,
    },
    /// A value of an extension, or a type, that Kubernetes doesn't know.
    #[error("schema {at}: {field} can't be {value}")]
    BadValue {
        /// The place in the definitions.
        at: String,
        /// The field or extension.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// `x-kubernetes-list-type: map` without `x-kubernetes-list-map-keys`, or an array without `items`.
    #[error("schema {at}: {field} is missing")]
    Missing {
        /// The place in the definitions.
        at: String,
        /// The missing field.
        field: &'static str,
    },
}

/// The values that a type allows: scalars, lists or maps. A type allows several of these if the schema leaves it open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Type {
    pub(crate) scalar: Option<Scalar>,
    pub(crate) list: Option<ListType>,
    pub(crate) map: Option<MapType>,
}

/// The scalars that a type allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Numeric,
    String,
    Boolean,
    Any,
}

/// The type of a list: the type of its items, and how they are merged.
#[derive(Clone, Debug)]
pub(crate) struct ListType {
    pub(crate) element: TypeRef,
    pub(crate) relation: ListRelation,
}

/// How the items of a list are merged (`x-kubernetes-list-type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListRelation {
    Atomic,
    Set,
    Map { keys: Vec<Arc<str>> },
}

/// The type of a map or struct: its fields, and how they are merged.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapType {
    /// Sorted by name.
    pub(crate) fields: Vec<Field>,
    /// The type of undeclared fields; `None` if they are not allowed.
    pub(crate) element: Option<TypeRef>,
    pub(crate) atomic: bool,
    /// Whether values are compared as a Go struct, in which some fields always exist.
    pub(crate) is_struct: bool,
    /// Whether the struct has a struct field by value, so that the struct is never empty.
    pub(crate) holds_structs: bool,
}

/// A declared field of a map or struct.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: Arc<str>,
    pub(crate) type_ref: TypeRef,
    pub(crate) default: Option<Value>,
    pub(crate) zero: Option<Zero>,
}

/// The value of a built-in kind's field that the JSON lacks. Kubernetes compares built-in kinds as Go structs, in which some fields always
/// exist. So the creation of a Deployment adds only the fields inside `.spec`, not `.spec` itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Zero {
    /// A struct held by value.
    Struct(Value),
    /// A list, map or pointer without `omitempty`.
    Null,
    /// A scalar without `omitempty`.
    Scalar(Value),
}

impl Zero {
    pub(crate) fn value(&self) -> &Value {
        match self {
            Self::Struct(value) | Self::Scalar(value) => value,
            Self::Null => &Value::Null,
        }
    }
}

impl MapType {
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.fields
            .binary_search_by(|field| (*field.name).cmp(name))
            .ok()
            .and_then(|at| self.fields.get(at))
    }

    /// Returns the type of the value in the field `name`, declared or not.
    pub(crate) fn type_of(&self, name: &str) -> Option<TypeRef> {
        self.field(name).map(|field| field.type_ref).or(self.element)
    }
}

const UNTYPED_ATOMIC: TypeRef = TypeRef(0);
pub(crate) const DEDUCED: TypeRef = TypeRef(1);

impl Schema {
    /// Builds the types of a set of OpenAPI definitions (`components.schemas` of an OpenAPI v3 document, or `definitions` of a v2 one),
    /// with their `$ref`s, `allOf` references and `x-kubernetes-*` extensions. The definitions must describe built-in kinds, which
    /// Kubernetes compares as Go structs.
    ///
    /// # Errors
    /// If a definition is malformed or refers to a missing definition.
    pub fn from_openapi(definitions: &Map<String, Value>) -> Result<Self, SchemaError> {
        build::from_openapi(definitions)
    }

    /// Builds the type of one version of a custom resource from its `openAPIV3Schema`; `metadata`,
    /// `apiVersion` and `kind` are added as the API server does.
    ///
    /// # Errors
    /// If the schema is malformed.
    pub fn from_structural(open_api_v3_schema: &Value) -> Result<Typing, SchemaError> {
        structural::from_structural(open_api_v3_schema)
    }

    /// Returns the schema of unknown kinds: maps are merged, lists are atomic.
    #[must_use]
    pub fn deduced() -> Arc<Self> {
        static DEDUCED_SCHEMA: OnceLock<Arc<Schema>> = OnceLock::new();
        Arc::clone(DEDUCED_SCHEMA.get_or_init(|| {
            Arc::new(Self {
                types: untyped_types(),
                kinds: HashMap::new(),
                names: HashMap::new(),
            })
        }))
    }

    /// Returns the type that the definitions declare for a kind (`x-kubernetes-group-version-kind`).
    #[must_use]
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeRef> {
        self.kinds
            .get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
            .copied()
    }

    /// Returns the type of the definition with this name.
    #[must_use]
    pub fn type_by_name(&self, name: &str) -> Option<TypeRef> {
        self.names.get(name).copied()
    }

    pub(crate) fn get(&self, type_ref: TypeRef) -> &Type {
        static NOTHING: Type = Type {
            scalar: None,
            list: None,
            map: None,
        };
        // A TypeRef of another schema can be out of range; nothing is valid by it then.
        self.types.get(type_ref.0 as usize).unwrap_or(&NOTHING)
    }
}

impl Typing {
    /// Returns a type of a shared schema.
    #[must_use]
    pub const fn new(schema: Arc<Schema>, type_ref: TypeRef) -> Self {
        Self { schema, type_ref }
    }

    /// Returns the type of unknown kinds: maps are merged, lists are atomic.
    #[must_use]
    pub fn deduced() -> Self {
        Self {
            schema: Schema::deduced(),
            type_ref: DEDUCED,
        }
    }

    /// Returns the type of a built-in kind; `None` if the schema lacks the kind. `api_version` is as in an object: `v1`, `apps/v1`.
    #[must_use]
    pub fn of_kind(schema: &Arc<Schema>, api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        schema
            .kind(group, version, kind)
            .map(|type_ref| Self::new(Arc::clone(schema), type_ref))
    }
}

/// Returns the two types for values that a schema leaves open.
fn untyped_types() -> Vec<Type> {
    let open = |element, atomic| Type {
        scalar: Some(Scalar::Any),
        list: Some(ListType {
            element: UNTYPED_ATOMIC,
            relation: ListRelation::Atomic,
        }),
        map: Some(MapType {
            element: Some(element),
            atomic,
            ..MapType::default()
        }),
    };
    vec![open(UNTYPED_ATOMIC, true), open(DEDUCED, false)]
}
