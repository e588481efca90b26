//! ReplicationControllers.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::core::pod::template::{self, TEMPLATE};
use crate::kind::{Generation, Kind};
use crate::schema::defaults;
use crate::schema::validation::{statuses, workloads};
use crate::table::cells;

/// ReplicationControllers.
pub(super) static REPLICATION_CONTROLLER: Kind = Kind {
    etcd_folder: Some("controllers"),
    selectable_fields: &["status.replicas"],
    // They are older than the question what becomes of dependents.
    default_propagation: Some("Orphan"),
    generation: Generation::Counted,
    initial_status: Some(|| json!({"replicas": 0})),
    pod_spec: Some(TEMPLATE),
    drop_disabled: template::drop_disabled_of_template,
    defaults: |_, object| fill_in(object),
    validate_create: |value, errors| workloads::object("ReplicationController", value, None, errors),
    validate_update: |value, old, errors| workloads::object("ReplicationController", value, Some(old), errors),
    validate_status: |value, old, errors| statuses::counted("ReplicationController", value, old, errors),
    warnings: |object, live| {
        if template::has_same_generation(object, live) {
            return Vec::new();
        }
        // The real server looks at the former template of a changed one.
        template::warnings(live.unwrap_or(object))
    },
    cells: show_replicas,
    ..Kind::named("", "ReplicationController", "replicationcontrollers")
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

/// Who has no labels of its own has those of its Pods.
pub(crate) fn fill_in_labels(object: &mut Map<String, Value>, labels: Value) {
    if let Some(metadata) = defaults::object_at(object, "metadata")
        && defaults::is_empty(metadata, "labels")
    {
        metadata.insert("labels".into(), labels);
    }
}

/// What is shown of what keeps a number of Pods.
pub(crate) fn show_replicas(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = cells::containers(object, cells::CONTAINERS);
    let plain = object
        .pointer("/spec/selector")
        .is_some_and(|found| found.get("matchLabels").is_none() && found.get("matchExpressions").is_none());
    vec![
        cells::name(object),
        cells::number(object, "/spec/replicas").into(),
        cells::number(object, "/status/replicas").into(),
        cells::number(object, "/status/readyReplicas").into(),
        cells::age(object, now),
        names,
        images,
        // A ReplicationController's selector is a map.
        if plain {
            cells::labels(object, "/spec/selector")
        } else {
            cells::selector(object, "/spec/selector")
        }
        .into(),
    ]
}
