//! Jobs, and the selector that the server makes, unless the user manages the selector.

pub(super) mod validation;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::core_group::pod::template::{self, TEMPLATE};
use crate::core_group::replication_controller::fill_in_labels;
use crate::kind::{Generation, Kind};
use crate::object::ObjectExt;
use crate::schema::defaults;
use crate::table::{cells, duration};

/// Jobs.
pub(super) static JOB: Kind = Kind {
    selectable_fields: &["status.successful"],
    refuse_field: Some(|field| format!("field label {field:?} not supported for Job")),
    // Jobs are older than the deletion policies for dependents, so the default is Orphan.
    default_propagation: Some("Orphan"),
    deletion_warning: Some(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
    ),
    generation: Generation::Counted,
    initial_status: Some(|| json!({})),
    pod_spec: Some(TEMPLATE),
    drop_disabled: template::drop_disabled_of_template,
    prepare_create: |_, object| set_pod_selector(object),
    complete_created: default_labels,
    prepare_update: |_, _, new| default_labels(new),
    defaults: |_, object| fill_in(object),
    validate_create: |value, errors| validation::validate_job(value, true, errors),
    validate_update: validation::job_update,
    validate_status: validation::job_status,
    warnings: template::warnings_of_changed_generation,
    cells: show,
    ..Kind::new("batch", "Job", "jobs")
};

/// Selects a Job's Pods by its UID, and labels them, unless its writer manages that.
fn set_pod_selector(object: &mut Value) {
    if object.pointer("/spec/manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let (name, uid) = (object.name().to_owned(), object.uid().to_owned());
    let labels = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    let add = |metadata: &mut Map<String, Value>| {
        let map = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(map) = map.as_object_mut() {
            // The validation refuses a contradicting label later.
            for (key, value) in labels {
                map.entry(key).or_insert_with(|| Value::from(value.as_str()));
            }
        }
    };
    // In Kubernetes, labels that come from the template by default share one map with it: an addition to the one is an addition to the
    // other. The exception is a Job with a generated name, because Kubernetes works on a copy.
    let own = object.metadata().and_then(|metadata| metadata.get("labels")).cloned();
    let generated = object
        .metadata()
        .is_some_and(|metadata| metadata.contains_key("generateName"));
    if own.is_some()
        && !generated
        && own.as_ref() == object.pointer("/spec/template/metadata/labels")
        && let Some(metadata) = object.metadata_mut()
    {
        add(metadata);
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let selector = spec.entry("selector").or_insert_with(|| json!({}));
    if let Some(selector) = selector.as_object_mut()
        && let Some(selected) = selector
            .entry("matchLabels")
            .or_insert_with(|| json!({}))
            .as_object_mut()
    {
        let key = "batch.kubernetes.io/controller-uid";
        selected.entry(key).or_insert_with(|| Value::from(uid.as_str()));
    }
    let metadata = spec
        .get_mut("template")
        .and_then(Value::as_object_mut)
        .map(|template| template.entry("metadata").or_insert_with(|| json!({})));
    if let Some(Value::Object(metadata)) = metadata {
        add(metadata);
    }
}

/// Gives a Job without labels the labels of its Pods.
fn default_labels(object: &mut Value) {
    let labels = |pointer: &str| {
        let found = object.pointer(pointer).and_then(Value::as_object);
        found.filter(|labels| !labels.is_empty()).cloned()
    };
    if labels("/metadata/labels").is_none()
        && let Some(labels) = labels("/spec/template/metadata/labels")
    {
        object.set_meta("labels", Value::Object(labels));
    }
}

fn fill_in(object: &mut Map<String, Value>) {
    defaults::with_spec(object, |spec| {
        if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
            spec.insert("completions".into(), 1.into());
        }
        defaults::set(spec, "parallelism", 1);
        let limit = if spec.contains_key("backoffLimitPerIndex") {
            i32::MAX
        } else {
            6
        };
        defaults::set(spec, "backoffLimit", limit);
        defaults::set(spec, "completionMode", "NonIndexed");
        defaults::set(spec, "suspend", false);
        let replacement = if spec.contains_key("podFailurePolicy") {
            "Failed"
        } else {
            "TerminatingOrFailed"
        };
        defaults::set(spec, "podReplacementPolicy", replacement);
        defaults::set(spec, "manualSelector", false);
    });
    let labels = object
        .get("spec")
        .and_then(|spec| spec.pointer("/template/metadata/labels"))
        .cloned();
    if let Some(labels) = labels {
        fill_in_labels(object, labels);
    }
}

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = cells::get_number(object, "/status/succeeded");
    let parallelism = cells::get_number(object, "/spec/parallelism");
    let completions = match object.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let time = |pointer: &str| cells::get_text(object, pointer).parse::<Timestamp>().ok();
    let duration = match (time("/status/startTime"), time("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => duration::human_duration(end.unwrap_or(now).as_second() - start.as_second()),
    };
    let has = |kind: &str| {
        let found = |condition: &&Value| {
            cells::get_text(condition, "/type") == kind && cells::get_text(condition, "/status") == "True"
        };
        cells::list_items(object, "/status/conditions")
            .iter()
            .any(|condition| found(&condition))
    };
    let deleted = !cells::get_text(object, "/metadata/deletionTimestamp").is_empty();
    let status = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if deleted {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
            .into_iter()
            .find(|kind| has(kind))
            .unwrap_or("Running")
    };
    let [names, images] = cells::format_containers(object, cells::CONTAINERS);
    vec![
        cells::name_cell(object),
        status.into(),
        completions.into(),
        duration.into(),
        cells::format_age(object, now),
        names,
        images,
        cells::format_selector(object, "/spec/selector").into(),
    ]
}
