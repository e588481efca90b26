//! MutatingAdmissionPolicies. They have table cells, but the server does not serve them.

use super::validating_admission_policy::show;
use crate::kind::Kind;

/// MutatingAdmissionPolicies.
pub(super) static MUTATING_ADMISSION_POLICY: Kind = Kind {
    judges_requests: true,
    cells: |object, now| show(object, "/spec/mutations", now),
    ..Kind::new(
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
    )
};
