//! The kind PersistentVolume.

mod validation;
mod warnings;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kind::Kind;
use crate::object::{set_status, timestamp};
use crate::schema::defaults;
use crate::table::cells;

/// PersistentVolumes.
pub(super) static PERSISTENT_VOLUME: Kind = Kind {
    is_answered_when_deleted: true,
    prepare_create: |request, object| {
        let since = timestamp(request.now);
        set_status(object, json!({"phase": "Pending", "lastPhaseTransitionTime": since}));
    },
    defaults: |_, object| {
        defaults::with_spec(object, |spec| {
            defaults::set(spec, "persistentVolumeReclaimPolicy", "Retain");
            defaults::set(spec, "volumeMode", "Filesystem");
        });
        if let Some(status) = defaults::object_at(object, "status") {
            defaults::set(status, "phase", "Pending");
        }
    },
    validate: validation::volume,
    validate_update: validation::volume_update,
    warnings: |object, _| warnings::warnings(object),
    cells: show,
    ..Kind::named("", "PersistentVolume", "persistentvolumes")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let deleted = !cells::text(object, "/metadata/deletionTimestamp").is_empty();
    let claim = object.pointer("/spec/claimRef").filter(|claim| !claim.is_null());
    let claim = claim.map_or(String::new(), |claim| {
        format!("{}/{}", cells::text(claim, "/namespace"), cells::text(claim, "/name"))
    });
    vec![
        cells::name(object),
        cells::text(object, "/spec/capacity/storage").into(),
        cells::access_modes(object, "/spec/accessModes").into(),
        cells::text(object, "/spec/persistentVolumeReclaimPolicy").into(),
        if deleted {
            "Terminating"
        } else {
            cells::text(object, "/status/phase")
        }
        .into(),
        claim.into(),
        cells::class_of(object).into(),
        cells::unset(object, "/spec/volumeAttributesClassName"),
        cells::text(object, "/status/reason").into(),
        cells::age(object, now),
        cells::unset(object, "/spec/volumeMode"),
    ]
}
