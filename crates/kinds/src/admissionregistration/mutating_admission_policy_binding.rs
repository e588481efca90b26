//! MutatingAdmissionPolicyBindings. They have table cells, but the server does not serve them.

use super::validating_admission_policy_binding::show;
use crate::kind::Kind;

/// MutatingAdmissionPolicyBindings.
pub(super) static MUTATING_ADMISSION_POLICY_BINDING: Kind = Kind {
    judges_requests: true,
    cells: show,
    ..Kind::new(
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
    )
};
