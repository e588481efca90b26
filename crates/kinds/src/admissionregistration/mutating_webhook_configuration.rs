//! The kind MutatingWebhookConfiguration.

use serde_json::Value;

use super::webhooks;
use crate::kind::{Generation, Kind};
use crate::schema::validation::one_of;
use crate::schema::{FieldError, FieldPath};
use crate::table::cells;

/// MutatingWebhookConfigurations.
pub(super) static MUTATING_WEBHOOK_CONFIGURATION: Kind = Kind {
    needs_resource_version: true,
    generation: Generation::Counted,
    validate_create: |value, errors| webhooks::validate(validate_reinvocation_policy, value, None, errors),
    validate_update: |value, old, errors| webhooks::validate(validate_reinvocation_policy, value, Some(old), errors),
    cells: |object, now| {
        let webhooks = cells::list_items(object, "/webhooks").len();
        vec![
            cells::name_cell(object),
            webhooks.into(),
            cells::format_age(object, now),
        ]
    },
    ..Kind::new(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    )
};

/// Checks the reinvocation policy. Only a mutating webhook may be called again.
fn validate_reinvocation_policy(hook: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    one_of(hook, "reinvocationPolicy", &["IfNeeded", "Never"], false, path, errors);
}
