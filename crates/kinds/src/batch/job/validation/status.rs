//! Validation of a Job's status and its changes. A finished or failed Job stays in that state.

use std::collections::BTreeSet;

use serde_json::Value;

use super::policies::{parse_indexes, parse_interval};
use super::{NOTHING, get_number, is_indexed};
use crate::schema::validation::{get_text, is_empty_field, list_items, non_negative, show_go_struct};
use crate::schema::{FieldError, FieldPath, Shown};

/// Returns whether a condition holds.
pub(super) fn is_true(status: &Value, kind: &str) -> bool {
    has_condition(status, kind, "True")
}

fn has_condition(status: &Value, kind: &str, found: &str) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| get_text(condition, "type") == kind && get_text(condition, "status") == found)
}

/// The status of a Job, with facts about it that several checks need.
struct Facts<'a> {
    status: &'a Value,
    complete: bool,
    failed: bool,
    target: bool,
    met: bool,
}

impl<'a> Facts<'a> {
    fn from_object(object: &'a Value) -> Self {
        let status = object.get("status").unwrap_or(&NOTHING);
        Self {
            status,
            complete: is_true(status, "Complete"),
            failed: is_true(status, "Failed"),
            target: is_true(status, "FailureTarget"),
            met: is_true(status, "SuccessCriteriaMet"),
        }
    }

    fn is_finished(&self) -> bool {
        self.complete || self.failed
    }

    fn count(&self, field: &str) -> i64 {
        get_number(self.status, field).unwrap_or(0)
    }
}

/// Checks the update of a status. Most invalid values are an error only if they change.
pub(crate) fn job_status(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("status");
    let (now, then) = (Facts::from_object(value), Facts::from_object(old));
    let spec = value.get("spec").unwrap_or(&NOTHING);
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        non_negative(now.status, field, &path, errors);
    }
    validate_uncounted_pods(now.status, &path, errors);
    validate_conditions(&now, &then, spec, errors);
    validate_times(&now, &then, spec, errors);
    validate_counters(&now, &then, spec, errors);
    index_texts(&now, &then, spec, errors);
}

fn validate_uncounted_pods(status: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    let pods = status.get("uncountedTerminatedPods").unwrap_or(&NOTHING);
    let path = path.child("uncountedTerminatedPods");
    for field in ["succeeded", "failed"] {
        for (uid, at) in list_items(pods, field, &path) {
            let uid = uid.as_str().unwrap_or_default();
            if uid.is_empty() {
                errors.push(FieldError::invalid(at, uid, "must not be empty"));
            } else if !seen.insert(uid) {
                errors.push(FieldError::duplicate(at, uid));
            }
        }
    }
}

