//! The kind ClusterRole.

use super::rules;
use crate::kind::Kind;
use crate::schema::defaults;
use crate::schema::validation::names::NameRule;

/// ClusterRoles.
pub(super) static CLUSTER_ROLE: Kind = Kind {
    names: NameRule::PathSegment,
    is_created_by_update: true,
    write_nulls: |_, object, stored| defaults::null_unless_set(object, "rules", stored),
    validate: |value, errors| rules::validate(value, false, errors),
    ..Kind::new("rbac.authorization.k8s.io", "ClusterRole", "clusterroles")
};
