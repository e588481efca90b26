//! The verbs on one object: bodies and answers.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};
use tenure_kinds::schema::strict::Twice;

use super::options;
use super::render::{Form, render_object};
use super::verbs::{ObjectRequest, respond_to_write};
use crate::admission::Attributes;
use crate::audit::AuditRecord;
use crate::authentication::default_lifetime;
use crate::catalog::Resource;
use crate::formats::{BodyFormat, describe_untyped, parse};
use crate::http::query::Query;
use crate::http::{ApiError, Body, respond};
use crate::kind_properties;
use crate::operation::{DeleteOptions, Operation};
use crate::registry::{Deleted, ObjectExt, Patch, PatchKind, decode_object};

const BODIES: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

fn media_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Checks whether the parameters of the Content-Type are well-formed. Their values are not used.
fn parameters_are_whole(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut parameters = value.unwrap_or_default().split(';').skip(1).map(str::trim);
    parameters.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) => {
            !name.is_empty() && (!value.starts_with('"') || (value.len() > 1 && value.ends_with('"')))
        }
        None => parameter.is_empty(),
    })
}

/// Returns the format of a body; JSON without a Content-Type.
pub(super) fn body_format(headers: &HeaderMap) -> Result<BodyFormat, ApiError> {
    if !parameters_are_whole(headers) {
        return Err(ApiError::unsupported_media_type(&BODIES));
    }
    match media_type(headers).as_str() {
        "" | "application/json" => Ok(BodyFormat::Json),
        "application/yaml" => Ok(BodyFormat::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(BodyFormat::Protobuf),
        _ => Err(ApiError::unsupported_media_type(&BODIES)),
    }
}

pub(crate) async fn get(
    request: &ObjectRequest,
    op: &Operation,
    form: Form,
    name: &str,
) -> Result<Response<Body>, ApiError> {
    let registry = &request.registry;
    let (entry, verbatim) = registry
        .get_entry(op, name, request.query.get("resourceVersion"))
        .await?;
    if op.subresource.as_deref() == Some("scale") {
        let scale = registry.shown_scale(op, &registry.present(op, &entry).await?)?;
        return Ok(respond::with_value(StatusCode::OK, &scale));
    }
    if verbatim && form.is_plain() {
        return Ok(respond::with_bytes(StatusCode::OK, respond::JSON, entry.bytes.clone()));
    }
    let object = registry.present(op, &entry).await?;
    Ok(render_object(registry, op, form, StatusCode::OK, object))
}

/// Records a sent object for the audit log, with defaults, as Kubernetes does.
pub(super) fn record_object(op: &Operation, object: &Value) {
    op.trail.record_request_object(object, || {
        let mut shown = object.clone();
        if op.subresource.as_deref().is_none_or(|name| name == "status") {
            kind_properties::set_defaults(&op.resource, &mut shown);
        }
        shown
    });
}

pub(crate) async fn create(
    request: &ObjectRequest,
    op: &Operation,
    form: Form,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let object = decode_object(op, body, body_format(&request.headers)?)?;
    record_object(op, &object);
    if let Some(review) = op.resource.behavior.review {
        let name = object.name().to_owned();
        let attributes = Attributes::create(op, &name);
        let mut object = object;
        if let Some(map) = object.as_object_mut() {
            map.remove("status");
        }
        let object = request.registry.manage_fields(op, None, object);
        let object = request.registry.admission().admit_unstored(&attributes, object).await?;
        let answer = request.gate.answer_review(&request.registry, op, review, &object)?;
        return Ok(respond::with_value(StatusCode::CREATED, &answer));
    }
    let outcome = request.registry.create(op, object).await?;
    respond_to_write(request, op, form, outcome).await
}

/// Handles a POST to the subresource `token`, and refuses one to any other.
pub(crate) async fn create_subresource(
    request: &ObjectRequest,
    op: &Operation,
    name: &str,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    if op.subresource.as_deref() != Some("token") {
        return Err(ApiError::method_not_allowed());
    }
    let mut object = decode_object(op, body, body_format(&request.headers)?)?;
    record_object(op, &object);
    default_lifetime(&mut object);
    let object = request.registry.manage_fields(op, None, object);
    let object = request
        .registry
        .admission()
        .admit_unstored(&Attributes::create(op, name), object)
        .await?;
    let answer = request.gate.issue_token(&request.registry, op, name, &object)?;
    Ok(respond::with_value(StatusCode::CREATED, &answer))
}

pub(crate) async fn update(
    request: &ObjectRequest,
    op: &Operation,
    form: Form,
    name: &str,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let object = decode_object(op, body, body_format(&request.headers)?)?;
    record_object(op, &object);
    if op.subresource.as_deref() == Some("scale") {
        let scale = request.registry.update_scale(op, name, object).await?;
        return Ok(respond::with_value(StatusCode::OK, &scale));
    }
    let outcome = request.registry.update(op, name, object).await?;
    respond_to_write(request, op, form, outcome).await
}

/// Returns the format of a patch.
pub(crate) fn patch_kind(resource: &Resource, headers: &HeaderMap) -> Result<PatchKind, ApiError> {
    Ok(match media_type(headers).as_str() {
        "application/json-patch+json" => PatchKind::Json,
        "application/merge-patch+json" => PatchKind::Merge,
        "application/strategic-merge-patch+json" if !resource.is_custom() => PatchKind::Strategic,
        "application/apply-patch+yaml" => PatchKind::Apply,
        _ if resource.is_custom() => {
            return Err(ApiError::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ]));
        }
        _ => {
            return Err(ApiError::new(
                415,
                "UnsupportedMediaType",
                "415: Unsupported Media Type",
            ));
        }
    })
}