fn validate_conditions(now: &Facts<'_>, then: &Facts<'_>, spec: &Value, errors: &mut Vec<FieldError>) {
    let complete_changed = now.complete != then.complete;
    let failed_changed = now.failed != then.failed;
    let failed_indexes_changed = now.status.get("failedIndexes") != then.status.get("failedIndexes");
    let by_policy = spec.get("successPolicy").is_some();
    let faults = [
        (
            (complete_changed || failed_changed) && now.complete && now.failed,
            "cannot set Complete=True and Failed=true conditions",
        ),
        (
            (complete_changed || now.target != then.target) && now.complete && now.target,
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            (failed_changed || failed_indexes_changed) && now.failed && !now.target,
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            (complete_changed || now.met != then.met) && now.complete && !now.met,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (
            now.met && now.failed,
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        ),
        (
            now.met && now.target,
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (
            by_policy && !now.met && now.complete,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
        (
            then.failed && !now.failed,
            "cannot disable the terminal Failed=True condition",
        ),
        (
            then.complete && !now.complete,
            "cannot disable the terminal Complete=True condition",
        ),
        (
            then.target && !now.target,
            "cannot disable the terminal FailureTarget=True condition",
        ),
        (
            then.met && !now.met,
            "cannot disable the SuccessCriteriaMet=True condition",
        ),
        (
            then.complete && !then.met && now.met,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        ),
    ];
    for (_, detail) in faults.into_iter().filter(|(applies, _)| *applies) {
        errors.push(FieldError::invalid("status.conditions", Shown::Omitted, detail));
    }
}

fn validate_times(now: &Facts<'_>, then: &Facts<'_>, spec: &Value, errors: &mut Vec<FieldError>) {
    fn read_time<'a>(facts: &Facts<'a>, field: &str) -> Option<&'a str> {
        facts.status.get(field).and_then(Value::as_str)
    }
    let (started, completed) = (read_time(now, "startTime"), read_time(now, "completionTime"));
    let start_changed = started != read_time(then, "startTime");
    let completion_changed = completed != read_time(then, "completionTime");
    let complete_changed = now.complete != then.complete || completion_changed;
    let suspended = spec.get("suspend").and_then(Value::as_bool) == Some(true);
    let shown = Value::from(completed);
    let at = "status.completionTime";
    if complete_changed && completed.is_some() && !now.complete {
        let detail = "cannot set completionTime when there is no Complete=True condition";
        errors.push(FieldError::invalid(at, shown.clone(), detail));
    }
    if complete_changed && completed.is_none() && now.complete {
        errors.push(FieldError::required(at, "completionTime is required for Complete jobs"));
    }
    // The times are texts in whole seconds and in one format, so text order is time order.
    if (start_changed || completion_changed) && completed.is_some() && started.is_some() && completed < started {
        errors.push(FieldError::invalid(
            at,
            shown.clone(),
            "must be equal to or after `startTime`",
        ));
    }
    if completion_changed && completed.is_some() && read_time(then, "completionTime").is_some() {
        errors.push(FieldError::invalid(at, shown, "field is immutable"));
    }
    let empty_run = suspended && get_number(spec, "completions") == Some(0);
    if (now.is_finished() != then.is_finished() || start_changed)
        && !empty_run
        && started.is_none()
        && now.is_finished()
    {
        errors.push(FieldError::required(
            "status.startTime",
            "startTime is required for finished job",
        ));
    }
    let resumed = is_true(then.status, "Suspended") && has_condition(now.status, "Suspended", "False");
    if start_changed && !resumed && read_time(then, "startTime").is_some() && !suspended {
        let detail = "field is immutable for unsuspended job once set";
        errors.push(FieldError::invalid("status.startTime", Value::from(started), detail));
    }
}

fn validate_counters(now: &Facts<'_>, then: &Facts<'_>, spec: &Value, errors: &mut Vec<FieldError>) {
    let finish_changed = now.is_finished() != then.is_finished();
    let changed = |field: &str| now.status.get(field) != then.status.get(field);
    for (field, detail) in [
        ("active", "active>0 is invalid for finished job"),
        ("terminating", "terminating>0 is invalid for finished job"),
    ] {
        if (finish_changed || changed(field)) && now.is_finished() && now.count(field) > 0 {
            let at = format!("status.{field}");
            errors.push(FieldError::invalid(at, now.count(field), detail));
        }
    }
    let pods = now.status.get("uncountedTerminatedPods").unwrap_or(&NOTHING);
    let any = ["succeeded", "failed"].iter().any(|field| !is_empty_field(pods, field));
    if (finish_changed || changed("uncountedTerminatedPods")) && now.is_finished() && any {
        let [succeeded, failed] = ["succeeded", "failed"].map(|field| pods.get(field).unwrap_or(&NOTHING));
        let shown = show_go_struct(&[("Succeeded", succeeded), ("Failed", failed)]);
        let detail = "must be empty for finished job";
        errors.push(FieldError::invalid("status.uncountedTerminatedPods", shown, detail));
    }
    let known = now.status.get("ready").is_some();
    if (changed("ready") || changed("active")) && known && now.count("ready") > now.count("active") {
        let detail = "cannot set more ready pods than active";
        errors.push(FieldError::invalid("status.ready", now.count("ready"), detail));
    }
    if now.count("failed") < then.count("failed") {
        let detail = "cannot decrease the failed counter";
        errors.push(FieldError::invalid("status.failed", now.count("failed"), detail));
    }
    let scaled = is_indexed(spec) && get_number(spec, "completions") == get_number(spec, "parallelism");
    if !scaled && now.count("succeeded") < then.count("succeeded") {
        let detail = "cannot decrease the succeeded counter";
        errors.push(FieldError::invalid("status.succeeded", now.count("succeeded"), detail));
    }
}

fn index_texts(now: &Facts<'_>, then: &Facts<'_>, spec: &Value, errors: &mut Vec<FieldError>) {
    let completed = get_text(now.status, "completedIndexes");
    let failed = now.status.get("failedIndexes").and_then(Value::as_str);
    let completed_changed = completed != get_text(then.status, "completedIndexes");
    let failed_changed = failed != then.status.get("failedIndexes").and_then(Value::as_str);
    let completions = get_number(spec, "completions");
    let limited = get_number(spec, "backoffLimitPerIndex").is_some();
    let mut fault = |field: &str, found: &str, detail: String| {
        errors.push(FieldError::invalid(format!("status.{field}"), found, detail));
    };
    if let Some(completions) = completions {
        if completed_changed && let Err(problem) = parse_indexes(completed, completions) {
            fault(
                "completedIndexes",
                completed,
                format!("error parsing completedIndexes: {problem}"),
            );
        }
        if failed_changed
            && limited
            && let Some(failed) = failed
            && let Err(problem) = parse_indexes(failed, completions)
        {
            fault(
                "failedIndexes",
                failed,
                format!("error parsing failedIndexes: {problem}"),
            );
        }
    }
    if completed_changed && !completed.is_empty() && !is_indexed(spec) {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        fault("completedIndexes", completed, detail.to_owned());
    }
    let Some(failed) = failed else { return };
    if failed_changed && !limited {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        fault("failedIndexes", failed, detail.to_owned());
    }
    if (failed_changed || completed_changed)
        && let Some(completions) = completions
        && let Some(index) = find_overlap(completed, failed, completions)
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        fault("failedIndexes", failed, detail);
    }
}

/// Returns the first index that is both completed and failed. Other checks report unreadable indexes.
fn find_overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',')
            .filter_map(|part| parse_interval(part, completions).ok())
            .collect()
    };
    let failed = read(failed);
    read(completed).into_iter().find_map(|(first, last)| {
        failed
            .iter()
            .find(|(from, to)| first <= *to && *from <= last)
            .map(|(from, _)| first.max(*from))
    })
}
