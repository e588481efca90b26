//! Errors in the answers to clients: the Status object, with the codes, reasons and messages of Kubernetes.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use tenure_kinds::schema::FieldError;
use tenure_kinds::schema::{aggregate_errors, go_quoted};

use tenure_kinds::kind::Resource;

/// The error of a refused or failed request, with the fields of a Kubernetes Status.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason; empty for none.
    pub reason: Cow<'static, str>,
    /// Text for people.
    pub message: String,
    /// The Status' details.
    pub details: Map<String, Value>,
}

impl ApiError {
    /// Checks whether a request was refused because its namespace is being deleted.
    pub(crate) fn is_namespace_terminating(&self) -> bool {
        let causes = self.details.get("causes").and_then(Value::as_array);
        causes.is_some_and(|causes| causes.iter().any(|cause| cause["reason"] == "NamespaceTerminating"))
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

fn details(pairs: &[(&str, &str)]) -> Map<String, Value> {
    pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| ((*key).to_owned(), Value::from(*value)))
        .collect()
}

impl ApiError {
    /// Returns an error with empty details.
    #[must_use]
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: Map::new(),
        }
    }

    /// Returns 400: the request is malformed.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Returns 401: the credential is missing or invalid.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// Returns 404: the object does not exist.
    #[must_use]
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self {
            code: 404,
            reason: Cow::Borrowed("NotFound"),
            message: format!("{} {} not found", resource.qualified_name(), go_quoted(name)),
            details: details(&[("name", name), ("group", &resource.group), ("kind", &resource.plural)]),
        }
    }

    /// Returns 404: no resource is served under this URL.
    #[must_use]
    pub fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// Returns 409: an object with this name exists.
    #[must_use]
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        Self {
            code: 409,
            reason: Cow::Borrowed("AlreadyExists"),
            message: format!("{} {name:?} already exists", resource.qualified_name()),
            details: details(&[("name", name), ("group", &resource.group), ("kind", &resource.plural)]),
        }
    }

    /// Returns 409: the object's state conflicts with the request.
    #[must_use]
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        Self {
            code: 409,
            reason: Cow::Borrowed("Conflict"),
            message: format!(
                "Operation cannot be fulfilled on {} {name:?}: {why}",
                resource.qualified_name()
            ),
            details: details(&[("name", name), ("group", &resource.group), ("kind", &resource.plural)]),
        }
    }

    /// Returns 409: the writer read an older state than the current one.
    #[must_use]
    pub fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Returns 422: the object breaks rules of its kind.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let list = aggregate_errors(errors);
        let mut details = details(&[("name", name), ("group", group), ("kind", kind)]);
        let causes: Vec<Value> = errors.iter().map(FieldError::cause).collect();
        if !causes.is_empty() {
            details.insert("causes".to_owned(), Value::from(causes));
        }
        Self {
            code: 422,
            reason: Cow::Borrowed("Invalid"),
            message: format!("{qualified} {name:?} is invalid: {list}"),
            details,
        }
    }

    /// Returns 403: the caller lacks the right for the request.
    #[must_use]
    pub fn forbidden(group: &str, resource: &str, name: &str, message: impl Into<String>) -> Self {
        Self {
            code: 403,
            reason: Cow::Borrowed("Forbidden"),
            message: message.into(),
            details: details(&[("name", name), ("group", group), ("kind", resource)]),
        }
    }

    /// Returns 403: admission refuses this request.
    #[must_use]
    pub fn denied(resource: &Resource, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", resource.qualified_name())
        } else {
            format!("{} {name:?} is forbidden: {why}", resource.qualified_name())
        };
        Self::forbidden(&resource.group, &resource.plural, name, message)
    }

    /// Returns 405: no verb is served for this method under this URL.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// Returns 405: objects of this custom kind don't support the verb.
    #[must_use]
    pub fn not_supported(resource: &Resource, verb: &str) -> Self {
        Self {
            code: 405,
            reason: Cow::Borrowed("MethodNotAllowed"),
            message: format!(
                "{verb} is not supported on resources of kind \"{}\"",
                resource.qualified_name()
            ),
            details: details(&[("group", &resource.group), ("kind", &resource.plural)]),
        }
    }

    /// Returns 406: the server supports none of the formats that the client accepts.
    #[must_use]
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        Self::new(
            406,
            "NotAcceptable",
            format!(
                "406: Not Acceptable\n\nAvailable representations: {}",
                accepted.join(", ")
            ),
        )
    }

    /// Returns 415: the format of the body is not supported.
    #[must_use]
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    /// Returns 413: the body is larger than `limit` bytes.
    #[must_use]
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// Returns 410: the revision that the request needs is no longer in the history.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Returns 500: the server has a fault, which `message` describes.
    #[must_use]
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let mut error = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        let causes = json!([{"message": message.to_string()}]);
        error.details.insert("causes".to_owned(), causes);
        error
    }

    /// Returns 503: the server can't handle the request now.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// Checks whether the Status has details. kube-apiserver also writes empty details, but only for some codes.
    fn has_details(&self) -> bool {
        !self.details.is_empty()
            || matches!(self.code, 403..=405 | 422)
            || ["406: ", "415: "].iter().any(|start| self.message.starts_with(start))
    }

    /// Returns the seconds after which the client should retry, if a retry helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// Returns the Status object.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Some(map) = status.as_object_mut() {
            if !self.reason.is_empty() {
                map.insert("reason".to_owned(), json!(self.reason));
            }
            if self.has_details() {
                map.insert("details".to_owned(), Value::Object(self.details.clone()));
            }
        }
        status
    }
}
