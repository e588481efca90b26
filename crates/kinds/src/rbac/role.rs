//! The kind Role.

use super::rules;
use crate::kind::Kind;
use crate::schema::defaults;
use crate::schema::validation::names::NameRule;

/// Roles.
pub(super) static ROLE: Kind = Kind {
    names: NameRule::PathSegment,
    is_created_by_update: true,
    write_nulls: |_, object, stored| defaults::null_unless_set(object, "rules", stored),
    validate: |value, errors| rules::validate(value, true, errors),
    ..Kind::new("rbac.authorization.k8s.io", "Role", "roles")
};
