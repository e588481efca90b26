//! Equality and order: numbers across types, lists and maps by content, and lists that a schema declares as a set or a map.

use std::cmp::Ordering;

use crate::failure::Failure;
use crate::meter::Meter;
use crate::shape::Joining;
use crate::value::{Entries, Key, List, Map, Value};

/// Returns whether two values are equal.
pub(crate) fn are_equal<'a>(left: &Value<'a>, right: &Value<'a>, meter: &mut Meter) -> Result<bool, Failure> {
    meter.spend_effort(1)?;
    Ok(match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::String(left), Value::String(right)) => {
            if left.len() == right.len() {
                meter.spend_effort(left.len())?;
            }
            **left == **right
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            meter.spend_effort(left.len())?;
            left == right
        }
        (Value::Timestamp(left), Value::Timestamp(right)) => left == right,
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Type(left), Value::Type(right)) => left.name() == right.name(),
        (Value::Optional(left), Value::Optional(right)) => match (left, right) {
            (Some(left), Some(right)) => are_equal(left, right, meter)?,
            (left, right) => left.is_none() && right.is_none(),
        },
        (Value::List(left), Value::List(right)) => equal_lists(left, right, meter)?,
        (Value::Map(left), Value::Map(right)) => equal_maps(left, right, meter)?,
        (Value::Extension(left), Value::Extension(right)) => left == right,
        (Value::Preserved(left), Value::Preserved(right)) => {
            meter.spend_effort(left.to_string().len())?;
            left == right
        }
        (left, right) => number_order(left, right) == Some(Ordering::Equal),
    })
}

