//! The kind ValidatingWebhookConfiguration.

use super::webhooks;
use crate::kind::{Generation, Kind};
use crate::table::cells;

/// ValidatingWebhookConfigurations.
pub(super) static VALIDATING_WEBHOOK_CONFIGURATION: Kind = Kind {
    needs_resource_version: true,
    generation: Generation::Counted,
    validate_create: |value, errors| webhooks::validate(|_, _, _| {}, value, None, errors),
    validate_update: |value, old, errors| webhooks::validate(|_, _, _| {}, value, Some(old), errors),
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
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    )
};
