//! Lists, sets and optionals.

use std::cmp::Ordering;

use crate::compare;
use crate::failure::Failure;
use crate::functions::{effort_of_values, operators};
use crate::meter::Meter;
use crate::value::{Entries, Key, List, Map, Value};

/// Implements `sum`, `min`, `max` and `isSorted`.
pub(crate) fn aggregate<'a>(function: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Value<'a>, Failure> {
    let [Value::List(list)] = arguments else {
        return Err(Failure::no_such_overload());
    };
    let mut result: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = item?;
        let Some(before) = result.take() else {
            result = Some(item);
            continue;
        };
        if function == "sum" {
            result = Some(operators::add_values(&before, &item, meter)?);
            continue;
        }
        let Some(order) = compare::compare_values(&before, &item, meter)? else {
            return Err(Failure::no_such_overload());
        };
        result = Some(match (function, order) {
            ("isSorted", Ordering::Greater) => return Ok(Value::Bool(false)),
            ("min", Ordering::Greater) | ("max", Ordering::Less) | ("isSorted", _) => item,
            _ => before,
        });
    }
    match (function, result) {
        ("isSorted", _) => Ok(Value::Bool(true)),
        // The type of the items is unknown here. In Kubernetes, an empty list of durations sums to a zero duration, and other empty lists
        // sum to zero.
        ("sum", None) => Ok(Value::Int(0)),
        (_, Some(result)) => Ok(result),
        (_, None) => Err(Failure::new(format!("{function} called on empty list"))),
    }
}

/// Calls a function of this module by its name.
pub(crate) fn call<'a>(function: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Value<'a>, Failure> {
    match (function, arguments) {
        ("lists.range", [Value::Int(count)]) => {
            let count = usize::try_from(*count).unwrap_or_default();
            meter.spend_effort(effort_of_values(count))?;
            Ok(Value::from((0..count as i64).map(Value::Int).collect::<Vec<_>>()))
        }
        ("first", [Value::List(list)]) => Ok(Value::optional(list.get(0).transpose()?)),
        ("last", [Value::List(list)]) => {
            let last = list.len().checked_sub(1).and_then(|last| list.get(last));
            Ok(Value::optional(last.transpose()?))
        }
        ("reverse", [Value::List(list)]) => {
            let mut items = copy_items(list, meter)?;
            items.reverse();
            Ok(Value::from(items))
        }
        ("slice", [Value::List(list), Value::Int(start), Value::Int(end)]) => slice_list(list, *start, *end, meter),
        ("flatten", [Value::List(list)]) => flatten_list(list, 1, meter),
        ("flatten", [Value::List(list), Value::Int(depth)]) => {
            if *depth < 0 {
                return Err(Failure::new("level must be non-negative"));
            }
            flatten_list(list, *depth, meter)
        }
        ("distinct", [Value::List(list)]) => {
            let mut found: Vec<Value<'a>> = Vec::new();
            for item in copy_items(list, meter)? {
                let mut known = false;
                for other in &found {
                    known = compare::are_equal(other, &item, meter)?;
                    if known {
                        break;
                    }
                }
                if !known {
                    found.push(item);
                }
            }
            Ok(Value::from(found))
        }
        ("sort", [Value::List(list)]) => {
            let items = copy_items(list, meter)?;
            sort_by_keys(items.clone(), items, meter)
        }
        ("@sortByAssociatedKeys", [Value::List(list), Value::List(keys)]) => {
            let (items, keys) = (copy_items(list, meter)?, copy_items(keys, meter)?);
            if items.len() != keys.len() {
                return Err(Failure::new(format!(
                    "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} \
                     and {} elements respectively",
                    items.len(),
                    keys.len()
                )));
            }
            sort_by_keys(items, keys, meter)
        }
        ("sets.contains", [Value::List(list), Value::List(part)]) => has_all(list, part, meter).map(Value::Bool),
        ("sets.equivalent", [Value::List(left), Value::List(right)]) => Ok(Value::Bool(
            has_all(left, right, meter)? && has_all(right, left, meter)?,
        )),
        ("sets.intersects", [Value::List(left), Value::List(right)]) => {
            for item in left.iter() {
                if compare::list_contains(right, &item?, meter)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        _ => Err(Failure::no_such_overload()),
    }
}

fn copy_items<'a>(list: &List<'a>, meter: &mut Meter) -> Result<Vec<Value<'a>>, Failure> {
    meter.spend_effort(effort_of_values(list.len()))?;
    list.iter().collect()
}

fn has_all<'a>(list: &List<'a>, part: &List<'a>, meter: &mut Meter) -> Result<bool, Failure> {
    for item in part.iter() {
        if !compare::list_contains(list, &item?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn slice_list<'a>(list: &List<'a>, start: i64, end: i64, meter: &mut Meter) -> Result<Value<'a>, Failure> {
    let refused = |why: String| Err(Failure::new(format!("cannot slice({start}, {end}), {why}")));
    if start < 0 || end < 0 {
        return refused("negative indexes not supported".to_owned());
    }
    if start > end {
        return refused("start index must be less than or equal to end index".to_owned());
    }
    let (from, to) = (start as usize, end as usize);
    if to > list.len() {
        return refused(format!("list is length {}", list.len()));
    }
    meter.spend_effort(effort_of_values(to - from))?;
    let items = (from..to)
        .filter_map(|index| list.get(index))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Value::from(items))
}

