//! Admission for namespaces: no object is created in a missing or terminating namespace, and some namespaces can't be
//! deleted.

use serde_json::{Value, json};
use tenure_auth::identity::ObjectLookup;
use tenure_kinds::object::ObjectExt as _;

use super::Attributes;
use crate::http::ApiError;
use crate::view::View;

/// The namespaces that Kubernetes itself needs.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Refuses a creation in a missing or terminating namespace.
pub(super) fn on_create(attributes: &Attributes<'_>, view: &View) -> Result<(), ApiError> {
    let op = attributes.op;
    let Some(namespace) = op.namespace.as_deref().filter(|_| op.resource.namespaced) else {
        return Ok(());
    };
    let Some(found) = view.get("", "namespaces", None, namespace) else {
        let mut error = ApiError::new(404, "NotFound", format!("namespaces {namespace:?} not found"));
        error.details.insert("name".to_owned(), Value::from(namespace));
        error.details.insert("kind".to_owned(), Value::from("namespaces"));
        return Err(error);
    };
    if !found.is_deleting() && found.pointer("/status/phase").and_then(Value::as_str) != Some("Terminating") {
        return Ok(());
    }
    let mut error = ApiError::denied(
        &op.resource,
        attributes.name,
        &format!("unable to create new content in namespace {namespace} because it is being terminated"),
    );
    error.details.insert(
        "causes".to_owned(),
        json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]),
    );
    Err(error)
}

/// Refuses the deletion of a namespace that Kubernetes itself needs.
pub(super) fn on_delete(attributes: &Attributes<'_>) -> Result<(), ApiError> {
    if attributes.is_of_namespace() && IMMORTAL.contains(&attributes.name) {
        return Err(ApiError::denied(
            attributes.resource(),
            attributes.name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}
