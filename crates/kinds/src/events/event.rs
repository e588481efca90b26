//! Events as their own group has them. They are the core group's Events under other names, and kept as those.

use crate::core::event;
use crate::kind::Kind;
use crate::schema::validation::events;

/// Events of the group `events.k8s.io`.
pub(super) static EVENT: Kind = Kind {
    stored_as: Some(("", "events")),
    stored_version: Some("v1"),
    convert: Some(event::convert),
    selectable_fields: &[
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "regarding.apiVersion",
        "regarding.resourceVersion",
        "regarding.fieldPath",
        "reason",
        "reportingController",
        "type",
    ],
    is_created_by_update: true,
    validate_create: events::reported,
    cells: event::show,
    ..Kind::named("events.k8s.io", "Event", "events")
};
