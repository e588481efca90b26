//! Objects that would promise what this server does not do. Those that people rely on for their safety are refused;
//! for the others there is a warning.

use crate::http::ApiError;
use crate::registry::Operation;

/// Refuses, or warns of, an object whose rules nobody would enforce.
pub(super) fn on_create(op: &Operation, name: &str) -> Result<(), ApiError> {
    let resource = &op.resource;
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => {
            Err(ApiError::denied(
                resource,
                name,
                "this server does not call admission webhooks, so it would have no effect",
            ))
        }
        ("admissionregistration.k8s.io", _) => Err(ApiError::denied(
            resource,
            name,
            "this server does not evaluate admission policies, so it would have no effect",
        )),
        ("", "resourcequotas" | "limitranges") => {
            op.warn(format!(
                "{} is stored, but this server does not enforce it",
                resource.kind
            ));
            Ok(())
        }
        _ => Ok(()),
    }
}
