//! The kind ConfigMap.

use jiff::Timestamp;
use serde_json::Value;

use super::data;
use crate::kind::Kind;
use crate::table::cells;

/// ConfigMaps.
pub(super) static CONFIG_MAP: Kind = Kind {
    validate: |value, errors| data::check_keys_and_length(value, "", measure_value, errors),
    validate_update: data::check_immutable,
    cells: show,
    is_counted_by_plural: true,
    ..Kind::new("", "ConfigMap", "configmaps")
};

fn measure_value(field: &str, text: &str) -> usize {
    match field {
        "data" => text.len(),
        _ => data::measure_decoded(text),
    }
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let size = cells::size(object, "/data") + cells::size(object, "/binaryData");
    vec![cells::name_cell(object), size.into(), cells::format_age(object, now)]
}
