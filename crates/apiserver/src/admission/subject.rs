//! The object of a request as others see it: a Scale for the scale subresource, in the version that they ask for.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::Attributes;
use crate::catalog::Resource;
use crate::http::ApiError;
use crate::registry::{Registry, convert};

/// An object of the request, as it is shown for this resource.
pub(super) fn shown<'a>(
    registry: &Registry,
    attributes: &Attributes<'_>,
    resource: &Resource,
    object: &'a Value,
) -> Result<Cow<'a, Value>, ApiError> {
    if attributes.subresource() == "scale" {
        return Ok(Cow::Owned(registry.scale_of(attributes.op, object)?));
    }
    let own = attributes.resource();
    if own.group == resource.group && own.version == resource.version {
        return Ok(Cow::Borrowed(object));
    }
    Ok(Cow::Owned(convert(object.clone(), &own.api_version(), resource)))
}

/// The object of the request after somebody changed what was [`shown`].
pub(super) fn taken_back(
    registry: &Registry,
    attributes: &Attributes<'_>,
    resource: &Resource,
    object: &Value,
    changed: Value,
) -> Value {
    if attributes.subresource() == "scale" {
        let mut object = object.clone();
        let replicas = changed.pointer("/spec/replicas").cloned().unwrap_or_else(|| json!(0));
        registry.set_replicas(attributes.op, &mut object, replicas);
        return object;
    }
    convert(changed, &resource.api_version(), attributes.resource())
}

/// Group, version and kind of what is [`shown`].
pub(super) fn kind(attributes: &Attributes<'_>, resource: &Resource) -> (String, String, String) {
    match resource.subresource(attributes.subresource()) {
        Some(own) if !own.version.is_empty() => (own.group.clone(), own.version.clone(), own.kind.clone()),
        _ => (resource.group.clone(), resource.version.clone(), resource.kind.clone()),
    }
}
