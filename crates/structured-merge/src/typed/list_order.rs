//! Merges lists that are sets or maps. Items in both lists come in the configuration's order. Items only in the live list keep their place
//! among them as well as possible.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{elements::element_of, merge::Outcome, merge::merge_values};
use crate::json;
use crate::path::PathElement;
use crate::schema::{ListType, Schema};

/// The positions of live items with one key.
enum LivePosition {
    Once(usize),
    /// Several items have the key. The configuration's item replaces all of them and is merged with none.
    Several,
}

pub(super) fn merge_items(schema: &Schema, list: &ListType, live: &[Value], config: &[Value]) -> Outcome {
    let elements = |items: &[Value]| -> Vec<(PathElement, usize)> {
        // Both lists have been validated, so every item has an element.
        items
            .iter()
            .enumerate()
            .filter_map(|(at, item)| Some((element_of(schema, list, item).ok()?, at)))
            .collect()
    };
    let (live_elements, config_elements) = (elements(live), elements(config));
    let mut places: BTreeMap<&PathElement, LivePosition> = BTreeMap::new();
    for (element, at) in &live_elements {
        places
            .entry(element)
            .and_modify(|place| *place = LivePosition::Several)
            .or_insert(LivePosition::Once(*at));
    }
    let wanted: BTreeSet<&PathElement> = config_elements.iter().map(|(element, _)| element).collect();

    let mut merge = Merge {
        schema,
        list,
        live,
        config,
        merged: Vec::with_capacity(live.len().max(config.len())),
        same: true,
    };
    // The configuration's items that the live list has too, in the order in which they have to come.
    let mut shared = config_elements
        .iter()
        .map(|(element, _)| element)
        .filter(|element| places.contains_key(element));
    let mut next_shared = shared.next();
    let mut done: BTreeSet<&PathElement> = BTreeSet::new();
    let (mut lives, mut configs) = (live_elements.iter().peekable(), config_elements.iter().peekable());
    while lives.peek().is_some() || configs.peek().is_some() {
        if let (Some((live_element, _)), Some((config_element, config_at))) = (lives.peek(), configs.peek()) {
            if live_element == config_element {
                merge.take_config(places.get(config_element), *config_at);
                done.insert(config_element);
                next_shared = shared.next();
                lives.next();
                configs.next();
                continue;
            }
            // A shared item that is not next comes later, in the configuration's order.
            if wanted.contains(live_element) && next_shared.is_some_and(|next| next != live_element) {
                lives.next();
                continue;
            }
        }
        if let Some((live_element, live_at)) = lives.peek() {
            if !wanted.contains(live_element) {
                merge.take_live(*live_at);
                lives.next();
                continue;
            }
            if done.contains(live_element) {
                lives.next();
            }
        }
        if let Some((config_element, config_at)) = configs.next() {
            merge.take_config(places.get(config_element), *config_at);
            done.insert(config_element);
            if next_shared == Some(config_element) {
                next_shared = shared.next();
            }
        }
    }
    merge.finish()
}

/// The state of the merge of two lists: both lists, and the items of the result so far.
struct Merge<'a> {
    schema: &'a Schema,
    list: &'a ListType,
    live: &'a [Value],
    config: &'a [Value],
    merged: Vec<Item>,
    /// Whether all items so far are those of the live list, in their places.
    same: bool,
}

/// An item of the result; copied only if the result differs from the live list.
enum Item {
    Live(usize),
    Config(usize),
    Merged(Value),
}

impl Merge<'_> {
    fn push(&mut self, item: Item) {
        self.same &= match (&item, self.live.get(self.merged.len())) {
            (Item::Live(at), Some(_)) => *at == self.merged.len(),
            (Item::Config(at), Some(there)) => self.config.get(*at).is_some_and(|item| json::equal_values(item, there)),
            (Item::Merged(value), Some(there)) => json::equal_values(value, there),
            (_, None) => false,
        };
        self.merged.push(item);
    }

    fn take_live(&mut self, at: usize) {
        self.push(Item::Live(at));
    }

    fn take_config(&mut self, place: Option<&LivePosition>, at: usize) {
        let item = match (place, self.config.get(at)) {
            (Some(LivePosition::Once(live_at)), Some(config_item)) => match self.live.get(*live_at) {
                Some(live_item) => {
                    match merge_values(self.schema, self.schema.get(self.list.element), live_item, config_item) {
                        Outcome::Same => Item::Live(*live_at),
                        Outcome::Changed(merged) => Item::Merged(merged),
                    }
                }
                None => Item::Config(at),
            },
            _ => Item::Config(at),
        };
        self.push(item);
    }

    fn finish(self) -> Outcome {
        if self.same && self.merged.len() == self.live.len() {
            return Outcome::Same;
        }
        let items = self.merged.into_iter().filter_map(|item| match item {
            Item::Live(at) => self.live.get(at).cloned(),
            Item::Config(at) => self.config.get(at).cloned(),
            Item::Merged(value) => Some(value),
        });
        Outcome::Changed(Value::Array(items.collect()))
    }
}
