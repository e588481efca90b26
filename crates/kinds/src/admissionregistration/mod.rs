//! The group `admissionregistration.k8s.io`: policies and webhooks that check writes. One file or folder for each kind; code for several
//! groups is elsewhere.

mod mutating_admission_policy;
mod mutating_admission_policy_binding;
mod mutating_webhook_configuration;
mod policies;
mod rights;
mod validating_admission_policy;
mod validating_admission_policy_binding;
mod validating_webhook_configuration;
mod webhooks;

use crate::kind::Kind;

/// The kinds of this group.
pub(crate) static KINDS: &[&Kind] = &[
    &mutating_admission_policy::MUTATING_ADMISSION_POLICY,
    &mutating_admission_policy_binding::MUTATING_ADMISSION_POLICY_BINDING,
    &mutating_webhook_configuration::MUTATING_WEBHOOK_CONFIGURATION,
    &validating_admission_policy::VALIDATING_ADMISSION_POLICY,
    &validating_admission_policy_binding::VALIDATING_ADMISSION_POLICY_BINDING,
    &validating_webhook_configuration::VALIDATING_WEBHOOK_CONFIGURATION,
];
