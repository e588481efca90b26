//! The address of a webhook.

use serde_json::Value;

use crate::schema::validation::{get_text, is_empty_field, names};
use crate::schema::{FieldError, FieldPath};

const URL_FORM: &str = "; desired format: https://host[/path]";

/// Checks where a webhook is by its URL.
pub(crate) fn validate_url(text: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = rest
        .split('/')
        .next()
        .filter(|_| !scheme.is_empty())
        .unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let mut fault = |value: &str, why: String| errors.push(FieldError::invalid(path, value, why));
    if scheme != "https" {
        fault(scheme, format!("'https' is the only allowed URL scheme{URL_FORM}"));
    }
    if host.is_empty() {
        fault(host, format!("host must be specified{URL_FORM}"));
    }
    if let Some(user) = user {
        fault(user, "user information is not permitted in the URL".to_owned());
    }
    if !fragment.is_empty() {
        fault(fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !query.is_empty() {
        fault(query, "query parameters are not permitted in the URL".to_owned());
    }
}

/// Checks where a webhook is by a Service.
pub(crate) fn validate_service(service: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in ["name", "namespace"] {
        if is_empty_field(service, field) {
            errors.push(FieldError::required(path.child(field), ""));
        }
    }
    if let Some(port) = service.get("port").and_then(Value::as_i64)
        && let Some(fault) = names::port_number(port)
    {
        errors.push(FieldError::invalid(
            path.child("port"),
            port,
            format!("port is not valid: {fault}"),
        ));
    }
    let found = get_text(service, "path");
    let path = path.child("path");
    let mut fault = |why: String| errors.push(FieldError::invalid(&path, found, why));
    match found {
        "" | "/" => return,
        "//" => {
            fault("segment[0] may not be empty".to_owned());
            return;
        }
        _ => {}
    }
    if !found.starts_with('/') {
        fault("must start with a '/'".to_owned());
    }
    let mut characters = found.chars();
    characters.next();
    let steps = characters.as_str();
    for (index, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            fault(format!("segment[{index}] may not be empty"));
            continue;
        }
        for complaint in names::find_subdomain_errors(step) {
            fault(format!("segment[{index}]: {complaint}"));
        }
    }
}
