//! The kind ReplicationController.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::core_group::pod::counts::{Counts, validate_counts};
use crate::core_group::pod::owners::{have_labels, report_selector_mismatch, validate_endless_template};
use crate::core_group::pod::template::{self, TEMPLATE};
use crate::core_group::pod::validation as pods;
use crate::core_group::pod::validation::ExtraVolumes;
use crate::kind::{Generation, Kind};
use crate::schema::validation::{is_empty_field, non_negative};
use crate::schema::{FieldError, FieldPath, defaults};
use crate::table::cells;

/// The counts in a status.
const COUNTS: Counts = Counts {
    all: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
    ],
    parts: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ready: Counts::PLAIN,
};

/// ReplicationControllers.
pub(super) static REPLICATION_CONTROLLER: Kind = Kind {
    etcd_folder: Some("controllers"),
    selectable_fields: &["status.replicas"],
    // ReplicationControllers are older than the deletion policies for dependents, so the default is Orphan.
    default_propagation: Some("Orphan"),
    generation: Generation::Counted,
    initial_status: Some(|| json!({"replicas": 0})),
    pod_spec: Some(TEMPLATE),
    drop_disabled: template::drop_disabled_of_template,
    defaults: |_, object| fill_in(object),
    validate,
    validate_status: |value, old, errors| validate_counts(&COUNTS, value, old, errors),
    warnings: |object, live| {
        if template::has_same_generation(object, live) {
            return Vec::new();
        }
        // The real server looks at the former template of a changed one.
        template::list_warnings(live.unwrap_or(object))
    },
    cells: show_replicas,
    is_counted_by_plural: true,
    ..Kind::new("", "ReplicationController", "replicationcontrollers")
};

fn fill_in(object: &mut Map<String, Value>) {
    defaults::with_spec(object, |spec| defaults::set(spec, "replicas", 1));
    let labels = object
        .get("spec")
        .and_then(|spec| spec.pointer("/template/metadata/labels"))
        .cloned();
    if let Some(labels) = labels {
        defaults::with_spec(object, |spec| {
            if defaults::is_empty(spec, "selector") {
                spec.insert("selector".into(), labels.clone());
            }
        });
        fill_in_labels(object, labels);
    }
}

/// Gives an object without labels the labels of its Pods.
pub(crate) fn fill_in_labels(object: &mut Map<String, Value>, labels: Value) {
    if let Some(metadata) = defaults::object_at(object, "metadata")
        && defaults::is_empty(metadata, "labels")
    {
        metadata.insert("labels".into(), labels);
    }
}

/// Shows the table cells of a controller with a number of Pods.
pub(crate) fn show_replicas(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = cells::format_containers(object, cells::CONTAINERS);
    let plain = object
        .pointer("/spec/selector")
        .is_some_and(|found| found.get("matchLabels").is_none() && found.get("matchExpressions").is_none());
    vec![
        cells::name_cell(object),
        cells::get_number(object, "/spec/replicas").into(),
        cells::get_number(object, "/status/replicas").into(),
        cells::get_number(object, "/status/readyReplicas").into(),
        cells::format_age(object, now),
        names,
        images,
        // A ReplicationController's selector is a map.
        if plain {
            cells::format_labels(object, "/spec/selector")
        } else {
            cells::format_selector(object, "/spec/selector")
        }
        .into(),
    ]
}

static NOTHING: Value = Value::Null;

fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    replication_controller(value.get("spec").unwrap_or(&NOTHING), &FieldPath::new("spec"), errors);
}

fn replication_controller(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    non_negative(spec, "minReadySeconds", path, errors);
    if is_empty_field(spec, "selector") {
        errors.push(FieldError::required(path.child("selector"), ""));
    }
    if spec.get("replicas").is_none() {
        errors.push(FieldError::required(path.child("replicas"), ""));
    }
    non_negative(spec, "replicas", path, errors);
    let at = path.child("template");
    let Some(template) = spec.get("template") else {
        errors.push(FieldError::required(at, ""));
        return;
    };
    let labels = template.pointer("/metadata/labels").unwrap_or(&NOTHING);
    if !have_labels(labels, spec.get("selector").and_then(Value::as_object)) {
        report_selector_mismatch(template, &at, errors);
    }
    pods::validate_template(template, &ExtraVolumes::new(), &at, errors);
    validate_endless_template(template, "ReplicationController", &at, errors);
}
