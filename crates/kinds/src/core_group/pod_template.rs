//! The kind PodTemplate.

use serde_json::Value;

use crate::core_group::pod::validation::ExtraVolumes;
use crate::core_group::pod::{template, validation as pods};
use crate::kind::{Generation, Kind};
use crate::schema::{FieldError, FieldPath};
use crate::table::cells;

/// PodTemplates.
pub(super) static POD_TEMPLATE: Kind = Kind {
    is_answered_when_deleted: true,
    generation: Generation::Counted,
    pod_spec: Some("/template/spec"),
    drop_disabled: |object, live| template::drop_disabled("/template/spec", object, live),
    validate,
    warnings: |object, live| {
        if template::has_same_generation(object, live) {
            return Vec::new();
        }
        template::warnings_at(object, "/template")
    },
    cells: |object, _| show(object),
    ..Kind::new("", "PodTemplate", "podtemplates")
};

fn show(object: &Value) -> Vec<Value> {
    let [names, images] = cells::format_containers(object, "/template/spec/containers");
    vec![
        cells::name_cell(object),
        names,
        images,
        cells::format_labels(object, "/template/metadata/labels").into(),
    ]
}

static NOTHING: Value = Value::Null;

fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    let template = value.get("template").unwrap_or(&NOTHING);
    pods::validate_template(template, &ExtraVolumes::new(), &FieldPath::new("template"), errors);
}
