//! Quantities and versions.

use std::cmp::Ordering;
use std::sync::Arc;

use go_words::quantity::Quantity;
use go_words::version::{self, Version, VersionError};

use crate::extension::Extension;
use crate::failure::Failure;
use crate::meter::Meter;
use crate::value::Value;

/// Calls a function of this module by its name.
pub(crate) fn call<'a>(function: &str, arguments: &[Value<'a>], _: &mut Meter) -> Result<Value<'a>, Failure> {
    let parse = |text: &str, lenient: bool| {
        if lenient {
            version::parse_normalized(text)
        } else {
            version::parse(text)
        }
    };
    Ok(match (function, arguments) {
        ("quantity", [Value::String(text)]) => {
            of_quantity(Quantity::parse(text).map_err(|error| Failure::new(error.to_string()))?)
        }
        ("isQuantity", [Value::String(text)]) => Value::Bool(Quantity::parse(text).is_ok()),
        ("semver", [Value::String(text)]) => of_version(parse(text, false))?,
        ("semver", [Value::String(text), Value::Bool(lenient)]) => of_version(parse(text, *lenient))?,
        ("isSemver", [Value::String(text)]) => Value::Bool(parse(text, false).is_ok()),
        ("isSemver", [Value::String(text), Value::Bool(lenient)]) => Value::Bool(parse(text, *lenient).is_ok()),
        (function, [Value::Extension(Extension::Quantity(quantity)), rest @ ..]) => {
            return call_quantity(function, *quantity, rest);
        }
        ("major", [Value::Extension(Extension::Semver(version))]) => Value::Int(version.major as i64),
        ("minor", [Value::Extension(Extension::Semver(version))]) => Value::Int(version.minor as i64),
        ("patch", [Value::Extension(Extension::Semver(version))]) => Value::Int(version.patch as i64),
        (
            "isGreaterThan" | "isLessThan" | "compareTo",
            [
                Value::Extension(Extension::Semver(left)),
                Value::Extension(Extension::Semver(right)),
            ],
        ) => convert_order(function, left.cmp_precedence(right)),
        _ => return Err(Failure::no_such_overload()),
    })
}

fn of_quantity<'a>(quantity: Quantity) -> Value<'a> {
    Value::Extension(Extension::Quantity(quantity))
}

fn of_version<'a>(parsed: Result<Version, VersionError>) -> Result<Value<'a>, Failure> {
    parsed
        .map(|version| Value::Extension(Extension::Semver(Arc::new(version))))
        .map_err(|error| Failure::new(error.to_string()))
}

fn convert_order<'a>(function: &str, order: Ordering) -> Value<'a> {
    match function {
        "isGreaterThan" => Value::Bool(order.is_gt()),
        "isLessThan" => Value::Bool(order.is_lt()),
        _ => Value::Int(order as i64),
    }
}

fn call_quantity<'a>(function: &str, quantity: Quantity, rest: &[Value<'a>]) -> Result<Value<'a>, Failure> {
    Ok(match (function, rest) {
        ("asInteger", []) => match quantity.as_integer() {
            Some(whole) => Value::Int(whole),
            None => return Err(Failure::new("cannot convert value to integer")),
        },
        ("isInteger", []) => Value::Bool(quantity.as_integer().is_some()),
        ("asApproximateFloat", []) => Value::Double(quantity.approximate()),
        ("sign", []) => Value::Int(quantity.sign()),
        ("add" | "sub" | "compareTo" | "isGreaterThan" | "isLessThan", [other]) => {
            let other = match other {
                Value::Extension(Extension::Quantity(other)) => *other,
                Value::Int(units) => Quantity::whole(*units),
                _ => return Err(Failure::no_such_overload()),
            };
            match function {
                "add" => of_quantity(quantity.plus(other)),
                "sub" => of_quantity(quantity.minus(other)),
                _ => convert_order(function, quantity.compare(&other)),
            }
        }
        _ => return Err(Failure::no_such_overload()),
    })
}
