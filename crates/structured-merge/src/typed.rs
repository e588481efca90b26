//! JSON values with a type: checks, the fields of a value, the difference of two values, merges, and the removal of fields. Typed values
//! are independent of managers.

mod compare;
mod elements;
mod field_set;
mod list_order;
mod merge;
mod reconcile;
mod remove;
mod validate;

use std::fmt;

use serde_json::Value;

use crate::schema::{ListType, MapType, Scalar, Schema, Type, Typing};
use crate::set::FieldSet;

pub(crate) use merge::Outcome;

/// Whether lists that are sets or maps may have several items with one key. Stored lists may; applied lists may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// Several items are allowed.
    Allowed,
    /// Several items are an error.
    Refused,
}

/// A place at which a value doesn't fit its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationError {
    /// The place, `.spec.replicas`; empty for the root.
    pub path: String,
    /// The error at this place.
    pub message: String,
}

/// Every place at which a value doesn't fit its type; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationReport(pub Vec<ValidationError>);

impl fmt::Display for ValidationReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = |formatter: &mut fmt::Formatter<'_>, error: &ValidationError| match error.path.as_str() {
            "" => formatter.write_str(&error.message),
            path => write!(formatter, "{path}: {}", error.message),
        };
        if let [only] = self.0.as_slice() {
            return write(formatter, only);
        }
        formatter.write_str("errors:")?;
        for error in &self.0 {
            formatter.write_str("\n  ")?;
            write(formatter, error)?;
        }
        Ok(())
    }
}

impl std::error::Error for ValidationReport {}

/// The difference of two values of a type. The three sets are disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Fields that only the first value has.
    pub removed: FieldSet,
    /// Fields that both values have, with different content. An atomic list or map counts as a whole.
    pub modified: FieldSet,
    /// Fields that only the second value has.
    pub added: FieldSet,
}

impl Comparison {
    /// Returns whether the values are equal.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Returns every field in which the values differ.
    #[must_use]
    pub fn changed_fields(&self) -> FieldSet {
        self.modified.union(&self.added).union(&self.removed)
    }
}

/// A value that fits a type.
#[derive(Clone, Copy, Debug)]
pub struct TypedObject<'a> {
    pub(crate) value: &'a Value,
    pub(crate) typing: &'a Typing,
}

impl<'a> TypedObject<'a> {
    /// Checks that a value fits a type.
    ///
    /// # Errors
    /// All the places in which it doesn't.
    pub fn new(value: &'a Value, typing: &'a Typing, duplicates: Duplicates) -> Result<Self, ValidationReport> {
        validate::validate(&typing.schema, typing.type_ref, value, duplicates)?;
        Ok(Self { value, typing })
    }

    /// Returns the value.
    #[must_use]
    pub const fn value(&self) -> &'a Value {
        self.value
    }

    /// Returns the fields that a manager owns after applying this value: leaves, and the list items and map keys that contain them, but not
    /// the structs.
    #[must_use]
    pub fn field_set(&self) -> FieldSet {
        field_set::field_set(&self.typing.schema, self.typing.type_ref, self.value)
    }

    /// Returns the difference between this value and `new`.
    #[must_use]
    pub fn compare(&self, new: &TypedObject<'_>) -> Comparison {
        compare::compare_objects(&self.typing.schema, self.typing.type_ref, self.value, new.value)
    }

    /// Returns this value with all fields that `config` gives. The merge removes nothing.
    #[must_use]
    pub fn merge(&self, config: &TypedObject<'_>) -> Value {
        match self.merge_outcome(config) {
            Outcome::Same => self.value.clone(),
            Outcome::Changed(value) => value,
        }
    }

    pub(crate) fn merge_outcome(&self, config: &TypedObject<'_>) -> Outcome {
        merge::merge(&self.typing.schema, self.typing.type_ref, self.value, config.value)
    }

    /// Returns this value without the fields of a set and without everything below them.
    #[must_use]
    pub fn remove(&self, fields: &FieldSet) -> Value {
        remove::remove(&self.typing.schema, self.typing.type_ref, self.value, fields)
    }

    /// Returns only the fields of a set, with the items and structs that hold them; with `with_keys` also the
    /// key fields of the list-map items on the way.
    #[must_use]
    pub fn extract(&self, fields: &FieldSet, with_keys: bool) -> Value {
        remove::extract_fields(&self.typing.schema, self.typing.type_ref, self.value, fields, with_keys)
    }

    /// Adjusts `set` to a schema that has changed since the set was written. Members inside a list or map that has become atomic become
    /// ownership of the whole list or map. `None` if nothing changes.
    #[must_use]
    pub fn reconcile(&self, set: &FieldSet) -> Option<FieldSet> {
        reconcile::reconcile_set(&self.typing.schema, self.typing.type_ref, set)
    }

    pub(crate) fn with_named_fields(&self, set: &FieldSet) -> FieldSet {
        reconcile::with_named_fields(&self.typing.schema, Some(self.typing.type_ref), set)
    }
}

/// The kind of a value, among the kinds that its type allows.
#[derive(Clone, Copy)]
enum Shape<'s> {
    Map(&'s MapType),
    Scalar(Scalar),
    List(&'s ListType),
    /// The type allows nothing. A schema can't express this on purpose.
    Nothing,
}

/// The kind of a value, if the value decides it among the kinds that its type allows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settled {
    Map,
    Scalar,
    List,
    /// A null, or a value of a kind that the type doesn't allow: it may still be anything.
    Open,
}

/// Returns the shape of `value` by `built`. Null and values of a wrong type take the first that the type allows of map,
/// scalar and list.
fn find_shape<'s>(built: &'s Type, value: &Value) -> (Shape<'s>, Settled) {
    let settled = match value {
        Value::Object(_) if built.map.is_some() => Settled::Map,
        Value::Array(_) if built.list.is_some() => Settled::List,
        Value::Bool(_) | Value::Number(_) | Value::String(_) if built.scalar.is_some() => Settled::Scalar,
        _ => match (&built.map, built.scalar, &built.list) {
            // A type that allows only one kind decides it for every value.
            (Some(_), None, None) => Settled::Map,
            (None, Some(_), None) => Settled::Scalar,
            (None, None, Some(_)) => Settled::List,
            _ => Settled::Open,
        },
    };
    let map = built.map.as_ref().map(Shape::Map);
    let scalar = built.scalar.map(Shape::Scalar);
    let list = built.list.as_ref().map(Shape::List);
    let shape = match settled {
        Settled::Map => map,
        Settled::Scalar => scalar,
        Settled::List => list,
        Settled::Open => map.or(scalar).or(list),
    };
    (shape.unwrap_or(Shape::Nothing), settled)
}

/// Returns the type of a map's value at `name`. An undeclared name has the type that allows nothing.
fn type_at<'s>(schema: &'s Schema, map: &MapType, name: &str) -> &'s Type {
    static NOTHING: Type = Type {
        scalar: None,
        list: None,
        map: None,
    };
    map.type_of(name).map_or(&NOTHING, |type_ref| schema.get(type_ref))
}
