//! The field manager of one kind and subresource. The API server calls it for every write.
//!
//! The field manager does not default, validate or store objects. `update` takes the object as it is about to be stored. After `apply`, the
//! caller defaults and validates the object, and stores it if something changed.

use std::sync::Arc;

use serde_json::Value;

use crate::conflict::ApplyError;
use crate::converter::{Convert, SameShape};
use crate::json;
use crate::managed::{managed_fields, remove_managed_fields};
use crate::reset::ResetFields;
use crate::schema::Typing;
use crate::timestamp::Timestamp;

mod chain;
mod last_applied;

/// The result of an apply to the live object.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// No value and no owner has changed. The live object is the result, and need not be written.
    Unchanged,
    /// The live object with other managedFields. Defaulting is not necessary, because no other field changed.
    OwnersChanged(Value),
    /// The changed object, with its managedFields. The caller must default the object and pass it through [`keep_times_if_otherwise_equal`]
    /// before comparing it with the stored object.
    Changed(Value),
}

impl Applied {
    /// Returns the resulting object; the live object if nothing has changed.
    #[must_use]
    pub fn into_object(self, live: Option<&Value>) -> Value {
        match self {
            Self::Changed(object) | Self::OwnersChanged(object) => object,
            Self::Unchanged => live.cloned().unwrap_or(Value::Null),
        }
    }
}

/// The reason why the owners after an update can't be determined. Kubernetes then stores the object without
/// managedFields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to update managedFields: {0}")]
pub struct UpdateError(pub(crate) String);

/// Keeps the managedFields of the objects of one kind, through its main resource or one subresource.
/// Cheap to build and to clone; holds no state of any object.
#[derive(Clone)]
pub struct FieldManager {
    pub(crate) typing: Typing,
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) subresource: String,
    pub(crate) reset_fields: Vec<(String, ResetFields)>,
    pub(crate) converter: Arc<dyn Convert>,
    pub(crate) custom_resource: bool,
}

impl FieldManager {
    /// Creates the manager of the main resource of `kind` in `api_version` (`v1`, `apps/v1`), which is of this
    /// type. Other versions are unknown to it until [`FieldManager::with_converter`] brings them.
    #[must_use]
    pub fn new(typing: Typing, api_version: &str, kind: &str) -> Self {
        let only = SameShape::new(vec![(api_version.to_owned(), typing.clone())]);
        Self {
            typing,
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            subresource: String::new(),
            reset_fields: Vec::new(),
            converter: Arc::new(only),
            custom_resource: false,
        }
    }

    /// Sets a subresource that shows the whole object, such as `status`. (`scale` shows another object: see [`crate::scale`].)
    #[must_use]
    pub fn with_subresource(mut self, subresource: &str) -> Self {
        subresource.clone_into(&mut self.subresource);
        self
    }

    /// Sets the fields that this endpoint resets before it stores an object, in the endpoint's own version. A write through this endpoint
    /// gives no manager ownership of these fields. Call [`FieldManager::with_reset_fields_of`] for other versions.
    #[must_use]
    pub fn with_reset_fields(self, fields: ResetFields) -> Self {
        let api_version = self.api_version.clone();
        self.with_reset_fields_of(&api_version, fields)
    }

    /// Sets the fields that this endpoint resets, as paths of the version `api_version`.
    #[must_use]
    pub fn with_reset_fields_of(mut self, api_version: &str, fields: ResetFields) -> Self {
        self.reset_fields.retain(|(version, _)| version != api_version);
        self.reset_fields.push((api_version.to_owned(), fields));
        self
    }

    /// Sets the converter for the other versions of the kind.
    #[must_use]
    pub fn with_converter(mut self, converter: Arc<dyn Convert>) -> Self {
        self.converter = converter;
        self
    }

    /// Marks the kind as a custom resource. An empty managedFields list then resets nothing.
    #[must_use]
    pub fn for_custom_resource(mut self) -> Self {
        self.custom_resource = true;
        self
    }

