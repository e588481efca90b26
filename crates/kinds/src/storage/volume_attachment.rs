//! VolumeAttachments.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kind::Kind;
use crate::schema::validation::storage_plugins;
use crate::table::cells;

/// VolumeAttachments.
pub(super) static VOLUME_ATTACHMENT: Kind = Kind {
    is_answered_when_deleted: true,
    needs_resource_version: true,
    initial_status: Some(|| json!({"attached": false})),
    kept_from_status: &["labels", "annotations", "finalizers", "ownerReferences"],
    validate: |value, errors| storage_plugins::object("VolumeAttachment", value, errors),
    validate_update: |value, old, errors| storage_plugins::update("VolumeAttachment", value, old, errors),
    validate_status: |value, _, errors| storage_plugins::attachment_status(value, errors),
    cells: show,
    ..Kind::named("storage.k8s.io", "VolumeAttachment", "volumeattachments")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let attached = object.pointer("/status/attached") == Some(&Value::Bool(true));
    vec![
        cells::name(object),
        cells::text(object, "/spec/attacher").into(),
        cells::text(object, "/spec/source/persistentVolumeName").into(),
        cells::text(object, "/spec/nodeName").into(),
        attached.into(),
        cells::age(object, now),
    ]
}
