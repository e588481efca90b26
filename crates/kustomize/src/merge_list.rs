//! Merges two lists whose elements have keys, with kyaml's order and matching. Its quirks are reproduced on purpose, because they are
//! visible in the output.

use go_yaml::node::Node;

use crate::merge::{DIRECTIVE, Walk, apply_directives, merge, take_node};
use crate::meter;
use crate::schema::Type;

/// Merges `patch` into the list `target`; with `alone`, the list is content that a patch adds and is merged with itself.
pub(crate) fn merge_lists<'s>(
    target: &mut Node,
    patch: Option<Node>,
    alone: bool,
    keys: &[String],
    elements: Option<Type<'s>>,
    walk: &mut Walk<'s>,
) -> Result<(), String> {
    let scalar_keys = [String::new()];
    let keys: &[String] = if keys.is_empty() { &scalar_keys } else { keys };
    let mut values = element_values(target, patch.as_ref(), keys);
    if keys.len() > 1 {
        complete_keys(&mut values);
    }
    if values.is_empty() {
        return Ok(());
    }
    let Some(own) = target.items_mut() else {
        return Ok(());
    };
    let mut additions = patch;
    let mut merged: Vec<Node> = Vec::new();
    let mut used_keys: Vec<String> = Vec::new();
    meter::check()?;
    for wanted in values.iter().filter(|wanted| !wanted.is_empty()) {
        meter::count_steps(values.len() + own.len() + merged.len());
        meter::check()?;
        let (valid_keys, valid_values) = find_valid_keys(&values, wanted, keys);
        let own_position = find(own, &valid_keys, &valid_values);
        let addition = additions.as_mut().and_then(Node::items_mut).and_then(|items| {
            let position = find(items, &valid_keys, &valid_values)?;
            let item = items.get_mut(position)?;
            let addition = item.clone();
            // A directive applies once. Other keys for this element find it without the directive.
            item.remove(DIRECTIVE);
            Some(addition)
        });
        let element = own_position
            .and_then(|position| own.get_mut(position))
            .map(take_element);
        let was_there = element.is_some();
        let (mut node, replaced) = if alone {
            match element {
                Some(element) => (apply_directives(element, elements, walk)?, None),
                None => (None, None),
            }
        } else {
            let result = merge(element, addition, elements, walk)?;
            (result.node, result.replaced)
        };
        let gone = node
            .as_ref()
            .is_none_or(|node| node.is_null() || (node.is_map() && node.entries().is_empty()));
        if gone {
            if node.is_none()
                && let Some(deleted) = replaced
                && let Some(place) = own_position.and_then(|position| own.get_mut(position))
            {
                *place = deleted;
            }
            set_element(own, None, &valid_keys, &valid_values)?;
            used_keys = valid_keys;
            continue;
        }
        if let Some(node) = node.as_mut() {
            restore_keys(node, &valid_keys, &valid_values);
            if was_there && let Some(place) = own_position.and_then(|position| own.get_mut(position)) {
                *place = replaced.unwrap_or_else(|| node.clone());
            }
        }
        set_element(&mut merged, node, &valid_keys, &valid_values)?;
        used_keys = valid_keys;
    }
    let old = std::mem::take(own);
    append_own(&mut merged, old, &used_keys)?;
    *own = merged;
    Ok(())
}

/// Takes an element out. The remaining null counts as no element.
fn take_element(node: &mut Node) -> Node {
    let taken = take_node(node);
    *node = Node::scalar("null", go_yaml::node::Tag::Null);
    taken
}

/// Makes sure that the merged element has its keys.
fn restore_keys(node: &mut Node, keys: &[String], values: &[String]) {
    for (key, value) in keys.iter().zip(values) {
        if value.is_empty() || node.get(key).is_some() {
            continue;
        }
        if key.is_empty() {
            if node.is_scalar() {
                node.assign_scalar(Node::untyped(value.clone()));
            }
        } else {
            node.set_field(key, Node::untyped(value.clone()));
        }
    }
}

fn key_text(element: &Node, key: &str) -> String {
    element
        .get(key)
        .filter(|value| !value.is_empty())
        .map_or(String::new(), |value| value.text().to_owned())
}

/// Returns the key values of all elements, the patch's first, each once.
fn element_values(target: &Node, patch: Option<&Node>, keys: &[String]) -> Vec<Vec<String>> {
    let mut values: Vec<Vec<String>> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for element in patch.iter().flat_map(|patch| patch.items()).chain(target.items()) {
        let found: Vec<String> = match keys {
            [only] if only.is_empty() => vec![element.text().to_owned()],
            _ => keys.iter().map(|key| key_text(element, key)).collect(),
        };
        if seen.insert(found.clone()) {
            values.push(found);
        }
    }
    values
}

