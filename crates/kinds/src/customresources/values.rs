//! Validation of values against a schema, in the words of the real server's validator.

use serde_json::Value;
use tenure_checkpoint::checkpoint;

use super::formats;
use super::lists::Correlated;
use super::structural::{Additional, Checks, Kind, Node};
use super::value_path::ValuePath;
use crate::schema::{FieldError, FieldErrorKind};

/// The field in errors about a combination of schemas: the real server names no field for them.
const NO_FIELD: &str = "<nil>";

/// Checks a value and everything below it. If `old` has an equal value at the same place, its errors are ignored, so a stricter schema does
/// not block changes elsewhere (ratcheting).
pub(super) fn check(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: &ValuePath<'_>,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(value) {
        return;
    }
    if value.is_null() && (node.nullable || (node.kind.is_none() && !node.int_or_string)) {
        return;
    }
    let fits = check_type(node, value, path, errors);
    check_enum(&node.checks, value, path, errors);
    if value.is_null() {
        return;
    }
    if fits {
        match value {
            Value::Object(_) => check_object(node, value, old, path, errors),
            Value::Array(_) => check_array(node, value, old, path, errors),
            Value::String(text) => check_string(&node.checks, text, path, errors),
            Value::Number(_) => check_number(node, value, path, errors),
            _ => {}
        }
    } else if matches!(value, Value::Number(_)) && node.kind == Some(Kind::Integer) {
        let format = match node.checks.format.as_str() {
            format @ ("int32" | "int64") => format!("with format {format}"),
            _ => "(default format)".to_owned(),
        };
        let detail = format!("Checked value must be of type integer {format} in {path}");
        errors.push(FieldError::invalid(NO_FIELD, "", detail));
    }
    check_combinations(&node.checks, value, old, path, errors);
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn check_type(node: &Node, value: &Value, path: &ValuePath<'_>, errors: &mut Vec<FieldError>) -> bool {
    let found = type_name(value);
    let (fits, wanted) = match node.kind {
        _ if node.int_or_string => (matches!(found, "integer" | "string"), "integer,string"),
        None => return true,
        Some(Kind::Object) => (found == "object", "object"),
        Some(Kind::Array) => (found == "array", "array"),
        Some(Kind::String) => (found == "string", "string"),
        Some(Kind::Integer) => (found == "integer", "integer"),
        Some(Kind::Number) => (matches!(found, "integer" | "number"), "number"),
        Some(Kind::Boolean) => (found == "boolean", "boolean"),
    };
    if !fits {
        // A format speaks of Go's types.
        let (wanted, found) = match (node.kind, node.checks.format.as_str()) {
            (Some(Kind::Integer), format @ ("int32" | "int64")) if found == "number" => (format, "float64"),
            _ => (wanted, found),
        };
        let detail = format!("{path} in body must be of type {wanted}: \"{found}\"");
        errors.push(FieldError::new(FieldErrorKind::TypeInvalid, path, found, detail));
    }
    fits
}

fn check_enum(checks: &Checks, value: &Value, path: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(allowed) = &checks.allowed
        && !allowed.contains(value)
    {
        let shown: Vec<String> = allowed
            .iter()
            .map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned))
            .collect();
        errors.push(FieldError::not_supported(path, value.clone(), &shown));
    }
}

fn check_object(node: &Node, value: &Value, old: Option<&Value>, path: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    let Value::Object(object) = value else { return };
    let checks = &node.checks;
    for name in &checks.required {
        if !object.contains_key(name) {
            errors.push(FieldError::required(path.field(name), ""));
        }
    }
    let size = object.len() as u64;
    if checks.min_properties.is_some_and(|least| size < least) {
        let least = checks.min_properties.unwrap_or(0);
        errors.push(FieldError::invalid(
            path,
            size,
            format!("{path} in body should have at least {least} properties"),
        ));
    }
    if let Some(most) = checks.max_properties.filter(|most| size > *most) {
        errors.push(FieldError::new(
            FieldErrorKind::TooMany,
            path,
            size,
            format!("must have at most {most} items"),
        ));
    }
    for (name, value) in object {
        let old = old.and_then(|old| old.get(name));
        if let Some(property) = node.properties.get(name) {
            check(property, value, old, &path.field(name), errors);
        } else if let Some(Additional::Schema(inner)) = &node.additional {
            check(inner, value, old, &path.field(name), errors);
        }
    }
}

fn check_array(node: &Node, value: &Value, old: Option<&Value>, path: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    let Value::Array(items) = value else { return };
    let checks = &node.checks;
    let size = items.len() as u64;
    if let Some(least) = checks.min_items.filter(|least| size < *least) {
        errors.push(FieldError::invalid(
            path,
            size,
            format!("{path} in body should have at least {least} items"),
        ));
    }
    if let Some(most) = checks.max_items.filter(|most| size > *most) {
        errors.push(FieldError::new(
            FieldErrorKind::TooMany,
            path,
            size,
            format!("must have at most {most} items"),
        ));
    }
    if let Some(inner) = &node.items {
        // Items correlate by their keys. Without keys, the old item is unknown.
        let correlated = Correlated::from_items(node, old);
        for (index, item) in items.iter().enumerate() {
            checkpoint();
            let old = correlated.find(node, item);
            check(inner, item, old, &path.item(index), errors);
        }
    }
}

