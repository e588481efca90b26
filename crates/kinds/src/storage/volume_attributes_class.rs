//! The kind VolumeAttributesClass.

use serde_json::Value;

use super::drivers::too_long;
use crate::kind::Kind;
use crate::schema::validation::metadata::qualified_name;
use crate::schema::validation::{get_text, validate_name};
use crate::schema::{FieldError, FieldPath};
use crate::table::cells;

/// VolumeAttributesClasses.
pub(super) static VOLUME_ATTRIBUTES_CLASS: Kind = Kind {
    is_answered_when_deleted: true,
    validate,
    validate_update,
    cells: |object, now| {
        let driver = cells::get_text(object, "/driverName");
        vec![cells::name_cell(object), driver.into(), cells::format_age(object, now)]
    },
    ..Kind::new("storage.k8s.io", "VolumeAttributesClass", "volumeattributesclasses")
};

/// The maximum size of the parameters together.
const LONGEST: usize = 256 * 1024;

fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    let name = get_text(value, "driverName").to_lowercase();
    if name.is_empty() {
        errors.push(FieldError::required("driverName", ""));
    } else {
        validate_name(qualified_name, &name, &FieldPath::new("driverName"), errors);
    }
    let parameters = value.get("parameters").and_then(Value::as_object);
    let count = parameters.map_or(0, serde_json::Map::len);
    if count > 512 {
        errors.push(too_long(&FieldPath::new("parameters"), 512));
        return;
    }
    if parameters.is_some_and(|parameters| parameters.contains_key("")) {
        errors.push(FieldError::invalid("parameters", "", "field can not be empty."));
    }
    let size: usize = parameters
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > LONGEST {
        errors.push(too_long(&FieldPath::new("parameters"), LONGEST));
    }
    if count == 0 {
        let why = "must contain at least one key/value pair";
        errors.push(FieldError::required("parameters", why));
    }
}

fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for field in ["driverName", "parameters"] {
        if value.get(field) != old.get(field) {
            let why = format!("updates to {field} are forbidden.");
            errors.push(FieldError::forbidden(field, why));
        }
    }
}
