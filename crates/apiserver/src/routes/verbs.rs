//! Requests about objects, by verb.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use tenure_auth::identity::UserInfo;
use tenure_kinds::schema::go_quoted;
use tenure_kinds::schema::validation::names;
use tokio_util::sync::CancellationToken;

use super::render::{Form, render_object};
use super::{lists, object, options, pods, watch};
use crate::audit::AuditRecord;
use crate::byte_ledger::Account;
use crate::catalog::Resource;
use crate::contents::is_verbatim;
use crate::gate::Gate;
use crate::http::negotiate::{UNTYPED, negotiate_view};
use crate::http::query::Query;
use crate::http::{ApiError, Body, RequestInfo, respond};
use crate::long_requests::RequestParts;
use crate::long_work::StepLimiter;
use crate::operation::{ExplicitOptions, Operation, Warnings};
use crate::registry::{Answer, Outcome, PatchKind, Registry, internal_package};

/// An authorized request about objects, without its body.
pub(crate) struct ObjectRequest {
    pub(crate) registry: Registry,
    pub(crate) gate: Arc<Gate>,
    pub(crate) info: RequestInfo,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) user: UserInfo,
    pub(crate) shutdown: CancellationToken,
    /// Texts for the Warning headers of the answer, which may be an object or an error.
    pub(crate) warnings: Warnings,
    /// The audit record of the request.
    pub(crate) trail: AuditRecord,
    /// The account for the answer.
    pub(crate) account: Arc<Account>,
    /// The permits to compute pieces of an answer during its sending; `None` for a user that is not counted.
    pub(crate) turns: Option<StepLimiter>,
}

impl ObjectRequest {
    /// Returns the parts whose lengths the client chose.
    pub(crate) fn parts<'a>(&'a self, body: &'a [u8]) -> RequestParts<'a> {
        RequestParts {
            info: &self.info,
            query: &self.query,
            headers: &self.headers,
            body,
        }
    }
}

/// Answers a request about objects. `body` is complete.
pub(crate) async fn serve(request: &ObjectRequest, body: Bytes) -> Result<Response<Body>, ApiError> {
    let ObjectRequest { registry, info, .. } = request;
    let catalog = registry.catalog();
    let Some(resource) = catalog.find(&info.group, &info.version, &info.resource) else {
        return if catalog.has_builtin_group(&info.group) {
            Err(ApiError::no_such_resource())
        } else {
            Ok(respond::not_found())
        };
    };
    if !info.rest.is_empty() {
        return Err(ApiError::no_such_resource());
    }
    serve_known(request, resource, body).await
}

/// Answers a request about objects of a served resource.
async fn serve_known(
    request: &ObjectRequest,
    resource: &Arc<Resource>,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let ObjectRequest {
        info, query, headers, ..
    } = request;
    let subresource = info.subresource.as_deref();
    if subresource.is_some_and(|name| resource.subresource(name).is_none()) {
        return Err(match &info.name {
            // The definition is known, so a missing resource part is answered like a missing object.
            Some(name) if resource.is_custom() => ApiError::not_found(resource, name),
            _ => ApiError::no_such_resource(),
        });
    }
    request.warnings.lock().extend(resource.deprecation());
    // A request about a namespaced resource needs a namespace in its URL, except a list or watch of all namespaces.
    let everywhere = matches!(info.verb.as_str(), "list" | "watch");
    if resource.namespaced && info.namespace.is_none() && !everywhere && resource.allows("get", None) {
        return Err(if info.name.is_some() {
            ApiError::no_such_resource()
        } else {
            ApiError::method_not_allowed()
        });
    }
    if !resource.namespaced && info.namespace.is_some() && info.resource != "namespaces" {
        return Err(ApiError::no_such_resource());
    }
    let named = ["get", "update", "patch", "delete"];
    if info.name.is_some()
        && !everywhere
        && subresource.is_none()
        && !named.iter().any(|verb| resource.allows(verb, None))
    {
        return Err(ApiError::no_such_resource());
    }
    // Updates and patches need a name.
    let unnamed = info.name.is_none() && matches!(info.verb.as_str(), "update" | "patch");
    if unnamed || info.is_head || !resource.allows(&info.verb, subresource) {
        return Err(if unnamed && resource.is_custom() {
            ApiError::bad_request("name must be provided")
        } else if resource.is_custom() {
            ApiError::not_supported(resource, &info.verb)
        } else {
            ApiError::method_not_allowed()
        });
    }
    let name = info.name.as_deref().unwrap_or_default();
    if let Some(why) = names::path_segment(name, false).first()
        && !everywhere
    {
        let name = go_quoted(name);
        return Err(ApiError::bad_request(format!("Name parameter invalid: {name}: {why}")));
    }
    let kind = match info.verb.as_str() {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        _ => "PatchOptions",
    };
    // A deletion has its options in its body; options in the query count only if the body is empty.
    let writes = matches!(info.verb.as_str(), "create" | "update" | "patch");
    if writes {
        let apply = match info.verb.as_str() {
            "patch" => Some(object::patch_kind(resource, headers)? == PatchKind::Apply),
            _ => None,
        };
        options::check(query, kind, apply)?;
    }
    let (view, unsupported) = negotiate_view(headers, &info.verb)?;
    let form = Form::new(view, query)?;
    let reads = matches!(info.verb.as_str(), "get" | "list" | "watch");
    let stored = if reads && form.is_version_independent() {
        request.registry.catalog().find_stored(resource).cloned()
    } else {
        None
    };
    let op = Operation {
        namespace: if resource.namespaced {
            info.namespace.clone()
        } else {
            None
        },
        subresource: info.subresource.clone(),
        user: request.user.clone(),
        dry_run: writes && options::dry_run(query),
        field_manager: options::field_manager(query, headers),
        field_validation: options::field_validation(query),
        sent: ExplicitOptions {
            field_manager: query.get("fieldManager").is_some(),
            field_validation: query.get("fieldValidation").is_some(),
        },
        warnings: request.warnings.clone(),
        trail: request.trail.clone(),
        resource: stored.unwrap_or_else(|| resource.clone()),
        conversions: Arc::default(),
    };
    let answer = dispatch_verb(request, &op, form, body).await?;
    match unsupported {
        Some(unsupported) => Err(unsupported.refusal(&go_type(&op))),
        None => Ok(answer),
    }
}