fn check_string(checks: &Checks, text: &str, path: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    let length = text.chars().count() as u64;
    if let Some(most) = checks.max_length.filter(|most| length > *most) {
        errors.push(FieldError::new(
            FieldErrorKind::TooLong,
            path,
            text,
            format!("may not be more than {most} bytes"),
        ));
        // A text gets only one error here. `check_format` checks its format.
        return check_format(checks, text, path, errors);
    }
    if let Some(least) = checks.min_length.filter(|least| length < *least) {
        errors.push(FieldError::invalid(
            path,
            text,
            format!("{path} in body should be at least {least} chars long"),
        ));
        return check_format(checks, text, path, errors);
    }
    if let Some((pattern, expression)) = &checks.pattern
        && !expression.is_match(text)
    {
        errors.push(FieldError::invalid(
            path,
            text,
            format!("{path} in body should match '{pattern}'"),
        ));
    }
    check_format(checks, text, path, errors);
}

fn check_format(checks: &Checks, text: &str, path: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    if !checks.format.is_empty() && !formats::matches_format(&checks.format, text) {
        let shown = crate::schema::go_quoted(text);
        let detail = format!("{path} in body must be of type {}: {shown}", checks.format);
        errors.push(FieldError::new(FieldErrorKind::TypeInvalid, path, text, detail));
    }
}

fn check_number(node: &Node, value: &Value, path: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    let checks = &node.checks;
    let Some(number) = value.as_f64() else { return };
    if let Some((least, exclusive)) = checks.minimum
        && (number < least || (exclusive && number <= least))
    {
        let words = if exclusive {
            "greater than"
        } else {
            "greater than or equal to"
        };
        errors.push(FieldError::invalid(
            path,
            value.clone(),
            format!("{path} in body should be {words} {}", format_plain(least)),
        ));
    }
    if let Some((most, exclusive)) = checks.maximum
        && (number > most || (exclusive && number >= most))
    {
        let words = if exclusive {
            "less than"
        } else {
            "less than or equal to"
        };
        errors.push(FieldError::invalid(
            path,
            value.clone(),
            format!("{path} in body should be {words} {}", format_plain(most)),
        ));
    }
    if let Some(factor) = checks.multiple_of
        && factor > 0.0
        && (number / factor).fract() != 0.0
    {
        errors.push(FieldError::invalid(
            path,
            value.clone(),
            format!("{path} in body should be a multiple of {}", format_plain(factor)),
        ));
    }
    let narrow = (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
    if checks.format == "int32" && node.kind == Some(Kind::Integer) && !narrow {
        let detail = format!("Checked value must be of type integer with format int32 in {path}");
        errors.push(FieldError::invalid(NO_FIELD, "", detail));
    }
}

fn check_combinations(
    checks: &Checks,
    value: &Value,
    old: Option<&Value>,
    path: &ValuePath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let attempt = |node: &Node| {
        let mut found = Vec::new();
        check(node, value, old, path, &mut found);
        found
    };
    let combined = |words: &str| FieldError::invalid(NO_FIELD, "", format!("\"{path}\" {words}"));
    if !checks.any_of.is_empty() {
        let attempts: Vec<Vec<FieldError>> = checks.any_of.iter().map(attempt).collect();
        if attempts.iter().all(|found| !found.is_empty()) {
            errors.push(combined("must validate at least one schema (anyOf)"));
            errors.extend(attempts.into_iter().next().unwrap_or_default());
        }
    }
    if !checks.one_of.is_empty() {
        let attempts: Vec<Vec<FieldError>> = checks.one_of.iter().map(attempt).collect();
        let valid = attempts.iter().filter(|found| found.is_empty()).count();
        if valid == 0 {
            errors.push(combined(
                "must validate one and only one schema (oneOf). Found none valid",
            ));
            errors.extend(attempts.into_iter().next().unwrap_or_default());
        } else if valid > 1 {
            errors.push(combined(&format!(
                "must validate one and only one schema (oneOf). Found {valid} valid alternatives"
            )));
        }
    }
    if !checks.all_of.is_empty() {
        let before = errors.len();
        checks.all_of.iter().for_each(|node| errors.extend(attempt(node)));
        if errors.len() > before {
            errors.push(combined("must validate all the schemas (allOf)"));
        }
    }
    if let Some(not) = &checks.not
        && attempt(not).is_empty()
    {
        errors.push(combined("must not validate the schema (not)"));
    }
}

fn format_plain(number: f64) -> String {
    serde_json::Number::from_f64(number)
        .map_or_else(String::new, |shown| shown.to_string().trim_end_matches(".0").to_owned())
}
