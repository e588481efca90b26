//! MutatingWebhookConfigurations.

use crate::kind::{Generation, Kind};
use crate::schema::validation::admission;
use crate::table::cells;

/// MutatingWebhookConfigurations.
pub(super) static MUTATING_WEBHOOK_CONFIGURATION: Kind = Kind {
    needs_resource_version: true,
    generation: Generation::Counted,
    validate_create: |value, errors| admission::webhooks("MutatingWebhookConfiguration", value, None, errors),
    validate_update: |value, old, errors| admission::webhooks("MutatingWebhookConfiguration", value, Some(old), errors),
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
