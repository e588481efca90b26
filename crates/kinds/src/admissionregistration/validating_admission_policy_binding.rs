//! The kind ValidatingAdmissionPolicyBinding.

use jiff::Timestamp;
use serde_json::Value;

use super::{policies, rights};
use crate::kind::{Generation, Kind};
use crate::table::cells;

/// ValidatingAdmissionPolicyBindings.
pub(super) static VALIDATING_ADMISSION_POLICY_BINDING: Kind = Kind {
    judges_requests: true,
    needs_resource_version: true,
    generation: Generation::Counted,
    check_rights: rights::check_binding,
    validate: policies::validate_binding,
    cells: show,
    ..Kind::new(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
    )
};

/// Shows the bound policy and the place of its parameters.
pub(super) fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let reference = object
        .pointer("/spec/paramRef")
        .filter(|reference| !reference.is_null());
    let parameters = match reference {
        None => "<unset>".to_owned(),
        Some(reference) => match (
            cells::get_text(reference, "/namespace"),
            cells::get_text(reference, "/name"),
        ) {
            (_, "") => cells::format_selector(reference, "/selector"),
            ("", name) => format!("*/{name}"),
            (namespace, name) => format!("{namespace}/{name}"),
        },
    };
    vec![
        cells::name_cell(object),
        cells::get_text(object, "/spec/policyName").into(),
        parameters.into(),
        cells::format_age(object, now),
    ]
}
