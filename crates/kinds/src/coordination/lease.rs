//! The kind Lease.

use serde_json::Value;

use crate::kind::Kind;
use crate::schema::validation::non_negative;
use crate::schema::{FieldError, FieldPath};
use crate::table::cells;

/// Leases.
pub(super) static LEASE: Kind = Kind {
    is_created_by_update: true,
    needs_resource_version: true,
    prepare_create: |_, object| drop_election(object),
    prepare_update: |_, _, new| drop_election(new),
    validate,
    cells: |object, now| {
        let holder = cells::get_text(object, "/spec/holderIdentity");
        vec![cells::name_cell(object), holder.into(), cells::format_age(object, now)]
    },
    ..Kind::new("coordination.k8s.io", "Lease", "leases")
};

/// Drops the fields of coordinated leader election, which Kubernetes has disabled.
fn drop_election(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

/// Checks a lease.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    if let Some(duration) = spec.get("leaseDurationSeconds").and_then(Value::as_i64)
        && duration <= 0
    {
        errors.push(FieldError::invalid(
            path.child("leaseDurationSeconds"),
            duration,
            "must be greater than 0",
        ));
    }
    non_negative(spec, "leaseTransitions", &path, errors);
}
