//! The rules about a write that need other objects, the caller or other programs, in Kubernetes' order.
//!
//! A request goes through two phases. [`mutate`] may change the object, before it is made complete and checked;
//! [`validate`] sees the object as it will be stored, and may only refuse. Both run outside of the store's locks, and
//! again whenever a write was overtaken by another. What a mutation changed is owned by nobody, as in Kubernetes:
//! owners are settled before it.

mod attributes;
mod escalation;
mod namespace_lifecycle;
mod unenforced;

use serde_json::Value;

pub(crate) use attributes::{Action, Attributes};

use crate::catalog::Origin;
use crate::http::ApiError;
use crate::registry::Registry;

/// What a request holds while it is written: it is taken from nobody else until this is dropped.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Charge {}

/// The object as it goes on, changed by who may change it.
pub(crate) async fn mutate(registry: &Registry, attributes: &Attributes<'_>, object: Value) -> Result<Value, ApiError> {
    if attributes.action == Action::Create {
        namespace_lifecycle::on_create(attributes, &registry.view())?;
        unenforced::on_create(attributes.op, attributes.name)?;
        if let Origin::Custom(custom) = &attributes.resource().origin
            && custom.terminating
        {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::new(405, "MethodNotAllowed", why));
        }
    }
    escalation::check(registry.rights(), attributes, &object)?;
    Ok(object)
}

/// Whether [`validate`] asks other programs about this request, which takes long and may come back to this server.
pub(crate) fn asks_others(_registry: &Registry, _attributes: &Attributes<'_>) -> bool {
    false
}

/// Refuses an object as it would be stored, or none if one is deleted.
pub(crate) async fn validate(
    _registry: &Registry,
    _attributes: &Attributes<'_>,
    _object: Option<&Value>,
) -> Result<Charge, ApiError> {
    Ok(Charge::default())
}

/// Both phases of a deletion.
pub(crate) async fn admit_delete(registry: &Registry, attributes: &Attributes<'_>) -> Result<(), ApiError> {
    namespace_lifecycle::on_delete(attributes)?;
    let _ = registry;
    Ok(())
}
