//! Validation of Jobs and CronJobs: the Pods, the counts, and the status.

mod policies;
mod status;

use serde_json::Value;

use crate::core_group::pod::owners::{report_selector_mismatch, selects_labels, validate_non_negative};
use crate::core_group::pod::validation::{self as pods, ExtraVolumes};
use crate::schema::validation::metadata::label_selector;
use crate::schema::validation::names::{self, prefixed_path};
use crate::schema::validation::{get_text, one_of, validate_immutable};
use crate::schema::{FieldError, FieldErrorKind, FieldPath, Shown};

pub(crate) use status::job_status;

static NOTHING: Value = Value::Null;

/// The maximum number of Pods of an indexed Job that run at the same time, and of its indexes that may fail.
const MOST_OF_INDEXED: i64 = 100_000;
/// The number of completions above which [`MOST_OF_MANY`] applies, if the Job limits failures for each index.
const MANY: i64 = 100_000;
/// The limit in place of [`MOST_OF_INDEXED`] for Jobs with very many completions.
const MOST_OF_MANY: i64 = 10_000;
const LONGEST_MANAGER: usize = 63;

fn get_number(value: &Value, field: &str) -> Option<i64> {
    value.get(field).and_then(Value::as_i64)
}

fn is_indexed(spec: &Value) -> bool {
    get_text(spec, "completionMode") == "Indexed"
}

/// Checks a Job. `prefixed` is true if its Pods must have the labels with Kubernetes' prefix.
pub(crate) fn validate_job(value: &Value, prefixed: bool, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    generated_selector(value, spec, prefixed, errors);
    job_spec(spec, &path, errors);
    validate_selector(spec, &path, errors);
    let name = value
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if let Some(completions) =
        get_number(spec, "completions").filter(|completions| is_indexed(spec) && *completions > 0)
    {
        let host = format!("{name}-{}", completions - 1);
        if !names::find_label_errors(&host).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {host}");
            errors.push(FieldError::invalid("metadata.name", name, detail));
        }
    }
}

/// Checks that the server's selector matches the server's labels.
fn generated_selector(value: &Value, spec: &Value, prefixed: bool, errors: &mut Vec<FieldError>) {
    let Some(selector) = spec.get("selector") else { return };
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let own = |field: &str| {
        let metadata = value.get("metadata").unwrap_or(&NOTHING);
        Value::from(get_text(metadata, field))
    };
    let (name, uid) = (own("name"), own("uid"));
    let mut wanted = vec![("controller-uid", &uid), ("job-name", &name)];
    if prefixed {
        wanted.extend([
            ("batch.kubernetes.io/controller-uid", &uid),
            ("batch.kubernetes.io/job-name", &name),
        ]);
    }
    let labels = spec.pointer("/template/metadata/labels").unwrap_or(&NOTHING);
    let at = FieldPath::new("spec.template.metadata.labels");
    for (key, wanted) in &wanted {
        let detail = format!("must be '{}'", wanted.as_str().unwrap_or_default());
        match labels.get(*key) {
            None => errors.push(FieldError::required(at.key(key), detail)),
            Some(found) if found != *wanted => {
                errors.push(FieldError::invalid(at.key(key), labels.clone(), detail));
            }
            Some(_) => {}
        }
    }
    let expected: Value = wanted
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.clone()))
        .collect();
    if !selects_labels(selector, &expected) && is_readable(selector) {
        let detail = "`selector` not auto-generated";
        errors.push(FieldError::invalid("spec.selector", selector.clone(), detail));
    }
}

fn is_readable(selector: &Value) -> bool {
    let mut faults = Vec::new();
    label_selector(selector, &FieldPath::default(), &mut faults);
    faults.is_empty()
}

fn validate_selector(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let template = spec.get("template").unwrap_or(&NOTHING);
    let Some(selector) = spec.get("selector") else {
        errors.push(FieldError::required(path.child("selector"), ""));
        report_selector_mismatch(template, &path.child("template"), errors);
        return;
    };
    label_selector(selector, &path.child("selector"), errors);
    let labels = template.pointer("/metadata/labels").unwrap_or(&NOTHING);
    if is_readable(selector) && !selects_labels(selector, labels) {
        report_selector_mismatch(template, &path.child("template"), errors);
    }
}

