//! YAML merge keys (`<<`): copies the entries of the referenced mappings into a mapping. Own fields take precedence.

use std::collections::{HashMap, HashSet};

use super::node::{Data, Node, Tag};
use crate::meter;

/// Folds all merge keys of a node, innermost first. In resources, a quoted key `"<<"` is removed with its value. In configurations, the
/// last of several equal keys counts.
///
/// # Errors
/// If a merge key doesn't hold a mapping or a sequence of mappings, or occurs twice in one mapping.
pub fn fold(node: &mut Node, of_resources: bool) -> Result<(), (u32, String)> {
    match &mut node.data {
        Data::Scalar(_) => Ok(()),
        Data::Seq(items) => items.iter_mut().try_for_each(|item| fold(item, of_resources)),
        Data::Map(entries) => {
            for (key, value) in entries.iter_mut() {
                fold(key, of_resources)?;
                fold(value, of_resources)?;
            }
            if entries.iter().any(|(key, _)| key.tag == Tag::Merge) {
                fold_entries(entries)?;
            }
            if of_resources {
                entries.retain(|(key, _)| key.text() != "<<");
            } else {
                keep_last(entries);
            }
            Ok(())
        }
    }
}

/// Returns a duplicate key of a mapping in a node.
pub fn find_duplicate_key(node: &Node) -> Option<&Node> {
    let mut names: HashSet<&str> = HashSet::with_capacity(node.entries().len());
    let mut own = node.entries().iter().map(|(key, _)| key);
    own.find(|key| !names.insert(key.text()))
        .or_else(|| node.entries().iter().find_map(|(_, value)| find_duplicate_key(value)))
        .or_else(|| node.items().iter().find_map(find_duplicate_key))
}

/// Drops each entry that a later entry with an equal key replaces, as in a Go map.
fn keep_last(entries: &mut Vec<(Node, Node)>) {
    let mut names: HashSet<&str> = HashSet::with_capacity(entries.len());
    let hidden: Vec<usize> = (0..entries.len())
        .rev()
        .filter(|place| entries.get(*place).is_some_and(|(key, _)| !names.insert(key.text())))
        .collect();
    if hidden.is_empty() {
        return;
    }
    let mut hidden = hidden.into_iter().rev().peekable();
    let mut place = 0;
    entries.retain(|_| {
        let is_kept = hidden.next_if_eq(&place).is_none();
        place += 1;
        is_kept
    });
}

fn fold_entries(entries: &mut Vec<(Node, Node)>) -> Result<(), (u32, String)> {
    let mut merged: Option<Node> = None;
    let mut own = Vec::with_capacity(entries.len());
    for (key, value) in entries.drain(..) {
        if key.tag == Tag::Merge {
            if merged.is_some() {
                return Err((key.line, "duplicate merge key".to_owned()));
            }
            if key.text() != "<<" {
                // Only the usual key is removed. Another key with the merge tag stays beside the merged entries.
                own.push((key, value.clone()));
            }
            merged = Some(value);
        } else {
            own.push((key, value));
        }
    }
    let mut result: Vec<(Node, Node)> = own.clone();
    let mut layers = Vec::new();
    if let Some(value) = merged {
        collect_layers(value, &mut layers)?;
    }
    layers.push(own);
    let mut places: HashMap<String, usize> = HashMap::with_capacity(result.len());
    for (place, (key, _)) in result.iter().enumerate() {
        places.entry(key.text().to_owned()).or_insert(place);
    }
    for layer in layers {
        for (key, value) in layer {
            meter::count_steps(1);
            match places.get(key.text()).and_then(|place| result.get_mut(*place)) {
                Some(existing) => *existing = (key, value),
                None => {
                    places.insert(key.text().to_owned(), result.len());
                    result.push((key, value));
                }
            }
        }
    }
    *entries = result;
    Ok(())
}

/// Collects the mappings to merge, weakest first: the first of a sequence wins over the later ones.
fn collect_layers(value: Node, layers: &mut Vec<Vec<(Node, Node)>>) -> Result<(), (u32, String)> {
    let line = value.line;
    match value.data {
        Data::Map(entries) => {
            layers.push(*entries);
            Ok(())
        }
        Data::Seq(items) => {
            for item in items.into_iter().rev() {
                if matches!(item.data, Data::Seq(_)) {
                    return Err((item.line, "invalid map merge: received a nested sequence".to_owned()));
                }
                collect_layers(item, layers)?;
            }
            Ok(())
        }
        Data::Scalar(_) => Err((
            line,
            "map merge requires map or sequence of maps as the value".to_owned(),
        )),
    }
}