    /// Computes managedFields after a create (`live` is `None`), replace or patch, and returns `new` with them. `manager` is the request's
    /// `fieldManager`, or its user agent up to the first `/`.
    ///
    /// `new` is the object as the request makes it: decoded, patched and defaulted, in this manager's version. It still has the
    /// managedFields that the client sent, or for a patch, those of the live object. `live` is in this manager's version too.
    ///
    /// Call this function before the server changes the object: mutating admission, allocated addresses, a reset status. No manager owns
    /// such changes.
    ///
    /// The function never fails. If the owners can't be determined, the returned object has no managedFields, and Kubernetes also stores it
    /// so. [`FieldManager::try_update`] returns the reason.
    #[must_use]
    pub fn update(&self, live: Option<&Value>, mut new: Value, manager: &str, now: Timestamp) -> Value {
        match self.managed_after_update(live, &mut new, manager, now) {
            Ok(managed) => managed.write_to(&mut new),
            Err(_) => remove_managed_fields(&mut new),
        }
        new
    }

    /// Works like [`FieldManager::update`], but returns an error if the owners can't be determined.
    ///
    /// # Errors
    /// If an object doesn't fit the schema, or a conversion fails.
    pub fn try_update(
        &self,
        live: Option<&Value>,
        mut new: Value,
        manager: &str,
        now: Timestamp,
    ) -> Result<Value, UpdateError> {
        self.managed_after_update(live, &mut new, manager, now)?
            .write_to(&mut new);
        Ok(new)
    }

    /// Merges the configuration that `manager` applies into the live object (in this manager's version), or creates an object without one.
    /// A field that the manager applied before and leaves out now is removed, unless another manager owns it. `force` takes fields from
    /// managers that are in conflict.
    ///
    /// # Errors
    /// [`ApplyError`], with the message for the Status.
    pub fn apply(
        &self,
        live: Option<&Value>,
        config: &Value,
        manager: &str,
        force: bool,
        now: Timestamp,
    ) -> Result<Applied, ApplyError> {
        self.apply_chain(live, config, manager, force, now)
    }
}

/// Gives `new` the managedFields of `live` if the two objects are equal except for times in managedFields. Call it right before storing,
/// after defaulting and admission. A request that changes only times must not cause a write.
pub fn keep_times_if_otherwise_equal(live: &Value, new: &mut Value) {
    let entries = |object: &Value| {
        managed_fields(object)
            .and_then(Value::as_array)
            .filter(|entries| !entries.is_empty())
            .cloned()
    };
    let (Some(live_entries), Some(new_entries)) = (entries(live), entries(new)) else {
        return;
    };
    if live_entries == new_entries || live_entries.len() != new_entries.len() {
        return;
    }
    let equal_but_for_times = live_entries.iter().zip(&new_entries).all(|(live, new)| {
        let (Some(live), Some(new)) = (live.as_object(), new.as_object()) else {
            return false;
        };
        let without_time = |(name, _): &(&String, &Value)| *name != "time";
        live.iter().filter(without_time).eq(new.iter().filter(without_time))
    });
    if equal_but_for_times
        && equal_but_for_managed_fields(live, new)
        && let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("managedFields".to_owned(), Value::Array(live_entries));
    }
}

fn equal_but_for_managed_fields(left: &Value, right: &Value) -> bool {
    let (Some(left), Some(right)) = (left.as_object(), right.as_object()) else {
        return false;
    };
    let metadata_equal = |left: &Value, right: &Value| match (left.as_object(), right.as_object()) {
        (Some(left), Some(right)) => {
            let others = |(name, _): &(&String, &Value)| *name != "managedFields";
            left.iter().filter(others).eq(right.iter().filter(others))
        }
        _ => left == right,
    };
    left.len() == right.len()
        && left.iter().zip(right).all(|((left_name, left), (right_name, right))| {
            left_name == right_name
                && if left_name == "metadata" {
                    metadata_equal(left, right)
                } else {
                    json::equal_values(left, right)
                }
        })
}
