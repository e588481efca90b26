//! Arithmetic, comparisons and sizes.

use std::cmp::Ordering;

use crate::compare;
use crate::failure::Failure;
use crate::meter::Meter;
use crate::time::Timestamp;
use crate::value::Value;

/// Calls a function of this module by its name.
pub(crate) fn call<'a>(function: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Value<'a>, Failure> {
    match (function, arguments) {
        ("!_", [Value::Bool(value)]) => Ok(Value::Bool(!value)),
        ("-_", [Value::Int(value)]) => wrap_integer(value.checked_neg()),
        ("-_", [Value::Double(value)]) => Ok(Value::Double(-value)),
        ("-_", [Value::Duration(value)]) => wrap_duration(value.checked_neg()),
        ("size", [value]) => match value.size() {
            Some(size) if !matches!(value, Value::Extension(_)) => Ok(Value::Int(size as i64)),
            _ => Err(Failure::no_such_overload()),
        },
        ("_==_", [left, right]) => compare::are_equal(left, right, meter).map(Value::Bool),
        ("_!=_", [left, right]) => compare::are_equal(left, right, meter).map(|same| Value::Bool(!same)),
        ("_+_", [left, right]) => add_values(left, right, meter),
        ("_-_" | "_*_" | "_/_" | "_%_", [left, right]) => calculate(function, left, right),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [left, right]) => {
            if !compare::are_comparable(left, right) {
                return Err(Failure::no_such_overload());
            }
            let Some(order) = compare::compare_values(left, right, meter)? else {
                return Err(Failure::new("NaN values cannot be ordered"));
            };
            Ok(Value::Bool(match function {
                "_<_" => order == Ordering::Less,
                "_<=_" => order != Ordering::Greater,
                "_>_" => order == Ordering::Greater,
                _ => order != Ordering::Less,
            }))
        }
        _ => Err(Failure::no_such_overload()),
    }
}

fn wrap_integer<'a>(value: Option<i64>) -> Result<Value<'a>, Failure> {
    value.map(Value::Int).ok_or_else(|| Failure::overflow("integer"))
}

fn wrap_unsigned<'a>(value: Option<u64>) -> Result<Value<'a>, Failure> {
    value
        .map(Value::Uint)
        .ok_or_else(|| Failure::overflow("unsigned integer"))
}

fn wrap_duration<'a>(value: Option<i64>) -> Result<Value<'a>, Failure> {
    value.map(Value::Duration).ok_or_else(|| Failure::overflow("duration"))
}

fn move_timestamp<'a>(at: Timestamp, by: i128) -> Result<Value<'a>, Failure> {
    Timestamp::from_nanoseconds(at.as_nanoseconds() + by)
        .map(Value::Timestamp)
        .ok_or_else(|| Failure::overflow("timestamp"))
}

/// Adds numbers, joins texts and lists, or moves a time.
pub(crate) fn add_values<'a>(left: &Value<'a>, right: &Value<'a>, meter: &mut Meter) -> Result<Value<'a>, Failure> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => wrap_integer(left.checked_add(*right)),
        (Value::Uint(left), Value::Uint(right)) => wrap_unsigned(left.checked_add(*right)),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left + right)),
        (Value::String(left), Value::String(right)) => {
            meter.spend_effort(left.len() + right.len())?;
            Ok(Value::from(format!("{}{}", &**left, &**right)))
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            meter.spend_effort(left.len() + right.len())?;
            Ok(Value::Bytes([&**left, &**right].concat().into()))
        }
        (Value::List(left), Value::List(right)) => compare::join_lists(left, right, meter),
        (Value::Duration(left), Value::Duration(right)) => wrap_duration(left.checked_add(*right)),
        (Value::Timestamp(at), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(at)) => {
            move_timestamp(*at, i128::from(*by))
        }
        _ => Err(Failure::no_such_overload()),
    }
}

fn calculate<'a>(function: &str, left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Failure> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => match function {
            "_-_" => wrap_integer(left.checked_sub(*right)),
            "_*_" => wrap_integer(left.checked_mul(*right)),
            "_/_" if *right == 0 => Err(Failure::new("division by zero")),
            "_/_" => wrap_integer(left.checked_div(*right)),
            _ if *right == 0 => Err(Failure::new("modulus by zero")),
            _ => wrap_integer(left.checked_rem(*right)),
        },
        (Value::Uint(left), Value::Uint(right)) => match function {
            "_-_" => wrap_unsigned(left.checked_sub(*right)),
            "_*_" => wrap_unsigned(left.checked_mul(*right)),
            "_/_" if *right == 0 => Err(Failure::new("division by zero")),
            "_/_" => wrap_unsigned(left.checked_div(*right)),
            _ if *right == 0 => Err(Failure::new("modulus by zero")),
            _ => wrap_unsigned(left.checked_rem(*right)),
        },
        (Value::Double(left), Value::Double(right)) => match function {
            "_-_" => Ok(Value::Double(left - right)),
            "_*_" => Ok(Value::Double(left * right)),
            "_/_" => Ok(Value::Double(left / right)),
            _ => Err(Failure::no_such_overload()),
        },
        (Value::Duration(left), Value::Duration(right)) if function == "_-_" => wrap_duration(left.checked_sub(*right)),
        (Value::Timestamp(at), Value::Duration(by)) if function == "_-_" => move_timestamp(*at, -i128::from(*by)),
        (Value::Timestamp(left), Value::Timestamp(right)) if function == "_-_" => {
            let difference = left.as_nanoseconds() - right.as_nanoseconds();
            wrap_duration(i64::try_from(difference).ok())
        }
        _ => Err(Failure::no_such_overload()),
    }
}
