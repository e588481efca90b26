//! CSINodes.

use serde_json::{Value, json};

use crate::kind::Kind;
use crate::schema::defaults;
use crate::schema::validation::storage_plugins;
use crate::table::cells;

/// CSINodes.
pub(super) static CSI_NODE: Kind = Kind {
    is_answered_when_deleted: true,
    needs_resource_version: true,
    write_nulls: |_, object, stored| write_nulls(object, stored),
    validate: |value, errors| storage_plugins::object("CSINode", value, errors),
    validate_update: |value, old, errors| storage_plugins::update("CSINode", value, old, errors),
    cells: |object, now| {
        let drivers = cells::list(object, "/spec/drivers").len();
        vec![cells::name(object), drivers.into(), cells::age(object, now)]
    },
    ..Kind::named("storage.k8s.io", "CSINode", "csinodes")
};

fn write_nulls(object: &mut Value, stored: bool) {
    let drivers = object.pointer_mut("/spec/drivers").and_then(Value::as_array_mut);
    for driver in drivers.into_iter().flatten() {
        defaults::null_unless_set(driver, "topologyKeys", stored);
    }
    if let Some(map) = object.as_object_mut() {
        let spec = map.entry("spec").or_insert_with(|| json!({}));
        defaults::null_unless_set(spec, "drivers", stored);
    }
}
