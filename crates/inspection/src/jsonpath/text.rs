//! Texts of values as Go writes them: printed (`%v`), and as JSON.

use serde_json::{Number, Value};

/// Writes a result of a template: a list or an object as JSON, and anything else as text.
pub(super) fn write_result(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => write_number(number),
        other => write_json(other),
    }
}

/// Writes a value as Go prints it: `map[a:b]`, `[a b]`, `<nil>`.
#[must_use]
pub fn write_go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(write_go_value).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields: Vec<String> = fields
                .into_iter()
                .map(|(name, value)| format!("{name}:{}", write_go_value(value)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
        other => write_result(other),
    }
}

/// Writes a value as Go's JSON in one line: sorted fields, and `<`, `>` and `&` as escapes.
#[must_use]
pub fn write_json(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => write_json_number(number),
        Value::String(text) => quote_as_go(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(write_json).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields: Vec<String> = fields
                .into_iter()
                .map(|(name, value)| format!("{}:{}", quote_as_go(name), write_json(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
    }
}

/// Writes a value as Go's JSON with an indent of four spaces.
pub(super) fn write_pretty(value: &Value, depth: usize, text: &mut String) {
    let (open, close, parts): (_, _, Vec<(Option<&str>, &Value)>) = match value {
        Value::Array(items) if !items.is_empty() => ('[', ']', items.iter().map(|item| (None, item)).collect()),
        Value::Object(fields) if !fields.is_empty() => {
            let mut fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| (Some(name.as_str()), value))
                .collect();
            fields.sort_by_key(|(name, _)| *name);
            ('{', '}', fields)
        }
        simple => return text.push_str(&write_json(simple)),
    };
    let mut sign = open;
    for (name, part) in parts {
        text.push(sign);
        text.push('\n');
        text.extend(std::iter::repeat_n("    ", depth + 1));
        if let Some(name) = name {
            text.push_str(&format!("{}: ", quote_as_go(name)));
        }
        write_pretty(part, depth + 1, text);
        sign = ',';
    }
    text.push('\n');
    text.extend(std::iter::repeat_n("    ", depth));
    text.push(close);
}

fn quote_as_go(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Writes a number as `%v` does. A float has an exponent if it is very small, or has seven digits or more before the point.
fn write_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => {
            let (digits, exponent) = split_float(float);
            match (-4..6).contains(&exponent) {
                true => float.to_string(),
                false => format!("{digits}e{}{:02}", write_sign(exponent), exponent.unsigned_abs()),
            }
        }
        _ => number.to_string(),
    }
}

fn write_json_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => {
            let (digits, exponent) = split_float(float);
            match (-6..21).contains(&exponent) {
                true => float.to_string(),
                false => format!("{digits}e{}{}", write_sign(exponent), exponent.unsigned_abs()),
            }
        }
        _ => number.to_string(),
    }
}

fn write_sign(exponent: i32) -> char {
    if exponent < 0 { '-' } else { '+' }
}

/// Returns the shortest digits of a number, and its exponent.
fn split_float(float: f64) -> (String, i32) {
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.to_owned(), exponent.parse().unwrap_or_default())
}