/// Returns the Go type with which a resource or its subresource answers.
fn go_type(op: &Operation) -> String {
    if op.resource.is_custom() {
        return UNTYPED.to_owned();
    }
    let (api_version, kind) = op.resource.taken_by(op.subresource.as_deref());
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    format!("*{}.{kind}", internal_package(group))
}

async fn dispatch_verb(
    request: &ObjectRequest,
    op: &Operation,
    form: Form,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let ObjectRequest {
        registry,
        info,
        query,
        headers,
        ..
    } = request;
    if let Some(action) = (op.resource.behavior.action)(op.subresource.as_deref()) {
        return pods::serve(request, op, action, info.name.as_deref().unwrap_or_default(), &body).await;
    }
    match (info.verb.as_str(), info.name.as_deref()) {
        ("list", _) => {
            let op = Arc::new(op.clone());
            let mut options = options::list(query, &op.resource)?;
            options.turns.clone_from(&request.turns);
            let page = registry.list(&op, &options).await?;
            lists::respond_with_list(&op, form, request, page).await
        }
        ("watch", _) => {
            // A name in the URL restricts a watch; a name from a field selector is in the selector already.
            let mut options = options::watch(query, &op.resource, info.name.as_deref())?;
            options.turns.clone_from(&request.turns);
            let stream = registry.watch(op.clone(), options, request.shutdown.clone()).await?;
            Ok(watch::respond_with_watch(registry.clone(), form, stream))
        }
        ("get", Some(name)) => object::get(request, op, form, name).await,
        ("create", None) => object::create(request, op, form, &body).await,
        ("create", Some(name)) => object::create_subresource(request, op, name, &body).await,
        ("update", Some(name)) => object::update(request, op, form, name, &body).await,
        ("patch", Some(name)) => object::serve_patch(request, op, form, name, &body).await,
        ("delete", Some(name)) => object::delete(request, op, form, name, &body).await,
        ("deletecollection", _) => {
            let options = object::delete_options(query, headers, &body, &op.trail)?;
            let list = options::list(query, &op.resource)?;
            let op = Arc::new(op.clone());
            let deleted = registry.delete_collection(&op, &list, &options).await?;
            lists::respond_with_list(&op, Form::PLAIN, request, deleted).await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Returns the answer to a write.
pub(crate) async fn respond_to_write(
    request: &ObjectRequest,
    op: &Operation,
    form: Form,
    outcome: Outcome,
) -> Result<Response<Body>, ApiError> {
    let status = if outcome.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    if let Answer::Stored(entry) = &outcome.answer
        && form.is_plain()
        && is_verbatim(&op.resource)
    {
        return Ok(respond::with_bytes(status, respond::JSON, entry.bytes.clone()));
    }
    let object = request.registry.present_answer(op, outcome.answer).await?;
    Ok(render_object(&request.registry, op, form, status, object))
}
