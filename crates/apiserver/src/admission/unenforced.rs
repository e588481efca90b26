//! Objects that would promise what this server does not do, and that people rely on for their safety, are refused.

use serde_json::Value;

use crate::http::ApiError;
use crate::registry::Operation;

/// Refuses an object whose rules nobody would enforce.
pub(super) fn check(op: &Operation, name: &str, object: &Value) -> Result<(), ApiError> {
    let resource = &op.resource;
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => {
            let hooks = object.get("webhooks").and_then(Value::as_array);
            let mut conditions = hooks.into_iter().flatten().map(|hook| hook.get("matchConditions"));
            if conditions.any(|list| list.and_then(Value::as_array).is_some_and(|list| !list.is_empty())) {
                return Err(ApiError::denied(
                    resource,
                    name,
                    "this server does not evaluate matchConditions, so the webhook would be asked too often",
                ));
            }
            Ok(())
        }
        ("admissionregistration.k8s.io", _) => Err(ApiError::denied(
            resource,
            name,
            "this server does not evaluate admission policies, so it would have no effect",
        )),
        _ => Ok(()),
    }
}