fn flatten_list<'a>(list: &List<'a>, depth: i64, meter: &mut Meter) -> Result<Value<'a>, Failure> {
    let mut flat = Vec::new();
    // The items that are still to be processed, with the next item last.
    let mut open: Vec<(Value<'a>, i64)> = copy_items(list, meter)?
        .into_iter()
        .rev()
        .map(|item| (item, depth))
        .collect();
    while let Some((item, depth)) = open.pop() {
        match item {
            Value::List(inner) if depth > 0 => {
                open.extend(
                    copy_items(&inner, meter)?
                        .into_iter()
                        .rev()
                        .map(|item| (item, depth - 1)),
                );
            }
            item => {
                meter.spend_effort(effort_of_values(1))?;
                flat.push(item);
            }
        }
    }
    Ok(Value::from(flat))
}

fn sort_by_keys<'a>(items: Vec<Value<'a>>, keys: Vec<Value<'a>>, meter: &mut Meter) -> Result<Value<'a>, Failure> {
    if let Some(first) = keys.first() {
        if !compare::are_comparable(first, first) {
            return Err(Failure::new("list elements must be comparable"));
        }
        if keys.iter().any(|key| key.type_of() != first.type_of()) {
            return Err(Failure::new("list elements must have the same type"));
        }
    }
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.into_iter().zip(items).collect();
    let mut failed = None;
    pairs.sort_by(|left, right| match compare::compare_values(&left.0, &right.0, meter) {
        Ok(order) => order.unwrap_or(Ordering::Equal),
        Err(failure) => {
            failed = Some(failure);
            Ordering::Equal
        }
    });
    match failed {
        Some(failure) => Err(failure),
        None => Ok(Value::from(pairs.into_iter().map(|(_, item)| item).collect::<Vec<_>>())),
    }
}

/// Implements the functions of optionals.
pub(crate) fn call_optional<'a>(
    function: &str,
    arguments: &[Value<'a>],
    meter: &mut Meter,
) -> Result<Value<'a>, Failure> {
    match (function, arguments) {
        ("optional.none", []) => Ok(Value::Optional(None)),
        ("optional.of", [value]) => Ok(Value::optional(Some(value.clone()))),
        ("optional.ofNonZeroValue", [value]) => Ok(Value::optional((!is_zero(value)).then(|| value.clone()))),
        ("hasValue", [Value::Optional(value)]) => Ok(Value::Bool(value.is_some())),
        ("value", [Value::Optional(Some(value))]) => Ok((**value).clone()),
        ("value", [Value::Optional(None)]) => Err(Failure::new("optional.none() dereference")),
        ("optional.unwrap" | "unwrapOpt", [Value::List(list)]) => {
            let mut present = Vec::new();
            for item in copy_items(list, meter)? {
                match item {
                    Value::Optional(Some(value)) => present.push((*value).clone()),
                    Value::Optional(None) => {}
                    _ => return Err(Failure::new("value is not optional")),
                }
            }
            Ok(Value::from(present))
        }
        _ => Err(Failure::no_such_overload()),
    }
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Int(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Duration(span) => *span == 0,
        Value::Optional(value) => value.as_ref().is_none_or(|value| is_zero(value)),
        Value::Timestamp(_) | Value::Type(_) | Value::Extension(_) | Value::Preserved(_) => false,
    }
}

/// Returns a map with additional entries: a key with a value, or the entries of another map.
pub(crate) fn insert<'a>(_: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Value<'a>, Failure> {
    let (map, added) = match arguments {
        [Value::Map(map), key, value] => (map, vec![(key.clone(), value.clone())]),
        [Value::Map(map), Value::Map(more)] => (map, read_entries(more)?),
        _ => return Err(Failure::no_such_overload()),
    };
    meter.spend_effort(effort_of_values(2 * (map.len() + added.len())))?;
    let mut made = match &map.entries {
        Entries::Made(entries) => (**entries).clone(),
        Entries::Json(..) => read_entries(map)?
            .into_iter()
            .filter_map(|(key, value)| Some((Key::of(&key)?, value)))
            .collect(),
    };
    for (key, value) in added {
        let shown = crate::functions::format::show_value(&key);
        let key = Key::of(&key).ok_or_else(|| Failure::new("unsupported key type"))?;
        if made.insert(key, value).is_some() {
            return Err(Failure::new(format!("insert failed: key {shown} already exists")));
        }
    }
    Ok(Map::from_entries(made))
}

fn read_entries<'a>(map: &Map<'a>) -> Result<Vec<(Value<'a>, Value<'a>)>, Failure> {
    map.keys()
        .into_iter()
        .map(|key| {
            let value = map.find(&key)?.unwrap_or(Value::Null);
            Ok((key, value))
        })
        .collect()
}
