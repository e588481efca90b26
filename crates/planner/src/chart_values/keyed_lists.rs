//! Lists whose items merge by a key, only where the author of a layer asks for it.
//!
//! The order is that of the lower list. New items follow in the order of the upper list. An item `{key, $remove: true}` removes the item with this key.

use std::collections::{BTreeMap, BTreeSet};

use super::exact::ExactValue;
use super::layer::Layer;
use super::{Path, REMOVE, ValuesError, join_steps};

type Item = BTreeMap<String, ExactValue>;

/// Merges an upper list into a lower one by the key of their items.
pub(super) fn merge_lists(
    lower: &[ExactValue],
    upper: &[ExactValue],
    key: &str,
    steps: &[String],
) -> Result<Vec<ExactValue>, ValuesError> {
    let lower = read_items(lower, key, steps, "the list below")?;
    let upper = read_items(upper, key, steps, "the list")?;
    let places: BTreeMap<String, usize> = lower
        .iter()
        .enumerate()
        .map(|(place, (name, _))| (name.clone(), place))
        .collect();
    let mut merged: Vec<Option<Item>> = lower.into_iter().map(|(_, item)| Some(item.clone())).collect();
    let mut added = Vec::new();
    for (index, (name, item)) in upper.into_iter().enumerate() {
        let known = places.get(&name).and_then(|place| merged.get_mut(*place));
        if let Some(removal) = item.get(REMOVE) {
            if *removal != ExactValue::Bool(true) || item.len() != 2 {
                return Err(ValuesError::at(
                    format!("{}/{index}/{REMOVE}", join_steps(steps)),
                    format!("an item that is removed has {key} and {REMOVE}: true, and nothing else"),
                ));
            }
            if let Some(known) = known {
                *known = None;
            }
            continue;
        }
        match known {
            Some(Some(known)) => {
                let layer = Layer::from(std::mem::take(known)).merge(Layer::from(item.clone()));
                *known = layer.into_values();
            }
            _ => added.push(item.clone()),
        }
    }
    Ok(merged.into_iter().flatten().chain(added).map(ExactValue::Map).collect())
}

/// Reads the items of a list with their keys. Equal keys are refused.
fn read_items<'a>(
    items: &'a [ExactValue],
    key: &str,
    steps: &[String],
    whose: &str,
) -> Result<Vec<(String, &'a Item)>, ValuesError> {
    let mut seen = BTreeSet::new();
    let mut read = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let fail = |problem: String| {
            let path = format!("{}/{index}", join_steps(steps));
            Err(ValuesError::at(path, problem))
        };
        let ExactValue::Map(item) = item else {
            return fail(format!(
                "{whose} has an item that is no map, so it can't merge by {key}"
            ));
        };
        let name = match item.get(key) {
            Some(ExactValue::Text(text)) => format!("text {text}"),
            Some(ExactValue::Number(number)) if number.to_number().is_some_and(|number| !number.is_f64()) => {
                format!("number {number}")
            }
            Some(_) => return fail(format!("{key} must be a text or a whole number in {whose}")),
            None => return fail(format!("an item of {whose} has no {key}")),
        };
        if !seen.insert(name.clone()) {
            let (_, shown) = name.split_once(' ').unwrap_or(("", &name));
            return fail(format!("{whose} has two items with {key} {shown}: keep one of them"));
        }
        read.push((name, item));
    }
    Ok(read)
}

/// Refuses `$remove` in values, except directly in an item of a keyed list. `keyed` has the steps from here to each keyed list.
pub(super) fn check_removals(value: &ExactValue, path: &Path<'_>, keyed: &[&[String]]) -> Result<(), ValuesError> {
    match value {
        ExactValue::Map(entries) => entries.iter().try_for_each(|(key, value)| {
            let path = Path::Key(path, key);
            if key == REMOVE {
                return Err(ValuesError::new(
                    &path,
                    format!("{REMOVE} removes an item of a list that `lists` names, and has no meaning elsewhere"),
                ));
            }
            let below = keyed.iter().filter_map(|steps| steps.split_first());
            let below: Vec<&[String]> = below.filter(|(first, _)| *first == key).map(|(_, rest)| rest).collect();
            check_removals(value, &path, &below)
        }),
        ExactValue::List(items) => {
            let is_keyed = keyed.iter().any(|steps| steps.is_empty());
            items.iter().enumerate().try_for_each(|(index, item)| {
                let place = Path::Index(path, index);
                match item {
                    ExactValue::Map(entries) if is_keyed => entries
                        .iter()
                        .filter(|(key, _)| *key != REMOVE)
                        .try_for_each(|(key, value)| check_removals(value, &Path::Key(&place, key), &[])),
                    item => check_removals(item, &place, &[]),
                }
            })
        }
        ExactValue::Null | ExactValue::Bool(_) | ExactValue::Number(_) | ExactValue::Text(_) => Ok(()),
    }
}
