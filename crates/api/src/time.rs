//! A time as Kubernetes writes it: RFC 3339 in UTC with whole seconds. Refuses to know what time it is.

use schemars::{Schema, SchemaGenerator, json_schema};

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The schema of a time, for the fields that hold one. Said here because the crate with Kubernetes' types takes more than twice as long to
/// compile when it describes all of them.
pub(crate) fn describe(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}
