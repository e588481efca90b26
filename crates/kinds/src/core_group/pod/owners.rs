//! Code for kinds that create Pods: selectors with the matching templates, and numbers or percentages of Pods.

use serde_json::{Map, Value, json};

use crate::core_group::pod::validation as pods;
use crate::core_group::pod::validation::ExtraVolumes;
use crate::schema::validation::metadata::label_selector;
use crate::schema::validation::{get_text, is_empty_field, list_items, non_negative, show_go_struct};
use crate::schema::{FieldError, FieldPath, Shown};

static NOTHING: Value = Value::Null;

/// Checks that numbers are not negative.
pub(crate) fn validate_non_negative(value: &Value, fields: &[&str], path: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in fields {
        non_negative(value, field, path, errors);
    }
}

/// Shows a strategy as the real server prints it. `parts` are the fields of its rolling update with their defaults.
pub(crate) fn shown_strategy(strategy: &Value, parts: &[(&str, &str, Value)]) -> Shown {
    let kind = strategy.get("type").unwrap_or(&NOTHING);
    let rolling = strategy
        .get("rollingUpdate")
        .map_or_else(|| "null".to_owned(), |rolling| shown_update(rolling, parts).to_string());
    Shown::Verbatim(format!("{{\"Type\":{kind},\"RollingUpdate\":{rolling}}}"))
}

/// Returns a rolling update as the real server shows it.
pub(crate) fn shown_update(rolling: &Value, parts: &[(&str, &str, Value)]) -> Shown {
    let parts: Vec<(&str, &Value)> = parts
        .iter()
        .map(|(go, field, default)| (*go, rolling.get(*field).unwrap_or(default)))
        .collect();
    show_go_struct(&parts)
}

/// Returns the fields of a rolling update that are numbers of Pods.
pub(crate) fn list_rolling_update_fields() -> [(&'static str, &'static str, Value); 2] {
    [
        ("MaxUnavailable", "maxUnavailable", json!(0)),
        ("MaxSurge", "maxSurge", json!(0)),
    ]
}

/// Checks whether a number or percentage of Pods is zero or missing.
pub(crate) fn is_none(value: &Value, field: &str) -> bool {
    match value.get(field) {
        None => true,
        Some(Value::String(percent)) => percent
            .strip_suffix('%')
            .and_then(|digits| digits.parse::<u64>().ok())
            .is_none_or(|share| share == 0),
        Some(number) => number.as_i64() == Some(0),
    }
}

/// Checks a number or a percentage of Pods.
pub(crate) fn int_or_percent(value: &Value, field: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match value.get(field) {
        Some(Value::String(percent)) => {
            let digits = percent.strip_suffix('%').filter(|digits| !digits.is_empty());
            if !digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
                let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                errors.push(FieldError::invalid(path.child(field), percent.as_str(), detail));
            }
        }
        _ => non_negative(value, field, path, errors),
    }
}

/// Checks that a percentage is at most 100.
pub(crate) fn validate_percentage(value: &Value, field: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(Value::String(percent)) = value.get(field)
        && percent
            .strip_suffix('%')
            .and_then(|digits| digits.parse::<i64>().ok())
            .is_some_and(|number| number > 100)
    {
        errors.push(FieldError::invalid(
            path.child(field),
            percent.as_str(),
            "must not be greater than 100%",
        ));
    }
}

/// Checks the selector, and a template whose labels the selector must match.
pub(crate) fn selected_template(
    spec: &Value,
    word: &str,
    owner: &str,
    extra: &ExtraVolumes,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let at = path.child("template");
    let at_selector = path.child("selector");
    let template = spec.get("template").unwrap_or(&NOTHING);
    match spec.get("selector") {
        None => {
            errors.push(FieldError::required(at_selector, ""));
            // No selector selects nothing.
            report_selector_mismatch(template, &at, errors);
        }
        Some(selector) => {
            let before = errors.len();
            label_selector(selector, &at_selector, errors);
            let unsound = errors.len() > before;
            empty_selector(selector, word, &at_selector, errors);
            if unsound {
                let detail = if word == "statefulset" {
                    ""
                } else {
                    "invalid label selector"
                };
                errors.push(FieldError::invalid(at_selector, shown_selector(selector), detail));
                if word == "statefulset" {
                    validate_endless_template(template, owner, &at, errors);
                }
                return;
            }
            if !selects_labels(selector, template.pointer("/metadata/labels").unwrap_or(&NOTHING)) {
                report_selector_mismatch(template, &at, errors);
            }
        }
    }
    pods::validate_template(template, extra, &at, errors);
    if word == "statefulset" {
        // The metadata is checked twice, as in the real server.
        pods::template_metadata(template, &at, errors);
    }
    validate_endless_template(template, owner, &at, errors);
}

pub(crate) fn empty_selector(selector: &Value, word: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if is_empty_field(selector, "matchLabels") && is_empty_field(selector, "matchExpressions") {
        let detail = format!("empty selector is invalid for {word}");
        errors.push(FieldError::invalid(at, shown_selector(selector), detail));
    }
}

/// Returns a selector as the real server shows it: labels first.
pub(crate) fn shown_selector(selector: &Value) -> Shown {
    let parts = ["matchLabels", "matchExpressions"].into_iter();
    let parts: Vec<(&str, &Value)> = parts
        .filter(|part| !is_empty_field(selector, part))
        .filter_map(|part| Some((part, selector.get(part)?)))
        .collect();
    show_go_struct(&parts)
}

/// Checks that the selector stays unchanged.
pub(crate) fn fixed_selector(spec: &Value, before: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if spec.get("selector") != before.get("selector") {
        let shown = spec.get("selector").map_or(Shown::Json(Value::Null), shown_selector);
        errors.push(FieldError::invalid(path.child("selector"), shown, "field is immutable"));
    }
}

/// Checks a template of a controller whose Pods run without end.
pub(crate) fn validate_endless_template(template: &Value, owner: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let inner = template.get("spec").unwrap_or(&NOTHING);
    let at = at.child("spec");
    if get_text(inner, "restartPolicy") != "Always" {
        errors.push(FieldError::not_supported(
            at.child("restartPolicy"),
            get_text(inner, "restartPolicy"),
            &["Always"],
        ));
    }
    if inner.get("activeDeadlineSeconds").is_some() {
        let detail = format!("activeDeadlineSeconds in {owner} is not Supported");
        errors.push(FieldError::forbidden(at.child("activeDeadlineSeconds"), detail));
    }
}

/// Reports that a selector does not match the Pods of its own template.
pub(crate) fn report_selector_mismatch(template: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
    let at = at.child("metadata").child("labels");
    errors.push(FieldError::invalid(
        at,
        labels,
        "`selector` does not match template `labels`",
    ));
}

/// Returns whether labels have all of these.
pub(crate) fn have_labels(labels: &Value, wanted: Option<&Map<String, Value>>) -> bool {
    let mut wanted = wanted.into_iter().flatten();
    wanted.all(|(key, value)| labels.get(key).and_then(Value::as_str) == value.as_str())
}

/// Returns whether a label selector selects labels.
pub(crate) fn selects_labels(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    have_labels(labels, selector.get("matchLabels").and_then(Value::as_object))
        && list_items(selector, "matchExpressions", &FieldPath::default()).all(|(expression, at)| {
            let found = label(get_text(expression, "key"));
            let listed = list_items(expression, "values", &at).any(|(value, _)| value.as_str() == found);
            match get_text(expression, "operator") {
                "In" => found.is_some() && listed,
                "NotIn" => found.is_none() || !listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}
