//! What the merge needs to know of a type: which lists are maps, sets or atomic, which maps are
//! atomic, which fields a struct has, and the defaults of list-map keys.
//!
//! Refuses to validate more than the merge needs (formats, enums, required fields) and to default or
//! prune objects; the server's own schemas do that.

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

/// A type of one [`Schema`]; means nothing in another.
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
    /// A schema, or a part of one that must be an object, is none.
    #[error("schema {at}: must be an object")]
    NotAnObject {
        /// Where in the definitions.
        at: String,
    },
    /// A `$ref` to a definition that isn't there.
    #[error("schema {at}: no definition is named {name:?}")]
    UnknownReference {
        /// Where in the definitions.
        at: String,
        /// The name that the reference ends with.
        name: String,
    },
    /// A value of an extension, or a type, that Kubernetes doesn't know.
    #[error("schema {at}: {field} can't be {value}")]
    BadValue {
        /// Where in the definitions.
        at: String,
        /// The field or extension.
        field: &'static str,
        /// What it says.
        value: String,
    },
    /// `x-kubernetes-list-type: map` without `x-kubernetes-list-map-keys`, or an array without `items`.
    #[error("schema {at}: {field} is missing")]
    Missing {
        /// Where in the definitions.
        at: String,
        /// What should be there.
        field: &'static str,
    },
}

/// What values of a type may be: a scalar, a list, a map, or several of these when the schema leaves
/// it open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Type {
    pub(crate) scalar: Option<Scalar>,
    pub(crate) list: Option<ListType>,
    pub(crate) map: Option<MapType>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Numeric,
    String,
    Boolean,
    Any,
}

#[derive(Clone, Debug)]
pub(crate) struct ListType {
    pub(crate) element: TypeRef,
    pub(crate) relation: ListRelation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListRelation {
    Atomic,
    Set,
    Map { keys: Vec<Arc<str>> },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MapType {
    /// Sorted by name.
    pub(crate) fields: Vec<Field>,
    /// The type of fields that aren't declared; none if there may be none.
    pub(crate) element: Option<TypeRef>,
    pub(crate) atomic: bool,
    /// Whether values are compared as a Go struct: some of its fields always exist.
    pub(crate) is_struct: bool,
    /// Whether the struct has a field that is a struct by value, so that it is never empty.
    pub(crate) holds_structs: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: Arc<str>,
    pub(crate) type_ref: TypeRef,
    pub(crate) default: Option<Value>,
    pub(crate) zero: Option<Zero>,
}

/// What a field of a built-in kind holds when the JSON doesn't give it. Kubernetes compares those
/// kinds as Go structs, in which some fields always exist; so creating a Deployment doesn't "add"
/// `.spec`, only what is in it.
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

    /// The type of what the field `name` holds, declared or not.
    pub(crate) fn type_of(&self, name: &str) -> Option<TypeRef> {
        self.field(name).map(|field| field.type_ref).or(self.element)
    }
}

const UNTYPED_ATOMIC: TypeRef = TypeRef(0);
pub(crate) const DEDUCED: TypeRef = TypeRef(1);

impl Schema {
    /// Builds the types of a set of OpenAPI definitions (`components.schemas` of an OpenAPI v3
    /// document, or `definitions` of a v2 one), with their `$ref`s, `allOf` references and
    /// `x-kubernetes-*` extensions. These are taken to describe built-in kinds, which Kubernetes
    /// compares as Go structs.
    ///
    /// # Errors
    /// If a definition is malformed or refers to one that isn't there.
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

    /// The schema of kinds that nothing is known of: maps are merged, lists are atomic.
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

    /// The type that the definitions declare for a kind (`x-kubernetes-group-version-kind`).
    #[must_use]
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeRef> {
        self.kinds
            .get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
            .copied()
    }

    /// The type of the definition with this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<TypeRef> {
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
    /// A type of a shared schema.
    #[must_use]
    pub const fn new(schema: Arc<Schema>, type_ref: TypeRef) -> Self {
        Self { schema, type_ref }
    }

    /// The type of kinds that nothing is known of: maps are merged, lists are atomic.
    #[must_use]
    pub fn deduced() -> Self {
        Self {
            schema: Schema::deduced(),
            type_ref: DEDUCED,
        }
    }

    /// The type of a built-in kind, or none if the schema doesn't have it. `api_version` is as in an
    /// object: `v1`, `apps/v1`.
    #[must_use]
    pub fn of_kind(schema: &Arc<Schema>, api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        schema
            .kind(group, version, kind)
            .map(|type_ref| Self::new(Arc::clone(schema), type_ref))
    }
}

/// The two types that stand for what a schema leaves open.
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
