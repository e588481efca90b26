//! The subresources of pods that are not a view of the pod itself: eviction, binding, and connections.

use http::{Response, StatusCode};
use serde_json::{Value, json};
use tenure_kinds::kind::Action;

use super::object::{body_format, record_object};
use super::verbs::ObjectRequest;
use crate::http::query::Query;
use crate::http::{ApiError, Body, FieldError, body, respond};
use crate::operation::Operation;
use crate::registry::{Connection, ObjectExt, decode_object};

pub(super) async fn serve(
    request: &ObjectRequest,
    op: &Operation,
    action: Action,
    name: &str,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let registry = &request.registry;
    match action {
        Action::Bind => {
            let binding = decode_object(op, body, body_format(&request.headers)?)?;
            record_object(op, &binding);
            let name = if name.is_empty() { binding.name() } else { name };
            registry.bind(op, name, &binding).await?;
            Ok(respond_success())
        }
        Action::Evict => {
            let eviction = decode_object(op, body, body_format(&request.headers)?)?;
            record_object(op, &eviction);
            registry.evict(op, name, &eviction).await?;
            Ok(respond_success())
        }
        Action::Connect { needs_container } => connect(request, op, name, needs_container, false).await,
        Action::ReadLog => {
            check_log_options(&request.query, name)?;
            connect(request, op, name, true, true).await
        }
    }
}

/// Answers a request for a connection to a running pod, or for its log.
async fn connect(
    request: &ObjectRequest,
    op: &Operation,
    name: &str,
    needs_container: bool,
    log: bool,
) -> Result<Response<Body>, ApiError> {
    let wanted = Connection {
        container: request.query.get("container").unwrap_or_default(),
        needs_container,
        log,
    };
    match request.registry.connect(op, name, &wanted).await? {
        Some(error) => Err(error),
        None => {
            let mut response = Response::new(body::complete_body(""));
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
    }
}

/// Returns the answer to a successful request without a resulting object.
fn respond_success() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    respond::with_value(StatusCode::CREATED, &status)
}

/// Refuses invalid numbers in a log's options.
fn check_log_options(query: &Query, name: &str) -> Result<(), ApiError> {
    let mut faults = Vec::new();
    for (field, least) in [("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)] {
        if let Some(number) = query.parse_number(field)?.filter(|number| *number < least) {
            let why = if least == 0 {
                "must be greater than or equal to 0"
            } else {
                "must be greater than 0"
            };
            faults.push(FieldError::invalid(field, Value::from(number), why));
        }
    }
    if query.get("sinceSeconds").is_some() && query.get("sinceTime").is_some() {
        faults.push(FieldError::forbidden(
            "",
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ));
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid("", "PodLogOptions", name, &faults))
    }
}
