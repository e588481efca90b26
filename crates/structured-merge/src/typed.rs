//! JSON values seen through a type: checking them, and telling which fields they have, in what two of
//! them differ, what comes of merging them, and what is left without some fields.
//!
//! Refuses to know who owns what.

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

/// Whether the lists that are sets or maps may have several items of one key. What is stored may,
/// what is applied may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// They may.
    Allowed,
    /// They may not.
    Refused,
}

/// One place in which a value doesn't fit its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationError {
    /// The place, `.spec.replicas`; empty for the root.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

/// All the places in which a value doesn't fit its type; at least one.
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

/// In what two values of a type differ. No field is in two of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// What only the first has.
    pub removed: FieldSet,
    /// What both have with other values; for atomic lists and maps the whole.
    pub modified: FieldSet,
    /// What only the second has.
    pub added: FieldSet,
}

impl Comparison {
    /// Whether the values are the same.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Every field in which they differ.
    #[must_use]
    pub fn changed(&self) -> FieldSet {
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

    /// The value.
    #[must_use]
    pub const fn value(&self) -> &'a Value {
        self.value
    }

    /// The fields that the value has, as whoever applies it would own them: leaves, and the items of
    /// lists and the keys of maps that hold them, but not the structs.
    #[must_use]
    pub fn field_set(&self) -> FieldSet {
        field_set::field_set(&self.typing.schema, self.typing.type_ref, self.value)
    }

    /// In what `new` differs from this value.
    #[must_use]
    pub fn compare(&self, new: &TypedObject<'_>) -> Comparison {
        compare::compare(&self.typing.schema, self.typing.type_ref, self.value, new.value)
    }

    /// This value with all that `config` gives; nothing is removed.
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

    /// This value without the fields of a set, and without what is below them.
    #[must_use]
    pub fn remove(&self, fields: &FieldSet) -> Value {
        remove::remove(&self.typing.schema, self.typing.type_ref, self.value, fields)
    }

    /// Only the fields of a set, with the items and structs that hold them; with `with_keys` also the
    /// key fields of the list-map items on the way.
    #[must_use]
    pub fn extract(&self, fields: &FieldSet, with_keys: bool) -> Value {
        remove::extract(&self.typing.schema, self.typing.type_ref, self.value, fields, with_keys)
    }

    /// `set` adjusted to a schema that has changed since it was written: of a list or map that has
    /// become atomic the whole is owned. None if nothing has to change.
    #[must_use]
    pub fn reconcile(&self, set: &FieldSet) -> Option<FieldSet> {
        reconcile::reconcile(&self.typing.schema, self.typing.type_ref, set)
    }

    pub(crate) fn with_named_fields(&self, set: &FieldSet) -> FieldSet {
        reconcile::with_named_fields(&self.typing.schema, Some(self.typing.type_ref), set)
    }
}

/// Which of the things that a type allows a value is.
#[derive(Clone, Copy)]
enum Shape<'s> {
    Map(&'s MapType),
    Scalar(Scalar),
    List(&'s ListType),
    /// The type allows nothing; a schema can't say that by intent.
    Nothing,
}

/// How much of a type a value settles.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settled {
    Map,
    Scalar,
    List,
    /// A null, or a value of a kind that the type doesn't allow: it may still be anything.
    Open,
}

/// The shape that `value` has by `built`. Null and misfits take the first that the type allows of map,
/// scalar and list.
fn shape<'s>(built: &'s Type, value: &Value) -> (Shape<'s>, Settled) {
    let settled = match value {
        Value::Object(_) if built.map.is_some() => Settled::Map,
        Value::Array(_) if built.list.is_some() => Settled::List,
        Value::Bool(_) | Value::Number(_) | Value::String(_) if built.scalar.is_some() => Settled::Scalar,
        _ => match (&built.map, built.scalar, &built.list) {
            // A type that allows one thing only is settled whatever the value is.
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

/// The type of what a map holds at `name`; nothing declared reads as the type that allows nothing.
fn type_at<'s>(schema: &'s Schema, map: &MapType, name: &str) -> &'s Type {
    static NOTHING: Type = Type {
        scalar: None,
        list: None,
        map: None,
    };
    map.type_of(name).map_or(&NOTHING, |type_ref| schema.get(type_ref))
}
