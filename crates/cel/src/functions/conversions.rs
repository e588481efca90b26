//! Conversions between types, and the parts of times.

use crate::extension::Extension;
use crate::failure::Failure;
use crate::functions::format::show_double;
use crate::meter::Meter;
use crate::time;
use crate::value::{Text, Value};

const TWO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_64: f64 = 18_446_744_073_709_551_616.0;

/// Calls a function of this module by its name.
pub(crate) fn call<'a>(function: &str, arguments: &[Value<'a>], _: &mut Meter) -> Result<Value<'a>, Failure> {
    let [value] = arguments else {
        return Err(Failure::no_such_overload());
    };
    let fails = |from: &str, to: &str| Err(Failure::new(format!("type conversion error from '{from}' to '{to}'")));
    Ok(match (function, value) {
        ("dyn", value) => value.clone(),
        ("type", value) => Value::Type(match value.type_of() {
            crate::types::Type::List(_) => crate::types::Type::list(crate::types::Type::Dyn),
            other => other,
        }),
        ("bool", Value::Bool(_))
        | ("bytes", Value::Bytes(_))
        | ("double", Value::Double(_))
        | ("duration", Value::Duration(_))
        | ("int", Value::Int(_))
        | ("string", Value::String(_))
        | ("timestamp", Value::Timestamp(_))
        | ("uint", Value::Uint(_)) => value.clone(),
        ("bool", Value::String(text)) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Value::Bool(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Value::Bool(false),
            _ => return fails("string", "bool"),
        },
        ("bytes", Value::String(text)) => Value::Bytes(text.as_bytes().into()),
        ("double", Value::Int(number)) => Value::Double(*number as f64),
        ("double", Value::Uint(number)) => Value::Double(*number as f64),
        ("double", Value::String(text)) => match parse_double(text) {
            Some(number) => Value::Double(number),
            None => return fails("string", "double"),
        },
        ("duration", Value::Int(nanoseconds)) => Value::Duration(*nanoseconds),
        ("duration", Value::String(text)) => match go_words::duration::parse(text).ok() {
            Some(duration) => Value::Duration(duration),
            None => return fails("string", "duration"),
        },
        ("int", Value::Double(number)) => {
            if number.is_nan() || *number <= -TWO_63 || *number >= TWO_63 {
                return Err(Failure::overflow("integer"));
            }
            Value::Int(*number as i64)
        }
        ("int", Value::Uint(number)) => i64::try_from(*number)
            .map(Value::Int)
            .map_err(|_| Failure::overflow("integer"))?,
        ("int", Value::Timestamp(at)) => Value::Int(at.as_nanoseconds().div_euclid(1_000_000_000) as i64),
        ("int", Value::Duration(nanoseconds)) => Value::Int(*nanoseconds),
        ("int", Value::String(text)) => match text.parse() {
            Ok(number) => Value::Int(number),
            Err(_) => return fails("string", "int"),
        },
        ("uint", Value::Int(number)) => u64::try_from(*number)
            .map(Value::Uint)
            .map_err(|_| Failure::overflow("unsigned integer"))?,
        ("uint", Value::Double(number)) => {
            if number.is_nan() || *number < 0.0 || *number >= TWO_64 {
                return Err(Failure::overflow("unsigned integer"));
            }
            Value::Uint(*number as u64)
        }
        ("uint", Value::String(text)) => match text.parse::<u64>() {
            Ok(number) if !text.starts_with('+') => Value::Uint(number),
            _ => return fails("string", "uint"),
        },
        ("timestamp", Value::Int(seconds)) => {
            match time::Timestamp::from_nanoseconds(i128::from(*seconds) * 1_000_000_000) {
                Some(at) => Value::Timestamp(at),
                None => return Err(Failure::overflow("timestamp")),
            }
        }
        ("timestamp", Value::String(text)) => match time::parse_timestamp(text) {
            Some(at) => Value::Timestamp(at),
            None => return fails("string", "timestamp"),
        },
        ("string", value) => Value::from(text_of(value)?),
        _ => return Err(Failure::no_such_overload()),
    })
}

fn text_of(value: &Value<'_>) -> Result<String, Failure> {
    Ok(match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => show_double(*value),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Err(Failure::new("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Timestamp(at) => at.to_string(),
        Value::Duration(nanoseconds) => time::show_duration(*nanoseconds),
        Value::Extension(Extension::Ip(address)) => address.to_string(),
        Value::Extension(Extension::Cidr(address, bits)) => format!("{address}/{bits}"),
        _ => return Err(Failure::no_such_overload()),
    })
}

/// Returns a floating-point number as Go reads it.
fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let named = ["inf", "infinity", "nan"]
        .iter()
        .any(|name| unsigned.eq_ignore_ascii_case(name));
    if !named && !unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    (named || number.is_finite()).then_some(number)
}

/// Returns a part of a timestamp or a duration.
pub(crate) fn call_calendar<'a>(function: &str, arguments: &[Value<'a>], _: &mut Meter) -> Result<Value<'a>, Failure> {
    let zone = |text: &Text<'a>| text.to_string();
    match arguments {
        [Value::Duration(nanoseconds)] => {
            let unit = match function {
                "getHours" => 3_600_000_000_000,
                "getMinutes" => 60_000_000_000,
                "getSeconds" => 1_000_000_000,
                "getMilliseconds" => 1_000_000,
                _ => return Err(Failure::no_such_overload()),
            };
            Ok(Value::Int(nanoseconds / unit))
        }
        [Value::Timestamp(at)] => time::read_part(function, *at, None)
            .map(Value::Int)
            .map_err(Failure::new),
        [Value::Timestamp(at), Value::String(name)] => time::read_part(function, *at, Some(&zone(name)))
            .map(Value::Int)
            .map_err(Failure::new),
        _ => Err(Failure::no_such_overload()),
    }
}
