//! The patch of a mutating webhook.

use serde_json::Value;
use tenure_kinds::object::ObjectExt as _;

use super::super::{Attributes, subject};
use super::hook::Hook;
use crate::catalog::Resource;
use crate::contents::Contents;
use crate::http::ApiError;
use crate::json_patch::{self, Fault, FaultReason};
use crate::kind_properties;

/// Returns the operations of a patch.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mismatch = |value: &Value, wanted: &str| {
        let found = if value.is_object() { "object" } else { "value" };
        Err(format!(
            "json: cannot unmarshal {found} into Go value of type jsonpatch.{wanted}"
        ))
    };
    let Value::Array(operations) = value else {
        return mismatch(&value, "Patch");
    };
    match operations.iter().find(|operation| !operation.is_object()) {
        Some(odd) => mismatch(odd, "Operation"),
        None => Ok(operations),
    }
}

fn refuse_patch(fault: &Fault) -> ApiError {
    match fault.why {
        FaultReason::TestFailed => ApiError::internal(format!("testing value {} failed: test failed", fault.path)),
        _ => ApiError::internal(fault),
    }
}

/// Returns the object after a webhook's patch, with its kind's defaults.
pub(super) async fn apply(
    contents: &Contents,
    attributes: &Attributes<'_>,
    hook: &Hook,
    resource: &Resource,
    object: Option<&Value>,
    operations: &[Value],
) -> Result<Value, ApiError> {
    let Some(object) = object else {
        return Err(ApiError::internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name
        )));
    };
    let shown = subject::convert_for_review(contents, attributes, resource, object).await?;
    let changed = json_patch::apply(shown.into_owned(), operations).map_err(|fault| refuse_patch(&fault))?;
    if !changed.is_object() {
        return Err(ApiError::internal(format!(
            "admission webhook {:?} left no object",
            hook.name
        )));
    }
    let mut new = subject::convert_back(contents, attributes, resource, object, changed).await?;
    let own = attributes.resource();
    if let Some(map) = new.as_object_mut() {
        // A webhook can't change the kind of an object.
        map.insert("apiVersion".to_owned(), Value::from(own.api_version()));
        map.insert("kind".to_owned(), Value::from(own.kind.as_str()));
    }
    if attributes.subresource() == "scale" {
        return Ok(new);
    }
    let mut new = kind_properties::read(attributes.op, new)
        .map_err(|error| {
            let place = format!(
                "{} in version {:?} cannot be handled as a {}: ",
                own.kind, own.version, own.kind
            );
            ApiError::internal(error.message.strip_prefix(&place).unwrap_or(&error.message))
        })?
        .value;
    own.normalize(&mut new);
    kind_properties::set_defaults(own, &mut new);
    restore_owners(attributes, object, &mut new);
    Ok(new)
}

/// Restores the previous managedFields if the new ones are unreadable.
fn restore_owners(attributes: &Attributes<'_>, before: &Value, new: &mut Value) {
    let owners = |object: &Value| {
        object
            .metadata()
            .and_then(|metadata| metadata.get("managedFields"))
            .cloned()
    };
    let (was, is) = (owners(before), owners(new));
    if was == is || structured_merge::Managed::of_object(new).is_ok() {
        return;
    }
    attributes.op.warn(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
         admission controller; please fix your requests",
    );
    match was {
        Some(was) => new.set_meta("managedFields", was),
        None => {
            new.remove_meta("managedFields");
        }
    }
}