/// Checks the fields that a Job shares with the Jobs of a CronJob.
pub(in crate::batch) fn job_spec(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let fields = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    validate_non_negative(spec, &fields, path, errors);
    if get_number(spec, "maxFailedIndexes").is_some() && get_number(spec, "backoffLimitPerIndex").is_none() {
        let detail = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(path.child("backoffLimitPerIndex"), detail));
    }
    managed_by(spec, path, errors);
    one_of(spec, "completionMode", &["NonIndexed", "Indexed"], false, path, errors);
    if is_indexed(spec) {
        validate_indexed_completion(spec, path, errors);
    } else if matches!(get_text(spec, "completionMode"), "" | "NonIndexed") {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(found) = get_number(spec, field) {
                let detail = "requires indexed completion mode";
                errors.push(FieldError::invalid(path.child(field), found, detail));
            }
        }
    }
    policies::validate_policies(spec, path, errors);
    let template = spec.get("template").unwrap_or(&NOTHING);
    pods::validate_template(template, &ExtraVolumes::new(), &path.child("template"), errors);
    let policy = template
        .pointer("/spec/restartPolicy")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let at = path.child("template").child("spec").child("restartPolicy");
    if matches!(policy, "" | "Always") {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        errors.push(FieldError::required(at, detail));
    } else if !matches!(policy, "OnFailure" | "Never") {
        errors.push(FieldError::not_supported(at, policy, &["OnFailure", "Never"]));
    } else if spec.get("podFailurePolicy").is_some() && policy != "Never" {
        let detail = "only \"Never\" is supported when podFailurePolicy is specified";
        errors.push(FieldError::invalid(at, policy, detail));
    }
}

fn managed_by(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(manager) = spec.get("managedBy").and_then(Value::as_str) else {
        return;
    };
    let at = path.child("managedBy");
    prefixed_path(manager, &at, errors);
    if manager.len() > LONGEST_MANAGER {
        let detail = format!("may not be more than {LONGEST_MANAGER} bytes");
        errors.push(FieldError::new(FieldErrorKind::TooLong, at, "", detail));
    }
}

fn validate_indexed_completion(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let completions = get_number(spec, "completions");
    let (parallel, failed) = (get_number(spec, "parallelism"), get_number(spec, "maxFailedIndexes"));
    if completions.is_none() {
        errors.push(FieldError::required(
            path.child("completions"),
            "when completion mode is Indexed",
        ));
    }
    let at_most = |field: &str, found: Option<i64>, most: i64, words: &str, errors: &mut Vec<FieldError>| {
        if let Some(found) = found.filter(|found| *found > most) {
            let detail = format!("must be less than or equal to {words}");
            errors.push(FieldError::invalid(path.child(field), found, detail));
        }
    };
    let words = format!("{MOST_OF_INDEXED} when completion mode is Indexed");
    at_most("parallelism", parallel, MOST_OF_INDEXED, &words, errors);
    if let Some(completions) = completions {
        at_most("maxFailedIndexes", failed, completions, "completions", errors);
    }
    at_most(
        "maxFailedIndexes",
        failed,
        MOST_OF_INDEXED,
        &MOST_OF_INDEXED.to_string(),
        errors,
    );
    if completions.is_some_and(|completions| completions > MANY) && get_number(spec, "backoffLimitPerIndex").is_some() {
        if failed.is_none() {
            let detail = format!("must be specified when completions is above {MANY}");
            errors.push(FieldError::required(path.child("maxFailedIndexes"), detail));
        }
        let words = format!("{MOST_OF_MANY} when completions are above {MANY} and used with backoff limit per index");
        at_most("parallelism", parallel, MOST_OF_MANY, &words, errors);
        at_most("maxFailedIndexes", failed, MOST_OF_MANY, &words, errors);
    }
}

