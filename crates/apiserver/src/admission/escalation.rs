//! RBAC's escalation check: a user can't grant rights that the user doesn't have. It applies to writes of roles and
//! bindings.

use serde_json::Value;
use tenure_auth::authorization::{RbacKind, Write, check_escalation};

use super::{Action, Attributes};
use crate::http::ApiError;
use crate::rights::Rights;

/// Refuses the write of a role or binding that grants rights which the user lacks.
pub(super) fn check(rights: &Rights, attributes: &Attributes<'_>, object: &Value) -> Result<(), ApiError> {
    let op = attributes.op;
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
        // The URL of a creation names no object, so rights on single names don't apply.
        path_name: if attributes.action == Action::Create {
            ""
        } else {
            attributes.name
        },
        object,
        old: attributes.old,
    };
    rights
        .with_index(|rbac| check_escalation(write, rbac))
        .map_err(ApiError::from)
}
