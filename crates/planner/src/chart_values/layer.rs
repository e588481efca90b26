//! One layer of values, and the merge of two layers.
//!
//! The merge is associative and has the empty layer as identity. For that, a map knows whether it replaces another kind of value: `{a: 5}` below `{a: {b: 1}}` is not
//! the same as `{a: {b: 1}}` alone, since a lower layer with `{a: {c: 2}}` shows through only the second one.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::exact::{ExactValue, read_entries, write_value};
use super::{MOST_PATHS, Path, ValuesError};

/// A layer of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    entries: Entries,
}

type Entries = BTreeMap<String, Entry>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    /// A value that is no map.
    Value(ExactValue),
    /// A map. `replaces`: nothing of lower layers shows through.
    Map { entries: Entries, replaces: bool },
}

impl From<ExactValue> for Entry {
    fn from(value: ExactValue) -> Self {
        match value {
            ExactValue::Map(entries) => Self::Map {
                entries: make_entries(entries),
                replaces: false,
            },
            value => Self::Value(value),
        }
    }
}

fn make_entries(values: BTreeMap<String, ExactValue>) -> Entries {
    values.into_iter().map(|(key, value)| (key, value.into())).collect()
}

impl From<BTreeMap<String, ExactValue>> for Layer {
    fn from(values: BTreeMap<String, ExactValue>) -> Self {
        Self {
            entries: make_entries(values),
        }
    }
}

impl Layer {
    /// Reads the values of an object.
    ///
    /// # Errors
    /// If the values have too many levels.
    pub fn of(values: &Map<String, Value>) -> Result<Self, ValuesError> {
        Ok(read_entries(values, &Path::Root, 0)?.into())
    }

    /// Lays another layer over this one.
    #[must_use]
    pub fn merge(mut self, upper: Self) -> Self {
        merge_entries(&mut self.entries, upper.entries);
        self
    }

    /// Returns the values of the layer.
    #[must_use]
    pub fn into_values(self) -> BTreeMap<String, ExactValue> {
        take_values(self.entries)
    }

    /// Returns the values as Kubernetes stores them.
    ///
    /// # Errors
    /// If a number can't be stored exactly.
    pub fn to_object(&self) -> Result<Map<String, Value>, ValuesError> {
        let write = |(key, value): (String, ExactValue)| {
            let value = write_value(&value, &Path::Key(&Path::Root, &key))?;
            Ok((key, value))
        };
        self.clone().into_values().into_iter().map(write).collect()
    }

    /// Lists the paths of the maps that replace another kind of value. In lower layers that helm-controller merges, a map at such a path shows through.
    #[must_use]
    pub fn list_replaced(&self) -> Vec<String> {
        let mut paths = Vec::new();
        collect_replaced(&self.entries, &Path::Root, &mut paths);
        paths
    }

    /// Lists the paths of the values that are no maps, and of empty maps; 1,000 at most.
    #[must_use]
    pub fn list_paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        collect_paths(&self.entries, &Path::Root, &mut paths);
        paths
    }

    /// Finds the value at a path of keys.
    #[must_use]
    pub fn find(&self, steps: &[String]) -> Found<'_> {
        let Some((last, parents)) = steps.split_last() else {
            return Found::Map;
        };
        let mut entries = &self.entries;
        for (index, step) in parents.iter().enumerate() {
            match entries.get(step) {
                None => return Found::Missing,
                Some(Entry::Map { entries: inner, .. }) => entries = inner,
                Some(Entry::Value(ExactValue::Null)) => return Found::Missing,
                Some(Entry::Value(_)) => return Found::Blocked(index + 1),
            }
        }
        match entries.get(last) {
            None => Found::Missing,
            Some(Entry::Map { .. }) => Found::Map,
            Some(Entry::Value(value)) => Found::Value(value),
        }
    }

    /// Sets the value at a path of keys. Missing maps are made.
    pub(super) fn set(&mut self, steps: &[String], value: ExactValue) {
        let Some((last, parents)) = steps.split_last() else {
            return;
        };
        let mut entries = &mut self.entries;
        for step in parents {
            let entry = entries.entry(step.clone()).or_insert_with(|| Entry::Map {
                entries: Entries::new(),
                replaces: false,
            });
            if matches!(entry, Entry::Value(_)) {
                *entry = Entry::Map {
                    entries: Entries::new(),
                    replaces: true,
                };
            }
            match entry {
                Entry::Map { entries: inner, .. } => entries = inner,
                Entry::Value(_) => return,
            }
        }
        entries.insert(last.clone(), value.into());
    }

    /// Removes the value at a path of keys, so that the value of a lower layer shows through.
    pub(super) fn remove(&mut self, steps: &[String]) {
        let Some((last, parents)) = steps.split_last() else {
            return;
        };
        let mut entries = &mut self.entries;
        for step in parents {
            match entries.get_mut(step) {
                Some(Entry::Map { entries: inner, .. }) => entries = inner,
                Some(Entry::Value(_)) | None => return,
            }
        }
        entries.remove(last);
    }
}

/// The result of a search for a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'a> {
    /// No value has the path.
    Missing,
    /// A map.
    Map,
    /// A value that is no map.
    Value(&'a ExactValue),
    /// The first steps of the path, this many, lead to a value that is neither a map nor null.
    Blocked(usize),
}

fn merge_entries(lower: &mut Entries, upper: Entries) {
    for (key, entry) in upper {
        let merged = match (lower.remove(&key), entry) {
            (
                Some(Entry::Map {
                    entries: mut below,
                    replaces,
                }),
                Entry::Map {
                    entries,
                    replaces: false,
                },
            ) => {
                merge_entries(&mut below, entries);
                Entry::Map {
                    entries: below,
                    replaces,
                }
            }
            (Some(Entry::Value(_)), Entry::Map { entries, .. }) => Entry::Map {
                entries,
                replaces: true,
            },
            (_, entry) => entry,
        };
        lower.insert(key, merged);
    }
}

fn take_values(entries: Entries) -> BTreeMap<String, ExactValue> {
    let take = |entry| match entry {
        Entry::Value(value) => value,
        Entry::Map { entries, .. } => ExactValue::Map(take_values(entries)),
    };
    entries.into_iter().map(|(key, entry)| (key, take(entry))).collect()
}

fn collect_replaced(entries: &Entries, path: &Path<'_>, paths: &mut Vec<String>) {
    for (key, entry) in entries {
        let Entry::Map { entries, replaces } = entry else {
            continue;
        };
        let path = Path::Key(path, key);
        if *replaces && paths.len() < MOST_PATHS {
            paths.push(path.to_string());
        }
        collect_replaced(entries, &path, paths);
    }
}

fn collect_paths(entries: &Entries, path: &Path<'_>, paths: &mut Vec<String>) {
    for (key, entry) in entries {
        let path = Path::Key(path, key);
        if paths.len() >= MOST_PATHS {
            return;
        }
        match entry {
            Entry::Map { entries, .. } if !entries.is_empty() => collect_paths(entries, &path, paths),
            Entry::Map { .. } | Entry::Value(_) => paths.push(path.to_string()),
        }
    }
}
