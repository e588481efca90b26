//! The object of a request as webhooks and policies see it: in their version, and as a Scale for the scale
//! subresource.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::Attributes;
use crate::catalog::Resource;
use crate::contents::Contents;
use crate::http::ApiError;

/// Returns an object of the request in the form for this resource.
pub(super) async fn convert_for_review<'a>(
    contents: &Contents,
    attributes: &Attributes<'_>,
    resource: &Resource,
    object: &'a Value,
) -> Result<Cow<'a, Value>, ApiError> {
    if attributes.subresource() == "scale" {
        return Ok(Cow::Owned(attributes.resource().scale_of(object)));
    }
    let own = attributes.resource();
    if own.group == resource.group && own.version == resource.version {
        return Ok(Cow::Borrowed(object));
    }
    let converted = contents.convert(object.clone(), resource).await;
    Ok(Cow::Owned(converted.map_err(|failed| ApiError::internal(failed.0))?))
}

/// Returns the request's object after a webhook changed the [`convert_for_review`] form.
///
/// # Errors
/// If the object can't be converted back to the request's version.
pub(super) async fn convert_back(
    contents: &Contents,
    attributes: &Attributes<'_>,
    resource: &Resource,
    object: &Value,
    changed: Value,
) -> Result<Value, ApiError> {
    if attributes.subresource() == "scale" {
        let mut object = object.clone();
        let replicas = changed.pointer("/spec/replicas").cloned().unwrap_or_else(|| json!(0));
        attributes.resource().set_replicas(&mut object, replicas);
        return Ok(object);
    }
    let own = attributes.resource();
    if own.group == resource.group && own.version == resource.version {
        return Ok(changed);
    }
    let converted = contents.convert(changed, own).await;
    converted.map_err(|failed| ApiError::internal(failed.0))
}

/// Returns the request without its objects, as reviews and expressions describe it: shown in the version of
/// `shown_as`, and matched as one about `resource`.
pub(super) fn describe_request(attributes: &Attributes<'_>, shown_as: &Resource, resource: &Resource) -> Value {
    let resource_of = |resource: &Resource| json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    let kind_of = |resource: &Resource| {
        let (group, version, kind) = group_version_kind(attributes, resource);
        json!({"group": group, "version": version, "kind": kind})
    };
    let own = attributes.resource();
    let mut request = Map::new();
    for (key, value) in [
        ("kind", kind_of(shown_as)),
        ("resource", resource_of(resource)),
        ("requestKind", kind_of(own)),
        ("requestResource", resource_of(own)),
        ("operation", json!(attributes.action.as_str())),
        ("userInfo", attributes.op.user.to_value()),
        ("dryRun", json!(attributes.dry_run())),
        ("options", attributes.options()),
    ] {
        request.insert(key.to_owned(), value);
    }
    for (key, value) in [
        ("subResource", attributes.subresource()),
        ("requestSubResource", attributes.subresource()),
        ("name", attributes.name),
        ("namespace", attributes.namespace()),
    ] {
        if !value.is_empty() {
            request.insert(key.to_owned(), json!(value));
        }
    }
    Value::Object(request)
}

/// Returns group, version and kind of the [`convert_for_review`] form.
fn group_version_kind(attributes: &Attributes<'_>, resource: &Resource) -> (String, String, String) {
    match resource.subresource(attributes.subresource()) {
        Some(own) if !own.version.is_empty() => (own.group.clone(), own.version.clone(), own.kind.clone()),
        _ => (resource.group.clone(), resource.version.clone(), resource.kind.clone()),
    }
}