fn equal_lists<'a>(left: &List<'a>, right: &List<'a>, meter: &mut Meter) -> Result<bool, Failure> {
    if left.len() != right.len() {
        return Ok(false);
    }
    match left.shape.and_then(crate::shape::Shape::join_rule) {
        Some(Joining::Set) => {
            for item in right.iter() {
                if !list_contains(left, &item?, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Some(Joining::ByKeys(keys)) => {
            for item in right.iter() {
                let item = item?;
                match find_by_keys(left, &item, keys, meter)? {
                    Some((_, same)) if are_equal(&same, &item, meter)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        None => {
            for (left, right) in left.iter().zip(right.iter()) {
                if !are_equal(&left?, &right?, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

/// Returns whether a list has an item equal to a value.
pub(crate) fn list_contains<'a>(list: &List<'a>, value: &Value<'a>, meter: &mut Meter) -> Result<bool, Failure> {
    for item in list.iter() {
        if are_equal(&item?, value, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn find_by_keys<'a>(
    list: &List<'a>,
    like: &Value<'a>,
    keys: &[String],
    meter: &mut Meter,
) -> Result<Option<(usize, Value<'a>)>, Failure> {
    for (index, item) in list.iter().enumerate() {
        let item = item?;
        let mut same = true;
        for key in keys {
            let (left, right) = (key_value(&item, key)?, key_value(like, key)?);
            same &= match (&left, &right) {
                (Some(left), Some(right)) => are_equal(left, right, meter)?,
                (None, None) => true,
                _ => false,
            };
        }
        if same {
            return Ok(Some((index, item)));
        }
    }
    Ok(None)
}

fn key_value<'a>(item: &Value<'a>, key: &str) -> Result<Option<Value<'a>>, Failure> {
    match item {
        Value::Map(map) => match crate::escaping::escape(key) {
            Some(escaped) if matches!(&map.entries, Entries::Json(_, Some(_))) => map.get(&escaped).transpose(),
            _ => map.get(key).transpose(),
        },
        _ => Ok(None),
    }
}

fn equal_maps<'a>(left: &Map<'a>, right: &Map<'a>, meter: &mut Meter) -> Result<bool, Failure> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for key in left.keys() {
        let (Some(one), Some(other)) = (left.find(&key)?, right.find(&key)?) else {
            return Ok(left.find(&key)?.is_none() && right.find(&key)?.is_none());
        };
        if !are_equal(&one, &other, meter)? {
            return Ok(false);
        }
    }
    // Properties that the schema doesn't declare are compared as JSON.
    if let (Entries::Json(one, Some(shape)), Entries::Json(other, Some(_))) = (&left.entries, &right.entries) {
        for (name, value) in one.iter().filter(|(name, _)| shape.property(name).is_none()) {
            meter.spend_effort(value.to_string().len())?;
            if other.get(name).is_some_and(|found| found != value) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Joins two lists. A set gets the items that it lacks, a map by keys replaces items with equal keys, and other lists are concatenated.
pub(crate) fn join_lists<'a>(left: &List<'a>, right: &List<'a>, meter: &mut Meter) -> Result<Value<'a>, Failure> {
    meter.spend_effort((left.len() + right.len()).saturating_mul(std::mem::size_of::<Value<'_>>()))?;
    let mut items = left.iter().collect::<Result<Vec<_>, _>>()?;
    match left.shape.and_then(crate::shape::Shape::join_rule) {
        Some(Joining::Set) => {
            for item in right.iter() {
                let item = item?;
                if !list_contains(left, &item, meter)? {
                    items.push(item);
                }
            }
        }
        Some(Joining::ByKeys(keys)) => {
            for item in right.iter() {
                let item = item?;
                match find_by_keys(left, &item, keys, meter)? {
                    Some((index, _)) => {
                        if let Some(place) = items.get_mut(index) {
                            *place = item;
                        }
                    }
                    None => items.push(item),
                }
            }
        }
        None => {
            for item in right.iter() {
                items.push(item?);
            }
        }
    }
    Ok(Value::List(List {
        items: crate::value::Items::Made(std::sync::Arc::new(items)),
        shape: left.shape,
    }))
}

/// Returns the order of two values; `None` if they have no order.
pub(crate) fn compare_values(
    left: &Value<'_>,
    right: &Value<'_>,
    meter: &mut Meter,
) -> Result<Option<Ordering>, Failure> {
    Ok(match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::String(left), Value::String(right)) => {
            meter.spend_effort(left.len().min(right.len()))?;
            Some((**left).cmp(&**right))
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            meter.spend_effort(left.len().min(right.len()))?;
            Some(left.cmp(right))
        }
        (Value::Timestamp(left), Value::Timestamp(right)) => Some(left.cmp(right)),
        (Value::Duration(left), Value::Duration(right)) => Some(left.cmp(right)),
        (left, right) => number_order(left, right),
    })
}

/// Checks whether the types of two values can have an order. A float that is not a number still has no order.
pub(crate) fn are_comparable(left: &Value<'_>, right: &Value<'_>) -> bool {
    let number = |value: &Value<'_>| matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_));
    (number(left) && number(right))
        || matches!(
            (left, right),
            (Value::Bool(_), Value::Bool(_))
                | (Value::String(_), Value::String(_))
                | (Value::Bytes(_), Value::Bytes(_))
                | (Value::Timestamp(_), Value::Timestamp(_))
                | (Value::Duration(_), Value::Duration(_))
        )
}

fn number_order(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    let whole = |value: &Value<'_>| match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::Uint(value) => Some(i128::from(*value)),
        _ => None,
    };
    match (left, right) {
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(right),
        (Value::Double(left), right) => float_order(*left, whole(right)?),
        (left, Value::Double(right)) => float_order(*right, whole(left)?).map(Ordering::reverse),
        (left, right) => Some(whole(left)?.cmp(&whole(right)?)),
    }
}

/// Compares as floating-point numbers, as Kubernetes does: large integers are rounded.
fn float_order(left: f64, right: i128) -> Option<Ordering> {
    left.partial_cmp(&(right as f64))
}

/// Makes keys of a list's items for quick lookup, if all can be keys.
pub(crate) fn key_set(list: &List<'_>) -> Option<std::collections::BTreeSet<Key>> {
    list.iter().map(|item| Key::of(&item.ok()?)).collect()
}
