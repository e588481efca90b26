//! The kind ValidatingAdmissionPolicy.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{policies, rights};
use crate::kind::{Generation, Kind};
use crate::table::cells;

/// ValidatingAdmissionPolicies.
pub(super) static VALIDATING_ADMISSION_POLICY: Kind = Kind {
    judges_requests: true,
    needs_resource_version: true,
    generation: Generation::Counted,
    initial_status: Some(|| json!({})),
    kept_from_status: &["labels", "annotations", "finalizers", "ownerReferences"],
    check_rights: rights::check_policy,
    validate_create: |value, errors| policies::validate_policy(value, None, errors),
    validate_update: |value, old, errors| policies::validate_policy(value, Some(old), errors),
    validate_status: |value, _, errors| policies::policy_status(value, errors),
    cells: |object, now| show(object, "/spec/validations", now),
    ..Kind::new(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
    )
};

/// Shows the number of expressions and the kind of the parameters.
pub(super) fn show(object: &Value, expressions: &str, now: Timestamp) -> Vec<Value> {
    let parameters = object.pointer("/spec/paramKind").filter(|kind| !kind.is_null());
    let parameters = parameters.map_or("<unset>".to_owned(), |kind| {
        format!(
            "{}/{}",
            cells::get_text(kind, "/apiVersion"),
            cells::get_text(kind, "/kind")
        )
    });
    vec![
        cells::name_cell(object),
        cells::list_items(object, expressions).len().into(),
        parameters.into(),
        cells::format_age(object, now),
    ]
}
