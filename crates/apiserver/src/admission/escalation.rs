//! Nobody gives away rights that they don't hold: RBAC's own rule for writing roles and bindings.

use serde_json::Value;

use crate::access::Rights;
use crate::authorization::{RbacKind, Write, check_escalation};
use crate::http::ApiError;
use crate::registry::Operation;

pub(super) fn check(
    rights: &Rights,
    op: &Operation,
    path_name: &str,
    object: &Value,
    live: Option<&Value>,
) -> Result<(), ApiError> {
    if op.resource.group != "rbac.authorization.k8s.io" {
        return Ok(());
    }
    let Some(kind) = RbacKind::of_resource(&op.resource.plural) else {
        return Ok(());
    };
    let write = Write {
        user: &op.user,
        kind,
        namespace: op.namespace.as_deref().unwrap_or_default(),
        path_name,
        object,
        old: live,
    };
    rights
        .with(|rbac| check_escalation(write, rbac))
        .map_err(ApiError::from)
}
