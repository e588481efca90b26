//! DaemonSets, and the deprecated generation of their templates, which an annotation stores.

mod validation;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::core_group::pod::counts::{Counts, validate_counts};
use crate::core_group::pod::template::{self, TEMPLATE};
use crate::kind::{Generation, Kind};
use crate::object::ObjectExt;
use crate::schema::defaults;
use crate::table::cells;

/// The counts in a status.
const COUNTS: Counts = Counts {
    all: &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ],
    parts: &[],
    ready: Counts::PLAIN,
};

/// DaemonSets.
pub(super) static DAEMON_SET: Kind = Kind {
    generation: Generation::Counted,
    initial_status: Some(|| {
        json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        })
    }),
    pod_spec: Some(TEMPLATE),
    drop_disabled: template::drop_disabled_of_template,
    normalize: |_, object| write_count(object),
    prepare_create: |_, object| start_count(object),
    prepare_update: |_, live, new| count_change(live, new),
    defaults: |_, object| defaults::with_spec(object, fill_in),
    validate_create: validation::validate,
    validate_update: validation::validate_update,
    validate_status: |value, old, errors| validate_counts(&COUNTS, value, old, errors),
    warnings: |object, live| {
        let is_untouched = live.is_some_and(|live| live.pointer(template::AT) == object.pointer(template::AT));
        if is_untouched {
            Vec::new()
        } else {
            template::list_warnings(object)
        }
    },
    cells: show,
    ..Kind::new("apps", "DaemonSet", "daemonsets")
};

const ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// Returns the template generation in the annotation; zero if it is missing or unreadable.
fn read_count(object: &Value) -> i64 {
    let annotations = object.metadata().and_then(|metadata| metadata.get("annotations"));
    let text = annotations.and_then(|annotations| annotations.get(ANNOTATION));
    text.and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// Writes the template generation into the annotation.
fn set_count(object: &mut Value, count: i64) {
    if let Some(metadata) = object.metadata_mut() {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if !annotations.is_object() {
            *annotations = json!({});
        }
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(ANNOTATION.to_owned(), Value::from(count.to_string()));
        }
    }
}

/// Writes the template generation into an object from a client, even if the generation is zero.
fn write_count(object: &mut Value) {
    let count = read_count(object);
    set_count(object, count);
}

/// Sets the template generation of a new DaemonSet.
fn start_count(object: &mut Value) {
    set_count(object, 1);
}

/// Sets the template generation: that of the live object, and one more if the template changes.
fn count_change(live: &Value, new: &mut Value) {
    let changed = live.pointer("/spec/template") != new.pointer("/spec/template");
    set_count(new, read_count(live) + i64::from(changed));
}

fn fill_in(spec: &mut Map<String, Value>) {
    if let Some(strategy) = defaults::object_at(spec, "updateStrategy") {
        defaults::set(strategy, "type", "RollingUpdate");
        if defaults::get_text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = defaults::object_at(strategy, "rollingUpdate")
        {
            defaults::set(rolling, "maxUnavailable", 1);
            defaults::set(rolling, "maxSurge", 0);
        }
    }
    defaults::set(spec, "revisionHistoryLimit", 10);
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = cells::format_containers(object, cells::CONTAINERS);
    let status = |field: &str| Value::from(cells::get_number(object, &format!("/status/{field}")));
    vec![
        cells::name_cell(object),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        cells::format_labels(object, "/spec/template/spec/nodeSelector").into(),
        cells::format_age(object, now),
        names,
        images,
        cells::format_selector(object, "/spec/selector").into(),
    ]
}