/// Checks that the immutable fields of a Job stay.
pub(crate) fn job_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec");
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let before = old.get("spec").unwrap_or(&NOTHING);
    let labels = before.pointer("/template/metadata/labels").unwrap_or(&NOTHING);
    let prefixed = ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"]
        .iter()
        .all(|key| labels.get(*key).is_some());
    validate_job(value, prefixed, errors);
    let completions = get_number(spec, "completions");
    if !is_indexed(spec) {
        validate_immutable(spec, before, "completions", &path, errors);
    } else if completions.is_some()
        && completions != get_number(before, "completions")
        && completions != get_number(spec, "parallelism")
    {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid(path.child("completions"), completions, detail));
    }
    validate_immutable(spec, before, "selector", &path, errors);
    template_update(spec, old, before, &path, errors);
    for field in ["completionMode", "backoffLimitPerIndex", "managedBy"] {
        validate_immutable(spec, before, field, &path, errors);
    }
    for (field, shown) in [
        (
            "podFailurePolicy",
            policies::shown_failure_policy as fn(&Value) -> Shown,
        ),
        ("successPolicy", policies::shown_success_policy),
    ] {
        if spec.get(field) != before.get(field) {
            let shown = spec.get(field).map_or(Shown::Json(Value::Null), shown);
            errors.push(FieldError::invalid(path.child(field), shown, "field is immutable"));
        }
    }
}

/// Checks a change of the template. While a Job is suspended and runs no Pods, the placement and the resources of its Pods may change.
fn template_update(spec: &Value, old: &Value, before: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let template = spec.get("template").unwrap_or(&NOTHING);
    let mut kept = before.get("template").cloned().unwrap_or_default();
    let suspended = before.get("suspend").and_then(Value::as_bool) == Some(true);
    let status = old.get("status").unwrap_or(&NOTHING);
    let not_started = status.get("startTime").is_none() || status::is_true(status, "Suspended");
    let open = suspended && not_started && get_number(status, "active").unwrap_or(0) == 0;
    if !open {
        if *template != kept {
            let detail = "field is immutable";
            errors.push(FieldError::invalid(path.child("template"), template.clone(), detail));
        }
        return;
    }
    let pod = template.get("spec").unwrap_or(&NOTHING);
    take_scheduling(pod, &mut kept);
    for field in ["containers", "initContainers"] {
        let now = pod.get(field).and_then(Value::as_array).map(Vec::as_slice);
        let then = kept
            .pointer_mut(&format!("/spec/{field}"))
            .and_then(Value::as_array_mut);
        let (Some(now), Some(then)) = (now, then) else { continue };
        if now.len() != then.len() {
            continue;
        }
        for (now, then) in now.iter().zip(then) {
            if get_text(now, "name") == get_text(then, "name") {
                copy_field(now, then, "resources");
            }
        }
    }
    let then = kept.get("spec").unwrap_or(&NOTHING);
    if pod != then {
        let at = path.child("template.spec");
        errors.push(FieldError::invalid(at, pod.clone(), "field is immutable"));
    }
}

/// Copies a field from one object to another.
fn copy_field(from: &Value, to: &mut Value, field: &str) {
    if let Some(map) = to.as_object_mut() {
        match from.get(field) {
            Some(value) => map.insert(field.to_owned(), value.clone()),
            None => map.remove(field),
        };
    }
}

/// Copies the placement of Pods, which may change, except for their affinity to other Pods.
fn take_scheduling(pod: &Value, kept: &mut Value) {
    let Some(then) = kept.get_mut("spec") else { return };
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        copy_field(pod, then, field);
    }
    let now = pod.get("affinity").filter(|affinity| !affinity.is_null());
    if now.is_none() && then.get("affinity").is_none() {
        return;
    }
    let mut affinity = then.get("affinity").cloned().unwrap_or_else(|| serde_json::json!({}));
    copy_field(now.unwrap_or(&NOTHING), &mut affinity, "nodeAffinity");
    let gone = now.is_none() && affinity.as_object().is_some_and(serde_json::Map::is_empty);
    if let Some(map) = then.as_object_mut() {
        if gone {
            map.remove("affinity");
        } else {
            map.insert("affinity".to_owned(), affinity);
        }
    }
}
