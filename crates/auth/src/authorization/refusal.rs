//! Refusals as data: code, reason, message and details of a Kubernetes Status. This crate knows no HTTP: the server
//! turns refusals into answers.

use serde_json::{Map, Value, json};

use super::{Attributes, quote};
use crate::identity::UserInfo;

/// The error for one invalid field of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The field's path, as `spec.user`.
    pub field: String,
    /// The cause's reason: `FieldValueInvalid`, `FieldValueRequired`.
    pub reason: &'static str,
    /// The fault, without the path: `Invalid value: 5: may not …`.
    pub message: String,
}

impl FieldError {
    /// Returns the error for a value that is not allowed; `value` in the form of Go's JSON or quoting.
    #[must_use]
    pub fn invalid(field: &str, value: &str, why: &str) -> Self {
        Self {
            field: field.to_owned(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {why}"),
        }
    }

    /// Returns the error for a missing value.
    #[must_use]
    pub fn required(field: &str, why: &str) -> Self {
        Self {
            field: field.to_owned(),
            reason: "FieldValueRequired",
            message: format!("Required value: {why}"),
        }
    }
}

/// A refused request, in the terms of `metav1.Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// `details` of the Status: name, group, kind, UID, causes.
    pub details: Option<Map<String, Value>>,
}

impl Refusal {
    /// Returns 401 with kube-apiserver's words, which name no reason.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self {
            code: 401,
            reason: "Unauthorized",
            message: "Unauthorized".to_owned(),
            details: None,
        }
    }

    /// Returns 400 with `message`.
    #[must_use]
    pub fn bad_request(message: String) -> Self {
        Self {
            code: 400,
            reason: "BadRequest",
            message,
            details: None,
        }
    }

    /// Returns 500 with the cause in `message`.
    #[must_use]
    pub fn internal(message: &str) -> Self {
        let mut details = Map::new();
        details.insert("causes".to_owned(), json!([{ "message": message }]));
        Self {
            code: 500,
            reason: "InternalError",
            message: format!("Internal error occurred: {message}"),
            details: Some(details),
        }
    }

    /// Returns 403: `user` lacks the right for `attributes`. `reason` is the decision's, and may be empty.
    #[must_use]
    pub fn forbidden(user: &UserInfo, attributes: &Attributes, reason: &str) -> Self {
        let mut message = describe_request(user, attributes);
        if !reason.is_empty() {
            message.push_str(": ");
            message.push_str(reason);
        }
        Self::forbidden_because(&attributes.group, &attributes.resource, &attributes.name, &message)
    }

    /// Returns 403 on an object, for another reason than a missing right to the request itself.
    #[must_use]
    pub fn forbidden_because(group: &str, resource: &str, name: &str, message: &str) -> Self {
        let qualified = qualify_resource(resource, group);
        let message = if resource.is_empty() {
            format!("forbidden: {message}")
        } else if name.is_empty() {
            format!("{qualified} is forbidden: {message}")
        } else {
            format!("{qualified} {} is forbidden: {message}", quote(name))
        };
        Self {
            code: 403,
            reason: "Forbidden",
            message,
            details: Some(make_details(group, resource, name)),
        }
    }

    /// Returns 404 for an unknown path.
    #[must_use]
    pub fn no_such_route() -> Self {
        Self {
            code: 404,
            reason: "NotFound",
            message: "the server could not find the requested resource".to_owned(),
            details: Some(Map::new()),
        }
    }

    /// Returns 404 for a missing object.
    #[must_use]
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self {
            code: 404,
            reason: "NotFound",
            message: format!("{} {} not found", qualify_resource(resource, group), quote(name)),
            details: Some(make_details(group, resource, name)),
        }
    }

    /// Returns 409 for an object that differs from the one in the request.
    #[must_use]
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        Self {
            code: 409,
            reason: "Conflict",
            message: format!(
                "Operation cannot be fulfilled on {} {}: {why}",
                qualify_resource(resource, group),
                quote(name)
            ),
            details: Some(make_details(group, resource, name)),
        }
    }

    /// Returns 422 for an object with invalid fields.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut shown: Vec<String> = Vec::new();
        for error in errors {
            let text = format!("{}: {}", error.field, error.message);
            if !shown.contains(&text) {
                shown.push(text);
            }
        }
        let list = match shown.as_slice() {
            [only] => only.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = errors
            .iter()
            .map(|error| json!({ "reason": error.reason, "message": error.message, "field": error.field }))
            .collect();
        let mut details = make_details(group, kind, name);
        details.insert("causes".to_owned(), Value::Array(causes));
        Self {
            code: 422,
            reason: "Invalid",
            message: format!("{} {} is invalid: {list}", qualify_resource(kind, group), quote(name)),
            details: Some(details),
        }
    }

    /// Returns the whole Status object.
    #[must_use]
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if let (Some(details), Some(object)) = (&self.details, status.as_object_mut()) {
            object.insert("details".to_owned(), Value::Object(details.clone()));
        }
        status
    }
}

fn qualify_resource(resource: &str, group: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

fn make_details(group: &str, kind: &str, name: &str) -> Map<String, Value> {
    [("name", name), ("group", group), ("kind", kind)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), Value::from(value)))
        .collect()
}

/// Describes the request, with HTML's special characters escaped as in kube-apiserver.
fn describe_request(user: &UserInfo, attributes: &Attributes) -> String {
    let who = quote(&user.name);
    let verb = &attributes.verb;
    let text = if let Some(path) = &attributes.path {
        format!("User {who} cannot {verb} path {}", quote(path))
    } else {
        let resource = quote(&attributes.combined_resource());
        let group = quote(&attributes.group);
        let place = if attributes.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {}", quote(&attributes.namespace))
        };
        format!("User {who} cannot {verb} resource {resource} in API group {group} {place}")
    };
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
