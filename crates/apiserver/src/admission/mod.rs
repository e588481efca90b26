//! The rules about a write that need other objects or the caller: namespaces that are missing or going, and rights
//! that nobody may give away without holding them.

mod escalation;
mod namespace_lifecycle;
mod unenforced;

use serde_json::Value;

use crate::catalog::Origin;
use crate::http::ApiError;
use crate::registry::{ObjectExt, Operation, Registry, View};

/// Admits an object that is about to be created.
pub(crate) fn admit_create(
    registry: &Registry,
    op: &Operation,
    view: &View,
    object: &mut Value,
) -> Result<(), ApiError> {
    namespace_lifecycle::on_create(op, view, object.name())?;
    unenforced::on_create(op, object.name())?;
    if let Origin::Custom(custom) = &op.resource.origin
        && custom.terminating
    {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(ApiError::new(405, "MethodNotAllowed", why));
    }
    // The URL of a create names no object, and rights on single names don't reach it.
    escalation::check(registry.rights(), op, "", object, None)
}

/// Admits an object that is about to replace `live`.
pub(crate) fn admit_update(
    registry: &Registry,
    op: &Operation,
    _view: &View,
    live: &Value,
    new: &mut Value,
) -> Result<(), ApiError> {
    escalation::check(registry.rights(), op, live.name(), new, Some(live))
}

/// Admits a deletion.
pub(crate) fn admit_delete(_registry: &Registry, op: &Operation, live: &Value) -> Result<(), ApiError> {
    namespace_lifecycle::on_delete(op, live.name())
}
