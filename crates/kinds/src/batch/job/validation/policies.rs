//! The rules for failure and success of a Job: its policies, and the indexes that they name.

use std::collections::BTreeSet;

use serde_json::Value;
use tenure_checkpoint::checkpoint;

use super::{NOTHING, get_number, is_indexed};
use crate::schema::validation::metadata::qualified_name;
use crate::schema::validation::{get_text, is_empty_field, list_items, non_negative, one_of, show_go_struct};
use crate::schema::{FieldError, FieldErrorKind, FieldPath, Shown};

const MOST_RULES: usize = 20;
const MOST_EXIT_CODES: usize = 255;
const LONGEST_INDEXES: usize = 64 * 1024;

/// Checks the policies of a Job's spec.
pub(super) fn validate_policies(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let failure = spec.get("podFailurePolicy");
    if let Some(failure) = failure {
        let at = path.child("podFailurePolicy");
        too_many(failure, "rules", MOST_RULES, &at, errors);
        for (rule, at) in list_items(failure, "rules", &at) {
            failure_rule(spec, rule, &at, errors);
        }
    }
    if let Some(success) = spec.get("successPolicy") {
        let at = path.child("successPolicy");
        if is_indexed(spec) {
            success_policy(spec, success, &at, errors);
        } else {
            errors.push(FieldError::invalid(
                at,
                shown_success_policy(success),
                "requires indexed completion mode",
            ));
        }
    }
    let replacement = get_text(spec, "podReplacementPolicy");
    if !replacement.is_empty() {
        let known: &[&str] = if failure.is_some() {
            &["Failed"]
        } else {
            &["Failed", "TerminatingOrFailed"]
        };
        if !known.contains(&replacement) {
            // The error names the whole spec.
            let at = path.child("podReplacementPolicy");
            errors.push(FieldError::not_supported(at, replacement, known));
        }
    }
}

/// Returns a policy for failed pods as the real server shows it.
pub(super) fn shown_failure_policy(policy: &Value) -> Shown {
    let rules = policy.get("rules").and_then(Value::as_array).map(|rules| {
        let rules: Vec<String> = rules
            .iter()
            .map(|rule| {
                let codes = rule.get("onExitCodes").map_or(Shown::Json(Value::Null), |codes| {
                    let part = |field: &str| codes.get(field).unwrap_or(&NOTHING);
                    show_go_struct(&[
                        ("ContainerName", part("containerName")),
                        ("Operator", part("operator")),
                        ("Values", part("values")),
                    ])
                });
                let conditions = rule.get("onPodConditions").and_then(Value::as_array).map(|conditions| {
                    let conditions: Vec<String> = conditions
                        .iter()
                        .map(|one| {
                            let part = |field: &str| one.get(field).unwrap_or(&NOTHING);
                            show_go_struct(&[("Type", part("type")), ("Status", part("status"))]).to_string()
                        })
                        .collect();
                    format!("[{}]", conditions.join(","))
                });
                format!(
                    "{{\"Action\":{},\"OnExitCodes\":{},\"OnPodConditions\":{}}}",
                    rule.get("action").unwrap_or(&NOTHING),
                    codes,
                    conditions.unwrap_or_else(|| "null".to_owned())
                )
            })
            .collect();
        format!("[{}]", rules.join(","))
    });
    let rules = rules.unwrap_or_else(|| "null".to_owned());
    Shown::Verbatim(format!("{{\"Rules\":{rules}}}"))
}

/// Returns a policy for success as the real server shows it.
pub(super) fn shown_success_policy(policy: &Value) -> Shown {
    let rules = policy.get("rules").and_then(Value::as_array).map(|rules| {
        let rules: Vec<String> = rules
            .iter()
            .map(|rule| {
                let part = |field: &str| rule.get(field).unwrap_or(&NOTHING);
                show_go_struct(&[
                    ("SucceededIndexes", part("succeededIndexes")),
                    ("SucceededCount", part("succeededCount")),
                ])
                .to_string()
            })
            .collect();
        format!("[{}]", rules.join(","))
    });
    let rules = rules.unwrap_or_else(|| "null".to_owned());
    Shown::Verbatim(format!("{{\"Rules\":{rules}}}"))
}

fn too_many(value: &Value, field: &str, most: usize, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let count = value.get(field).and_then(Value::as_array).map_or(0, Vec::len);
    if count > most {
        let detail = format!("must have at most {most} items");
        errors.push(FieldError::new(FieldErrorKind::TooMany, at.child(field), count, detail));
    }
}

/// Checks a field that must have one of several values. The error for a missing field lists the values.
fn validate_choice(value: &Value, field: &str, known: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    if get_text(value, field).is_empty() {
        let quoted: Vec<String> = known.iter().map(|one| format!("{one:?}")).collect();
        let detail = format!("valid values: [{}]", quoted.join(" "));
        errors.push(FieldError::required(at.child(field), detail));
    } else {
        one_of(value, field, known, false, at, errors);
    }
}

