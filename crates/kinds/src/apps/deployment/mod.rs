//! The kind Deployment.

mod validation;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::core_group::pod::counts::{Counts, validate_counts};
use crate::core_group::pod::template::{self, TEMPLATE};
use crate::kind::{Generation, Kind};
use crate::schema::defaults;
use crate::table::cells;

/// The counts in a status.
const COUNTS: Counts = Counts {
    all: &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ],
    parts: &["updatedReplicas", "readyReplicas", "availableReplicas"],
    ready: Counts::PLAIN,
};

/// Deployments.
pub(super) static DEPLOYMENT: Kind = Kind {
    generation: Generation::Counted,
    // A change of annotations counts, because they are copied to the ReplicaSets.
    counted_metadata: Some("annotations"),
    initial_status: Some(|| json!({})),
    kept_from_status: &["labels"],
    pod_spec: Some(TEMPLATE),
    drop_disabled: template::drop_disabled_of_template,
    defaults: |_, object| defaults::with_spec(object, fill_in),
    validate: validation::validate,
    validate_update: validation::validate_update,
    validate_status: |value, old, errors| validate_counts(&COUNTS, value, old, errors),
    warnings: template::warnings_of_changed_generation,
    cells: show,
    ..Kind::new("apps", "Deployment", "deployments")
};

fn fill_in(spec: &mut Map<String, Value>) {
    defaults::set(spec, "replicas", 1);
    if let Some(strategy) = defaults::object_at(spec, "strategy") {
        defaults::set(strategy, "type", "RollingUpdate");
        if defaults::get_text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = defaults::object_at(strategy, "rollingUpdate")
        {
            defaults::set(rolling, "maxUnavailable", "25%");
            defaults::set(rolling, "maxSurge", "25%");
        }
    }
    defaults::set(spec, "revisionHistoryLimit", 10);
    defaults::set(spec, "progressDeadlineSeconds", 600);
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = cells::format_containers(object, cells::CONTAINERS);
    let ready = format!(
        "{}/{}",
        cells::get_number(object, "/status/readyReplicas"),
        cells::get_number(object, "/spec/replicas")
    );
    let selected = cells::format_selector(object, "/spec/selector");
    vec![
        cells::name_cell(object),
        ready.into(),
        cells::get_number(object, "/status/updatedReplicas").into(),
        cells::get_number(object, "/status/availableReplicas").into(),
        cells::format_age(object, now),
        names,
        images,
        // A Deployment's selector is printed by another function, to which nothing is the empty text.
        if selected == cells::NONE {
            Value::from("")
        } else {
            selected.into()
        },
    ]
}
