//! Pods, and the code that all Pod-creating kinds share.

mod admission;
mod cells;
pub(crate) mod counts;
mod defaulting;
pub(crate) mod owners;
mod parts;
mod quality;
pub(crate) mod template;
mod usage;
pub(crate) mod validation;
pub(crate) mod warnings;

use serde_json::{Value, json};

use crate::kind::{Action, Generation, Kind, OwnersFirst, Request};
use crate::object::{format_timestamp, set_status};
use crate::schema::defaults;

use quality::quality_of_service;

/// Pods.
pub(super) static POD: Kind = Kind {
    selectable_fields: &[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ],
    is_answered_when_deleted: true,
    owners_first: OwnersFirst::OnSubresources,
    generation: Generation::Counted,
    kept_from_status: &["ownerReferences"],
    pod_spec: Some("/spec"),
    normalize: |_, object| {
        template::normalize_pod(object);
        parts::agree_on_addresses(object);
    },
    unify: parts::agree_on_addresses,
    drop_disabled: |object, live| template::drop_disabled("/spec", object, live),
    prepare_create,
    reset: parts::reset_foreign_fields,
    keep_from_status: parts::keep_from_status,
    defaults: |_, object| defaults::with_spec(object, defaulting::fill_in),
    validate: validation::validate_pod,
    validate_create: validation::pod_create,
    validate_update: validation::pod_update,
    validate_status: validation::validate_status,
    validate_part: |new, live, subresource| {
        let part = subresource.filter(|name| matches!(*name, "ephemeralcontainers" | "resize"))?;
        Some(validation::part_update(new, live, part, quality_of_service))
    },
    warnings: |object, live| match live {
        None => warnings::list_pod_warnings(object),
        Some(_) => Vec::new(),
    },
    cells: cells::show,
    row_condition: cells::row_condition,
    action: |subresource| match subresource? {
        "binding" => Some(Action::Bind),
        "eviction" => Some(Action::Evict),
        "attach" | "exec" => Some(Action::Connect { needs_container: true }),
        "portforward" => Some(Action::Connect { needs_container: false }),
        "log" => Some(Action::ReadLog),
        _ => None,
    },
    admission: admission::RULES,
    is_counted_by_plural: true,
    usage: Some(usage::USAGE),
    ..Kind::new("", "Pod", "pods")
};

fn prepare_create(request: &Request<'_>, pod: &mut Value) {
    let quality = quality_of_service(pod);
    set_status(pod, json!({"phase": "Pending", "qosClass": quality}));
    template::prepare_pod(pod, &format_timestamp(request.now));
    parts::app_armor(pod).into_iter().for_each(|text| (request.warn)(text));
}
