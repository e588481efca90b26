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
        let webhooks = cells::list(object, "/webhooks").len();
        vec![cells::name(object), webhooks.into(), cells::age(object, now)]
    },
    ..Kind::named(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    )
};
