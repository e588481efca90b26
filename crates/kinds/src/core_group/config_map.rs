//! ConfigMaps.

use jiff::Timestamp;
use serde_json::Value;

use super::data;
use crate::kind::Kind;
use crate::table::cells;

/// ConfigMaps.
pub(super) static CONFIG_MAP: Kind = Kind {
    validate: |value, errors| data::data("ConfigMap", value, errors),
    validate_update: |value, old, errors| data::immutable_data("ConfigMap", value, old, errors),
    cells: show,
    is_counted_by_plural: true,
    ..Kind::named("", "ConfigMap", "configmaps")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let size = cells::size(object, "/data") + cells::size(object, "/binaryData");
    vec![cells::name(object), size.into(), cells::age(object, now)]
}