fn failure_rule(spec: &Value, rule: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
    validate_choice(rule, "action", &actions, at, errors);
    if get_text(rule, "action") == "FailIndex" && get_number(spec, "backoffLimitPerIndex").is_none() {
        let detail = "requires the backoffLimitPerIndex to be set";
        errors.push(FieldError::invalid(at.child("action"), "FailIndex", detail));
    }
    let codes = rule.get("onExitCodes");
    if let Some(codes) = codes {
        exit_codes(spec, codes, &at.child("onExitCodes"), errors);
    }
    let by_condition = !is_empty_field(rule, "onPodConditions");
    too_many(rule, "onPodConditions", MOST_RULES, at, errors);
    for (pattern, at) in list_items(rule, "onPodConditions", at) {
        for complaint in qualified_name(get_text(pattern, "type")) {
            errors.push(FieldError::invalid(
                at.child("type"),
                get_text(pattern, "type"),
                complaint,
            ));
        }
        validate_choice(pattern, "status", &["False", "True", "Unknown"], &at, errors);
    }
    let detail = match (codes.is_some(), by_condition) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.push(FieldError::invalid(at, Shown::Omitted, detail));
}

fn exit_codes(spec: &Value, codes: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    validate_choice(codes, "operator", &["In", "NotIn"], at, errors);
    if let Some(name) = codes.get("containerName").and_then(Value::as_str) {
        let pod = spec.pointer("/template/spec").unwrap_or(&NOTHING);
        let known = ["containers", "initContainers"]
            .iter()
            .filter_map(|field| pod.get(*field)?.as_array())
            .flatten()
            .any(|container| {
                checkpoint();
                get_text(container, "name") == name
            });
        if !known {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.push(FieldError::invalid(at.child("containerName"), name, detail));
        }
    }
    let values: Vec<i64> = codes
        .get("values")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_i64)
        .collect();
    let shown = || codes.get("values").cloned().unwrap_or_default();
    if values.is_empty() {
        errors.push(FieldError::invalid(
            at.child("values"),
            shown(),
            "at least one value is required",
        ));
    }
    too_many(codes, "values", MOST_EXIT_CODES, at, errors);
    let mut seen = BTreeSet::new();
    for (index, code) in values.iter().enumerate() {
        let at = at.child("values").index(index);
        if *code == 0 && get_text(codes, "operator") == "In" {
            let detail = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(&at, 0, detail));
        }
        if !seen.insert(code) {
            errors.push(FieldError::duplicate(at, *code));
        }
    }
    if !values.is_sorted() {
        errors.push(FieldError::invalid(at.child("values"), shown(), "must be ordered"));
    }
}

fn success_policy(spec: &Value, policy: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if is_empty_field(policy, "rules") {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(at.child("rules"), detail));
    }
    too_many(policy, "rules", MOST_RULES, at, errors);
    let completions = get_number(spec, "completions").unwrap_or(0);
    for (rule, at) in list_items(policy, "rules", at) {
        let named = rule.get("succeededIndexes").and_then(Value::as_str);
        let count = get_number(rule, "succeededCount");
        if named.is_none() && count.is_none() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(FieldError::required(&at, detail));
        }
        let mut total = 0;
        if let Some(named) = named {
            let at = at.child("succeededIndexes");
            if named.len() > LONGEST_INDEXES {
                let detail = format!("may not be more than {LONGEST_INDEXES} bytes");
                errors.push(FieldError::new(FieldErrorKind::TooLong, &at, "", detail));
            }
            match parse_indexes(named, completions) {
                Ok(ranges) => total = ranges.iter().map(|(first, last)| last - first + 1).sum(),
                Err(problem) => {
                    let detail = format!("error parsing succeededIndexes: {problem}");
                    errors.push(FieldError::invalid(at, named, detail));
                }
            }
        }
        let Some(count) = count else { continue };
        non_negative(rule, "succeededCount", &at, errors);
        let at = at.child("succeededCount");
        if count > completions {
            let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.push(FieldError::invalid(&at, count, detail));
        }
        if named.is_some() && count > total {
            let detail = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.push(FieldError::invalid(at, count, detail));
        }
    }
}

/// Returns the ranges in a text such as `1,3-5`, in order.
pub(super) fn parse_indexes(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    if text.is_empty() {
        return Ok(ranges);
    }
    for part in text.split(',') {
        let (first, last) = parse_interval(part, completions)?;
        if let Some((_, before)) = ranges.last().filter(|(_, before)| *before >= first) {
            return Err(format!("non-increasing order, previous: {before}, current: {first}"));
        }
        ranges.push((first, last));
    }
    Ok(ranges)
}

/// Reads a range, or a single index.
pub(super) fn parse_interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let ends: Vec<&str> = part.split('-').collect();
    let index = |text: &str| {
        let number: i64 = text
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions {
            return Err(format!("too large index: {text:?}"));
        }
        Ok(number)
    };
    match ends.as_slice() {
        [only] => index(only).map(|index| (index, index)),
        [first, last] => {
            let (first, last) = (index(first)?, index(last)?);
            if first >= last {
                return Err(format!("non-increasing order, previous: {first}, current: {last}"));
            }
            Ok((first, last))
        }
        _ => Err(format!(
            "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_indexes() {
        assert_eq!(parse_indexes("", 3), Ok(Vec::new()));
        assert_eq!(parse_indexes("0,2-4", 5), Ok(vec![(0, 0), (2, 4)]));
        for bad in ["x", "5", "2-2", "3,1", "1-2-3", "1-9", ","] {
            assert!(parse_indexes(bad, 5).is_err(), "{bad}");
        }
    }
}
