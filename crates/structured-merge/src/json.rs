//! JSON values as field paths need them: comparison of numbers by value (1 is 1.0), a total order across kinds, and the text form in
//! conflict messages. No function changes a value.

use std::cmp::Ordering;
use std::fmt::Write as _;

use go_words::quote::write_quoted;
use serde_json::{Number, Value};

/// Checks equality for the merge: like `==`, but 1 and 1.0 are equal.
pub(crate) fn equal_values(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || compare_numbers(left, right).is_eq(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal_values(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|((left_key, left), (right_key, right))| left_key == right_key && equal_values(left, right))
        }
        (left, right) => left == right,
    }
}

/// Returns a total order: numbers, strings, booleans, lists, maps, null.
pub(crate) fn compare_values(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let first_difference = left
                .iter()
                .zip(right)
                .map(|(left, right)| compare_values(left, right))
                .find(|order| order.is_ne());
            first_difference.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => {
            let first_difference = left
                .iter()
                .zip(right)
                .map(|((left_key, left), (right_key, right))| {
                    left_key.cmp(right_key).then_with(|| compare_values(left, right))
                })
                .find(|order| order.is_ne());
            first_difference.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (left, right) => rank_of_type(left).cmp(&rank_of_type(right)),
    }
}

fn rank_of_type(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    match (as_integer(left), as_integer(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => as_float(left).total_cmp(&as_float(right)),
    }
}

fn as_integer(number: &Number) -> Option<i128> {
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
}

fn as_float(number: &Number) -> f64 {
    // -0.0 and 0.0 are one number, which total_cmp would tell apart.
    number.as_f64().unwrap_or(f64::NAN) + 0.0
}

/// Writes a value as a path shows it: strings quoted, lists in brackets.
pub(crate) fn write_text(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(value) => {
            let _ = write!(out, "{value}");
        }
        Value::String(value) => write_quoted(out, value),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                out.push_str(name);
                out.push('=');
                write_text(out, field);
            }
        }
    }
}
