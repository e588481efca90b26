//! Validation of CronJobs.

use serde_json::Value;

use super::schedule;
use crate::batch::job::validation::job_spec;
use crate::core_group::pod::owners::validate_non_negative;
use crate::schema::validation::{get_text, non_negative, one_of};
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

/// Checks a CronJob, new or in the place of `old`.
pub(super) fn validate(value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let before = old.map(|old| old.get("spec").unwrap_or(&NOTHING));
    let path = FieldPath::new("spec");
    let (when, at) = (get_text(spec, "schedule"), path.child("schedule"));
    let zone = spec.get("timeZone").and_then(Value::as_str);
    if when.is_empty() {
        errors.push(FieldError::required(at, ""));
    } else {
        if let Err(problem) = schedule::cron_schedule(when) {
            errors.push(FieldError::invalid(&at, when, problem));
        }
        let had_zone = before.is_some_and(|before| get_text(before, "schedule").contains("TZ"));
        if when.contains("TZ") && !had_zone {
            let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.push(FieldError::invalid(at, when, detail));
        } else if when.contains("TZ") && zone.is_some() {
            let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
            errors.push(FieldError::invalid(at, when, detail));
        }
    }
    non_negative(spec, "startingDeadlineSeconds", &path, errors);
    if let Some(zone) = zone
        && before.is_none_or(|before| before.get("timeZone") != spec.get("timeZone"))
        && let Some(problem) = schedule::time_zone(zone)
    {
        errors.push(FieldError::invalid(path.child("timeZone"), zone, problem));
    }
    let policies = ["Allow", "Forbid", "Replace"];
    one_of(spec, "concurrencyPolicy", &policies, true, &path, errors);
    let at = path.child("jobTemplate").child("spec");
    let job = spec.pointer("/jobTemplate/spec").unwrap_or(&NOTHING);
    job_spec(job, &at, errors);
    if let Some(selector) = job.get("selector") {
        let detail = "`selector` will be auto-generated";
        errors.push(FieldError::invalid(at.child("selector"), selector.clone(), detail));
    }
    if job.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        let at = at.child("manualSelector");
        errors.push(FieldError::not_supported(at, true, &["nil", "false"]));
    }
    validate_non_negative(
        spec,
        &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"],
        &path,
        errors,
    );
    let name = value
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if old.is_none() && name.len() > 52 {
        let detail = "must be no more than 52 characters";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
}
