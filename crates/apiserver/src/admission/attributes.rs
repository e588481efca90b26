//! One request as admission sees it.

use serde_json::Value;

use crate::catalog::Resource;
use crate::registry::{ObjectExt, Operation};

/// What a request does to the object, which is not always its HTTP verb: an apply creates or updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Create,
    Update,
    Delete,
}

/// One request that is to be admitted, without the object that it brings: that one changes on the way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a> {
    pub(crate) op: &'a Operation,
    pub(crate) action: Action,
    /// The object's name; empty as long as it is still to be generated.
    pub(crate) name: &'a str,
    /// The stored object, unless it is created.
    pub(crate) old: Option<&'a Value>,
}

impl<'a> Attributes<'a> {
    /// A request that creates an object.
    pub(crate) fn create(op: &'a Operation, name: &'a str) -> Self {
        Self {
            op,
            action: Action::Create,
            name,
            old: None,
        }
    }

    /// A request that changes an object.
    pub(crate) fn update(op: &'a Operation, old: &'a Value) -> Self {
        Self {
            op,
            action: Action::Update,
            name: old.name(),
            old: Some(old),
        }
    }

    /// A request that deletes an object.
    pub(crate) fn delete(op: &'a Operation, old: &'a Value) -> Self {
        Self {
            op,
            action: Action::Delete,
            name: old.name(),
            old: Some(old),
        }
    }

    pub(crate) fn resource(&self) -> &'a Resource {
        &self.op.resource
    }

    /// Whether it is about objects of this group and resource itself, not about a subresource.
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.op.subresource.is_none() && self.is_part_of(group, plural)
    }

    /// Whether it is about objects of this group and resource, or a subresource of them.
    pub(crate) fn is_part_of(&self, group: &str, plural: &str) -> bool {
        self.op.resource.group == group && self.op.resource.plural == plural
    }
}
