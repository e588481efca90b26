//! The kind PersistentVolume.

mod validation;
mod warnings;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kind::Kind;
use crate::object::{format_timestamp, set_status};
use crate::schema::defaults;
use crate::table::cells;

/// PersistentVolumes.
pub(super) static PERSISTENT_VOLUME: Kind = Kind {
    is_answered_when_deleted: true,
    prepare_create: |request, object| {
        let since = format_timestamp(request.now);
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
    validate: validation::validate_volume,
    validate_update: validation::volume_update,
    warnings: |object, _| warnings::list_warnings(object),
    cells: show,
    ..Kind::new("", "PersistentVolume", "persistentvolumes")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let deleted = !cells::get_text(object, "/metadata/deletionTimestamp").is_empty();
    let claim = object.pointer("/spec/claimRef").filter(|claim| !claim.is_null());
    let claim = claim.map_or(String::new(), |claim| {
        format!(
            "{}/{}",
            cells::get_text(claim, "/namespace"),
            cells::get_text(claim, "/name")
        )
    });
    vec![
        cells::name_cell(object),
        cells::get_text(object, "/spec/capacity/storage").into(),
        cells::access_modes(object, "/spec/accessModes").into(),
        cells::get_text(object, "/spec/persistentVolumeReclaimPolicy").into(),
        if deleted {
            "Terminating"
        } else {
            cells::get_text(object, "/status/phase")
        }
        .into(),
        claim.into(),
        cells::class_of(object).into(),
        cells::text_or_unset(object, "/spec/volumeAttributesClassName"),
        cells::get_text(object, "/status/reason").into(),
        cells::format_age(object, now),
        cells::text_or_unset(object, "/spec/volumeMode"),
    ]
}
