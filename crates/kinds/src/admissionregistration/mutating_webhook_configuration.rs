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
    validate_create: |value, errors| webhooks::validate(reinvocation, value, None, errors),
    validate_update: |value, old, errors| webhooks::validate(reinvocation, value, Some(old), errors),
    cells: |object, now| {
        let webhooks = cells::list(object, "/webhooks").len();
        vec![cells::name(object), webhooks.into(), cells::age(object, now)]
    },
    ..Kind::named(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    )
};

/// Checks the reinvocation policy. Only a mutating webhook may be called again.
fn reinvocation(hook: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    one_of(hook, "reinvocationPolicy", &["IfNeeded", "Never"], false, path, errors);
}
