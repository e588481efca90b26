//! RoleBindings.

use super::binding;
use crate::kind::Kind;
use crate::schema::validation::names::NameRule;
use crate::schema::validation::rbac;

/// RoleBindings.
pub(super) static ROLE_BINDING: Kind = Kind {
    names: NameRule::PathSegment,
    is_created_by_update: true,
    defaults: |_, object| binding::fill_in(object),
    validate: |value, errors| rbac::object("RoleBinding", value, errors),
    validate_update: |value, old, errors| rbac::update("RoleBinding", value, old, errors),
    cells: binding::show,
    ..Kind::named("rbac.authorization.k8s.io", "RoleBinding", "rolebindings")
};
