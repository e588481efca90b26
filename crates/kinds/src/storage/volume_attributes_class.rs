//! VolumeAttributesClasses.

use crate::kind::Kind;
use crate::schema::validation::storage_plugins;
use crate::table::cells;

/// VolumeAttributesClasses.
pub(super) static VOLUME_ATTRIBUTES_CLASS: Kind = Kind {
    is_answered_when_deleted: true,
    validate: |value, errors| storage_plugins::object("VolumeAttributesClass", value, errors),
    validate_update: |value, old, errors| storage_plugins::update("VolumeAttributesClass", value, old, errors),
    cells: |object, now| {
        let driver = cells::text(object, "/driverName");
        vec![cells::name(object), driver.into(), cells::age(object, now)]
    },
    ..Kind::named("storage.k8s.io", "VolumeAttributesClass", "volumeattributesclasses")
};
