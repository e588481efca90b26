//! The kind RoleBinding.

use super::binding;
use crate::kind::Kind;
use crate::schema::validation::names::NameRule;

/// RoleBindings.
pub(super) static ROLE_BINDING: Kind = Kind {
    names: NameRule::PathSegment,
    is_created_by_update: true,
    defaults: |_, object| binding::fill_in(object),
    validate: |value, errors| binding::validate(value, true, errors),
    validate_update: binding::validate_update,
    cells: binding::show,
    ..Kind::new("rbac.authorization.k8s.io", "RoleBinding", "rolebindings")
};
