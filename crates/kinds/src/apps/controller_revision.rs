//! The kind ControllerRevision.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;
use crate::schema::validation::{non_negative, validate_immutable};
use crate::schema::{FieldError, FieldPath};
use crate::table::cells;

/// ControllerRevisions.
pub(super) static CONTROLLER_REVISION: Kind = Kind {
    validate_create: |value, errors| validate_data(value, None, errors),
    validate_update: |value, old, errors| validate_data(value, Some(old), errors),
    cells: show,
    ..Kind::new("apps", "ControllerRevision", "controllerrevisions")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = cells::list_items(object, "/metadata/ownerReferences")
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)));
    let owner = owner.map_or(cells::NONE.to_owned(), |owner| {
        let version = cells::get_text(owner, "/apiVersion");
        let kind = cells::get_text(owner, "/kind").to_lowercase();
        let kind = version
            .split_once('/')
            .map_or(kind.clone(), |(group, _)| format!("{kind}.{group}"));
        format!("{kind}/{}", cells::get_text(owner, "/name"))
    });
    vec![
        cells::name_cell(object),
        owner.into(),
        cells::get_number(object, "/revision").into(),
        cells::format_age(object, now),
    ]
}

fn validate_data(value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let root = FieldPath::default();
    non_negative(value, "revision", &root, errors);
    if let Some(old) = old {
        validate_immutable(value, old, "data", &root, errors);
        return;
    }
    let detail = match value.get("data") {
        None | Some(Value::Null) => "data is mandatory",
        Some(Value::Object(_)) => return,
        Some(_) => "data must be a valid JSON object",
    };
    errors.push(FieldError::required("data", detail));
}
