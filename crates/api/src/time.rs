//! A time as Kubernetes writes it: RFC 3339 in UTC with whole seconds. This module has no clock.

use schemars::{Schema, SchemaGenerator, json_schema};

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Returns the schema of a field with a time. It is written here because the crate with Kubernetes' types takes more than twice as long to
/// compile when it describes all of them.
pub(crate) fn describe(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}
