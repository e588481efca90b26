//! The cost of a call at run time, as Kubernetes counts it by the sizes of the arguments.

use crate::extension::Extension;
use crate::plan::Call;
use crate::value::Value;

/// The cost of a character when a text is traversed.
pub(crate) const LETTER: f64 = 0.1;

/// The cost of a character of a pattern.
pub(crate) const PATTERN_LETTER: f64 = 0.25;

/// The cost of one authorizer check. An expression can afford two checks.
pub(crate) const AUTHORIZATION: u64 = 350_000;

/// The cost of creating a list.
pub(crate) const LIST: u64 = 10;

fn round_up(value: f64) -> u64 {
    value.ceil() as u64
}

fn measure_size(value: Option<&Value<'_>>) -> u64 {
    match value {
        Some(Value::Optional(Some(inner))) => measure_size(Some(inner)),
        Some(value) => value.size().unwrap_or(1),
        None => 1,
    }
}

fn of_letters(value: Option<&Value<'_>>, factor: f64) -> u64 {
    round_up(measure_size(value) as f64 * factor)
}

/// Returns the cost of a call; `result` is `None` if the call failed.
pub(crate) fn of_call(call: &Call, arguments: &[Value<'_>], result: Option<&Value<'_>>) -> u64 {
    let (first, second) = (arguments.first(), arguments.get(1));
    if let Some(overload) = call.overload
        && let Some(cost) = of_list_function(overload, first, second, result)
    {
        return cost;
    }
    let matching = || {
        let text = round_up((1.0 + measure_size(first) as f64) * LETTER);
        text.saturating_mul(of_letters(second, PATTERN_LETTER))
    };
    let is_address =
        |value: Option<&Value<'_>>| matches!(value, Some(Value::Extension(Extension::Ip(_) | Extension::Cidr(..))));
    match call.function.as_str() {
        "check" => AUTHORIZATION,
        "fieldSelector" | "labelSelector" => of_selector(measure_size(second)),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => first.map_or(0, of_traversal),
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" => of_letters(first, LETTER),
        "replace" | "split" | "ip.isCanonical" => of_letters(first, 2.0 * LETTER),
        "join" => of_letters(result, 2.0 * LETTER),
        "find" | "findAll" => matching(),
        "ip" if is_address(first) => 1,
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            of_letters(first, LETTER)
        }
        "containsIP" | "containsCIDR" => {
            let network = measure_size(first) as f64;
            let mut cost = round_up(2.0 * network * LETTER);
            if call.function == "containsCIDR" {
                cost += round_up(network * LETTER) + 1;
            }
            if !is_address(second) {
                cost += of_letters(second, LETTER);
            }
            cost
        }
        "validate" => match first {
            Some(Value::Extension(Extension::Format(format))) => {
                let text = round_up((1.0 + measure_size(second) as f64) * LETTER);
                text.saturating_mul(round_up(format.pattern_size as f64 * PATTERN_LETTER))
            }
            _ => 1,
        },
        "_==_" if matches!(first, Some(Value::Extension(extension)) if !matches!(extension, Extension::Ip(_) | Extension::Cidr(..))) => {
            1
        }
        "_==_" if is_address(first) => 1,
        "_==_" | "_!=_" => round_up(measure_size(first).min(measure_size(second)) as f64 * LETTER),
        _ => of_overload(call.overload, first, second, &matching),
    }
}

/// Returns the cost of a call that depends on the overload that the checker chose.
fn of_overload(
    overload: Option<&str>,
    first: Option<&Value<'_>>,
    second: Option<&Value<'_>>,
    matching: &dyn Fn() -> u64,
) -> u64 {
    match overload.unwrap_or_default() {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
        | "string_format" => of_letters(first, LETTER),
        "in_list" => measure_size(second),
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes" => round_up(measure_size(first).min(measure_size(second)) as f64 * LETTER),
        "add_string" | "add_bytes" => round_up((measure_size(first) + measure_size(second)) as f64 * LETTER),
        "matches_string" => matching(),
        "contains_string" => of_letters(first, LETTER).saturating_mul(of_letters(second, LETTER)),
        _ => 1,
    }
}

/// Functions of the lists and sets libraries.
fn of_list_function(
    overload: &str,
    first: Option<&Value<'_>>,
    second: Option<&Value<'_>>,
    result: Option<&Value<'_>>,
) -> Option<u64> {
    let allocating = |factor: f64, count: u64| (count as f64 * factor) as u64 + 1 + LIST;
    let sets = |factor: f64| 1 + (measure_size(first).saturating_mul(measure_size(second)) as f64 * factor) as u64;
    let among_themselves = |list: Option<&Value<'_>>| {
        let item = match list {
            Some(Value::List(list)) => list.get(0).and_then(Result::ok),
            _ => None,
        };
        let factor = match item {
            Some(Value::String(_) | Value::Bytes(_)) => 2.0 + LETTER,
            _ => 2.0,
        };
        allocating(factor, measure_size(list).saturating_mul(measure_size(list)))
    };
    Some(match overload {
        "list_slice" | "lists_range" | "list_reverse" => allocating(1.0, measure_size(result)),
        "list_flatten" => allocating(1.0, measure_size(first)),
        "list_flatten_int" => match second {
            Some(Value::Int(depth)) => allocating(*depth as f64, measure_size(first)),
            _ => return None,
        },
        "list_distinct" => among_themselves(first),
        "list_sets_contains_list" | "list_sets_intersects_list" => sets(1.0),
        "list_sets_equivalent_list" => sets(2.0),
        other if other.starts_with("list_") && other.ends_with("_sort") => among_themselves(first),
        other if other.ends_with("_sortByAssociatedKeys") => among_themselves(second),
        _ => return None,
    })
}

/// Returns the cost of parsing a selector with `length` characters.
pub(crate) fn of_selector(length: u64) -> u64 {
    let requirements = round_up(length as f64 * 0.5);
    LIST + round_up(length as f64 * LETTER) + round_up(requirements as f64 * 50.0)
}

/// Returns the cost of traversing a complete value.
fn of_traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * LETTER) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * LETTER) as u64,
        Value::List(list) => list.iter().filter_map(Result::ok).map(|item| of_traversal(&item)).sum(),
        Value::Map(map) => map
            .keys()
            .iter()
            .map(|key| {
                let value = map.find(key).ok().flatten();
                of_traversal(key) + value.as_ref().map_or(0, of_traversal)
            })
            .sum(),
        _ => 1,
    }
}
