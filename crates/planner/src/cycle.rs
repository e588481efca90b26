//! Cycles of objects that wait for each other: the search, for objects of any kind, and the message.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most names that a search follows before it gives up.
pub(crate) const MOST_FOLLOWED: usize = 2_000;
/// The most names of a cycle in a message.
const MOST_NAMES: usize = 16;

/// Finds the shortest path from an object, over the objects that it names, back to itself; `names` returns the names of an object, if it exists. A path beyond the
/// search's bound is not found.
pub(crate) fn find_cycle(
    start: &str,
    own: Vec<String>,
    names: impl Fn(&str) -> Option<Vec<String>>,
) -> Option<Vec<String>> {
    let mut came_from: BTreeMap<String, String> = BTreeMap::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut next = VecDeque::from([(start.to_owned(), own)]);
    let mut followed = 0;
    while let Some((from, named)) = next.pop_front() {
        for name in named {
            followed += 1;
            if followed > MOST_FOLLOWED {
                return None;
            }
            if name == start {
                return Some(trace_cycle(start, &from, &came_from));
            }
            if !seen.insert(name.clone()) {
                continue;
            }
            came_from.insert(name.clone(), from.clone());
            if let Some(found) = names(&name) {
                next.push_back((name, found));
            }
        }
    }
    None
}

/// Returns the path to the last object before the start, closed.
fn trace_cycle(start: &str, last: &str, came_from: &BTreeMap<String, String>) -> Vec<String> {
    let mut way = vec![start.to_owned()];
    let mut at = last;
    while at != start {
        way.push(at.to_owned());
        match came_from.get(at) {
            Some(before) => at = before,
            None => break,
        }
    }
    way.push(start.to_owned());
    way.reverse();
    way
}

/// Describes a cycle for a message: `a -> b -> a`.
#[must_use]
pub fn describe_cycle(cycle: &[String]) -> String {
    let mut names: Vec<&str> = cycle.iter().take(MOST_NAMES).map(String::as_str).collect();
    if cycle.len() > MOST_NAMES {
        names.push("[...]");
        names.extend(cycle.last().map(String::as_str));
    }
    names.join(" -> ")
}
