//! The built-in kinds by name, their served resources, and their schemas and columns.
//!
//! This is the only module that knows every kind, and it depends on all others. It contains no rule for a single kind.

mod resources;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::kind::{Kind, KindSchema, PLAIN};
use crate::schema::BuiltinSchemas;
use crate::table::{BuiltInColumns, Columns};

pub use resources::list_resources;

/// Every group's kinds.
static GROUPS: &[&[&Kind]] = &[
    crate::admissionregistration::KINDS,
    crate::apiextensions::KINDS,
    crate::apiregistration::KINDS,
    crate::apps::KINDS,
    crate::authentication::KINDS,
    crate::authorization::KINDS,
    crate::autoscaling::KINDS,
    crate::batch::KINDS,
    crate::certificates::KINDS,
    crate::coordination::KINDS,
    crate::core_group::KINDS,
    crate::discovery::KINDS,
    crate::events::KINDS,
    crate::networking::KINDS,
    crate::node::KINDS,
    crate::policy::KINDS,
    crate::rbac::KINDS,
    crate::scheduling::KINDS,
    crate::storage::KINDS,
];

static BY_KIND: LazyLock<HashMap<(&str, &str), &Kind>> =
    LazyLock::new(|| list_kinds().map(|kind| ((kind.group, kind.name), kind)).collect());
static BY_PLURAL: LazyLock<HashMap<(&str, &str), &Kind>> =
    LazyLock::new(|| list_kinds().map(|kind| ((kind.group, kind.plural), kind)).collect());

/// Returns every built-in kind with its own value.
pub fn list_kinds() -> impl Iterator<Item = &'static Kind> {
    GROUPS.iter().copied().flatten().copied()
}

/// Returns the kind of that name; a plain kind if it has no value of its own.
#[must_use]
pub fn find_kind(group: &str, name: &str) -> &'static Kind {
    BY_KIND.get(&(group, name)).copied().unwrap_or(&PLAIN)
}

/// Returns the kind of the resource with that plural; a plain kind if it has no value of its own.
#[must_use]
pub fn find_resource(group: &str, plural: &str) -> &'static Kind {
    BY_PLURAL.get(&(group, plural)).copied().unwrap_or(&PLAIN)
}

/// Returns the schema of a kind, `api_version` as objects write it (`v1`, `apps/v1`).
#[must_use]
pub fn find_schema(api_version: &str, kind: &str) -> Option<KindSchema> {
    let (group, _) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    schema_of(find_kind(group, kind), api_version, kind)
}

/// Returns the schema of a kind whose value the caller already has.
#[must_use]
pub fn schema_of(behavior: &'static Kind, api_version: &str, kind: &str) -> Option<KindSchema> {
    let definition = BuiltinSchemas::instance().type_of(api_version, kind)?;
    Some(KindSchema::new(behavior, api_version, kind, definition))
}

/// Returns the columns of a built-in resource.
#[must_use]
pub fn find_columns(group: &str, version: &str, plural: &str) -> Columns {
    columns_of(find_resource(group, plural), group, version, plural)
}

/// Returns the columns of a kind whose value the caller already has.
#[must_use]
pub fn columns_of(behavior: &'static Kind, group: &str, version: &str, plural: &str) -> Columns {
    let place = (group, version, plural);
    Columns::BuiltIn(BuiltInColumns::new(place, behavior.cells, behavior.row_condition))
}

#[cfg(test)]
mod tests;