/// Fills keys that one side leaves out from an element of the other that agrees in the rest.
fn complete_keys(values: &mut [Vec<String>]) {
    for i in 0..values.len() {
        let Some(first) = values.get(i).cloned() else {
            continue;
        };
        meter::count_steps(values.len() * first.len());
        if meter::exhausted_limit().is_some() {
            return;
        }
        for j in 0..values.len() {
            let Some(second) = values.get(j) else {
                continue;
            };
            if let Some(both) = combine_keys(&first, second) {
                for position in [i, j] {
                    if let Some(place) = values.get_mut(position) {
                        place.clone_from(&both);
                    }
                }
            }
        }
    }
}

fn combine_keys(first: &[String], second: &[String]) -> Option<Vec<String>> {
    if first.len() != second.len() {
        return None;
    }
    let mut common = false;
    let mut both = Vec::with_capacity(first.len());
    for (a, b) in first.iter().zip(second) {
        if a == b {
            common = true;
            both.push(a.clone());
        } else if !a.is_empty() && !b.is_empty() {
            return None;
        } else {
            both.push(if a.is_empty() { b.clone() } else { a.clone() });
        }
    }
    common.then_some(both)
}

/// Returns the keys that any element uses, and this element's values for them.
fn find_valid_keys(all: &[Vec<String>], wanted: &[String], keys: &[String]) -> (Vec<String>, Vec<String>) {
    let used = |position: usize| {
        all.iter()
            .any(|values| values.get(position).is_some_and(|value| !value.is_empty()))
    };
    if !(0..keys.len()).any(used) {
        return (keys.to_vec(), wanted.to_vec());
    }
    let valid_keys = keys
        .iter()
        .enumerate()
        .filter(|(position, _)| used(*position))
        .map(|(_, key)| key.clone())
        .collect();
    let valid_values = wanted
        .iter()
        .enumerate()
        .filter(|(position, value)| !value.is_empty() || used(*position))
        .map(|(_, value)| value.clone())
        .collect();
    (valid_keys, valid_values)
}

fn find(items: &[Node], keys: &[String], values: &[String]) -> Option<usize> {
    let (keys, values) = find_valid_keys(&[values.to_vec()], values, keys);
    if let Some(first) = keys.first()
        && first.is_empty()
    {
        return items
            .iter()
            .position(|item| Some(item.text()) == values.first().map(String::as_str));
    }
    if keys.len() != values.len() {
        return None;
    }
    items.iter().position(|item| {
        item.is_map()
            && keys
                .iter()
                .zip(&values)
                .all(|(key, value)| item.get(key).is_some_and(|found| found.text() == value))
    })
}

/// Checks whether an element has a key with a value. Every value matches an empty one.
fn has_value(element: &Node, key: &str, value: &str) -> Result<bool, String> {
    if key.is_empty() {
        if !element.is_scalar() {
            return Err("wrong node kind: expected ScalarNode in a list of scalars".to_owned());
        }
        return Ok(element.text() == value);
    }
    if !element.is_map() {
        return Err("wrong node kind: expected MappingNode in a list that is merged by key".to_owned());
    }
    Ok(element
        .get(key)
        .is_some_and(|found| value.is_empty() || found.text() == value))
}

/// Replaces all matching elements with `element`, or removes them. Appends `element` if no element matches.
fn set_element(items: &mut Vec<Node>, element: Option<Node>, keys: &[String], values: &[String]) -> Result<(), String> {
    let by_key =
        keys.first().is_some_and(|key| !key.is_empty()) && values.first().is_some_and(|value| !value.is_empty());
    let mut kept = Vec::with_capacity(items.len() + 1);
    let mut found_any = false;
    for item in items.drain(..) {
        if item.is_null() || (item.is_map() && item.entries().is_empty()) {
            continue;
        }
        if !item.is_map() && by_key {
            kept.push(item);
            continue;
        }
        let mut found = true;
        let mut last = false;
        for (position, key) in keys.iter().enumerate() {
            if let Some(value) = values.get(position) {
                last = has_value(&item, key, value)?;
            }
            if !last {
                found = false;
                break;
            }
        }
        if !found {
            if !values.is_empty() {
                kept.push(item);
            }
            continue;
        }
        found_any = true;
        if let Some(element) = &element {
            kept.push(element.clone());
        }
    }
    if !found_any && let Some(element) = element.filter(|element| !element.is_null()) {
        kept.push(element);
    }
    *items = kept;
    Ok(())
}

/// Adds the list's own elements behind the merged elements, or in their places.
fn append_own(merged: &mut Vec<Node>, own: Vec<Node>, keys: &[String]) -> Result<(), String> {
    for element in own {
        meter::count_steps(1 + merged.len());
        meter::check()?;
        if keys.first().is_none_or(String::is_empty) {
            let text = element.text().to_owned();
            set_element(merged, Some(element), &[String::new()], &[text])?;
            continue;
        }
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            if !element.is_null() && !element.is_map() {
                return Err("wrong node kind: expected MappingNode in a list that is merged by key".to_owned());
            }
            match element.get(key) {
                Some(value) => values.push(value.text().to_owned()),
                None => merged.push(element.clone()),
            }
        }
        if keys.len() > 1 {
            set_element(merged, None, keys, &values)?;
        }
        set_element(merged, Some(element), keys, &values)?;
    }
    Ok(())
}