pub(crate) async fn serve_patch(
    request: &ObjectRequest,
    op: &Operation,
    form: Form,
    name: &str,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let kind = patch_kind(&op.resource, &request.headers)?;
    let patch = Patch::read(kind, body, request.query.is_flag_set("force"))?;
    op.trail
        .record_patch(|| parse(body, BodyFormat::Yaml, Twice::Last).map_or(Value::Null, |(patch, _)| patch));
    if op.subresource.as_deref() == Some("scale") {
        let scale = request.registry.patch_scale(op, name, &patch).await?;
        return Ok(respond::with_value(StatusCode::OK, &scale));
    }
    let outcome = request.registry.patch(op, name, &patch).await?;
    respond_to_write(request, op, form, outcome).await
}

/// Returns the options of a deletion: from the body if it has one, else from the query.
pub(crate) fn delete_options(
    query: &Query,
    headers: &HeaderMap,
    body: &[u8],
    trail: &AuditRecord,
) -> Result<DeleteOptions, ApiError> {
    if body.is_empty() {
        return options::delete(query);
    }
    let (value, _) = parse(body, body_format(headers)?, Twice::Filled)?;
    check_delete_options(&value)?;
    trail.record_request_object(&Value::Null, || value.clone());
    DeleteOptions::from_value(&value)
}

/// Refuses a body of another kind.
fn check_delete_options(value: &Value) -> Result<(), ApiError> {
    if !value.is_object() && !value.is_null() {
        return Err(ApiError::bad_request(describe_untyped(value)));
    }
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if matches!(kind, "" | "DeleteOptions") {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )))
}

pub(crate) async fn delete(
    request: &ObjectRequest,
    op: &Operation,
    form: Form,
    name: &str,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let options = delete_options(&request.query, &request.headers, body, &op.trail)?;
    match request.registry.delete(op, name, &options).await? {
        Deleted::Waiting(object) => Ok(render_object(&request.registry, op, form, StatusCode::OK, object)),
        Deleted::Gone(object) if op.resource.behavior.is_answered_when_deleted => {
            Ok(render_object(&request.registry, op, form, StatusCode::OK, object))
        }
        Deleted::Gone(object) => {
            let mut details = json!({"name": name, "kind": op.resource.plural, "uid": object.uid()});
            if let Some(map) = details.as_object_mut()
                && !op.resource.group.is_empty()
            {
                map.insert("group".to_owned(), Value::from(op.resource.group.clone()));
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            Ok(respond::with_value(StatusCode::OK, &status))
        }
    }
}
