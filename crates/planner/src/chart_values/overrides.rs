//! The changes that a PackageValues lays over the values of one component.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use serde_json::{Map, Value};

use super::exact::{ExactValue, read_entries};
use super::keyed_lists::{check_removals, merge_lists};
use super::layer::{Found, Layer};
use super::references::{self, HelmReference, Reference};
use super::{KeyedList, MOST_BYTES, MOST_REFERENCES, MOST_RULES, Path, RESERVED, ValuesError, join_steps};
use crate::pointer::Pointer;

/// Changes of the values of one component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Override {
    /// Values that are laid over those of the Package.
    pub values: BTreeMap<String, ExactValue>,
    /// Values to remove, as RFC 6901 pointers. Each becomes `null`, so that Helm removes the default of the chart, too.
    pub unset: Vec<String>,
    /// Lists that merge by a key.
    pub lists: Vec<KeyedList>,
    /// Values that are texts in Secrets and ConfigMaps.
    pub references: Vec<Reference>,
}

/// The values of a component after its changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effective {
    /// The values, as Kubernetes stores them.
    pub values: Map<String, Value>,
    /// The paths that the changes set or remove, 1,000 at most.
    pub overridden: Vec<String>,
    /// The paths at which a map replaces another kind of value. The map of a lower layer shows through there.
    pub replaced: Vec<String>,
    /// The values that helm-controller reads from other objects, by path. `values` has none at these paths.
    pub references: Vec<HelmReference>,
}

impl Override {
    /// Reads the values of an object.
    ///
    /// # Errors
    /// If the values have too many levels, or a key is too long.
    pub fn of(values: Option<&Map<String, Value>>, unset: &[String], lists: &[KeyedList]) -> Result<Self, ValuesError> {
        Ok(Self {
            values: match values {
                Some(values) => read_entries(values, &Path::Root, 0)?,
                None => BTreeMap::new(),
            },
            unset: unset.to_vec(),
            lists: lists.to_vec(),
            references: Vec::new(),
        })
    }

    /// Checks whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.unset.is_empty() && self.references.is_empty()
    }

    /// Lays the changes over the values of the Package. `known` has all lower layers that are known, for lists that merge by a key: those of the Package, and of the chart
    /// if they could be read.
    ///
    /// # Errors
    /// With the path of the value that is invalid.
    pub fn apply(&self, package: &Layer, known: &Layer) -> Result<Effective, ValuesError> {
        let changes = self.resolve(known)?;
        if self.references.len() > MOST_REFERENCES {
            let problem = format!("valuesFrom has more than {MOST_REFERENCES} entries");
            return Err(ValuesError::new(&Path::Root, problem));
        }
        let mut merged = package.clone().merge(changes.clone());
        let references = references::resolve(&self.references, &changes, &mut merged)?;
        let values = merged.to_object()?;
        check_size(&values)?;
        let mut overridden = changes.list_paths();
        overridden.extend(references.iter().map(|reference| reference.path.clone()));
        overridden.sort();
        Ok(Effective {
            overridden,
            replaced: merged.list_replaced(),
            references,
            values,
        })
    }

    /// Returns the changes as a layer: lists are merged, and removals are nulls.
    fn resolve(&self, known: &Layer) -> Result<Layer, ValuesError> {
        if self.unset.len() > MOST_RULES || self.lists.len() > MOST_RULES {
            return Err(ValuesError::new(
                &Path::Root,
                format!("unset or lists has more than {MOST_RULES} entries"),
            ));
        }
        if let Some(key) = self.values.keys().find(|key| key.starts_with(RESERVED)) {
            return Err(refuse_reserved(std::slice::from_ref(key)));
        }
        let keyed = self.read_lists()?;
        let steps: Vec<&[String]> = keyed.iter().map(|(steps, _)| steps.as_slice()).collect();
        for (key, value) in &self.values {
            let below = steps.iter().filter_map(|steps| steps.split_first());
            let below: Vec<&[String]> = below.filter(|(first, _)| *first == key).map(|(_, rest)| rest).collect();
            check_removals(value, &Path::Key(&Path::Root, key), &below)?;
        }
        let own = Layer::from(self.values.clone());
        let mut changes = own.clone();
        for (steps, key) in &keyed {
            let Found::Value(ExactValue::List(upper)) = own.find(steps) else {
                return Err(ValuesError::at(
                    join_steps(steps),
                    "`lists` names this path, and the values have no list there",
                ));
            };
            let lower: &[ExactValue] = match known.find(steps) {
                Found::Missing | Found::Value(ExactValue::Null) => &[],
                Found::Value(ExactValue::List(items)) => items,
                Found::Map | Found::Value(_) | Found::Blocked(_) => {
                    return Err(ValuesError::at(
                        join_steps(steps),
                        "the value below is no list, so nothing can merge into it: remove the path from `lists`",
                    ));
                }
            };
            changes.set(steps, ExactValue::List(merge_lists(lower, upper, key, steps)?));
        }
        for steps in self.read_unset(&own, known)? {
            changes.set(&steps, ExactValue::Null);
        }
        Ok(changes)
    }

    fn read_lists(&self) -> Result<Vec<(Vec<String>, &str)>, ValuesError> {
        let mut read: Vec<(Vec<String>, &str)> = Vec::with_capacity(self.lists.len());
        let mut seen = BTreeSet::new();
        for (index, list) in self.lists.iter().enumerate() {
            let steps = read_pointer(&format!("lists[{index}].path"), &list.path)?;
            if list.key.is_empty() {
                return Err(ValuesError::at(
                    list.path.as_str(),
                    format!("lists[{index}].key is empty: name the key of the items"),
                ));
            }
            if !seen.insert(steps.clone()) {
                return Err(ValuesError::at(list.path.as_str(), "`lists` names this path twice"));
            }
            read.push((steps, &list.key));
        }
        Ok(read)
    }

    fn read_unset(&self, own: &Layer, known: &Layer) -> Result<Vec<Vec<String>>, ValuesError> {
        let read = |(index, text): (usize, &String)| read_pointer(&format!("unset[{index}]"), text);
        let mut all: Vec<Vec<String>> = self.unset.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        all.sort();
        all.dedup();
        let mut above: Option<&Vec<String>> = None;
        for steps in &all {
            if let Some(above) = above.filter(|above| steps.starts_with(above)) {
                return Err(ValuesError::at(
                    join_steps(steps),
                    format!(
                        "is below {}, which `unset` removes, too: remove one entry",
                        join_steps(above)
                    ),
                ));
            }
            above = Some(steps);
            if own.find(steps) != Found::Missing || is_set_above(own, steps) {
                return Err(ValuesError::at(
                    join_steps(steps),
                    "is set by values, and removed by `unset`: choose one",
                ));
            }
            if let Found::Blocked(length) = known.find(steps) {
                let blocked = join_steps(steps.get(..length).unwrap_or_default());
                return Err(ValuesError::at(
                    join_steps(steps),
                    format!("{blocked} is no map, so nothing below it can be removed"),
                ));
            }
        }
        Ok(all)
    }
}

/// Checks whether values set a place above a path to null.
fn is_set_above(own: &Layer, steps: &[String]) -> bool {
    (1..steps.len()).any(|length| {
        let above = steps.get(..length).unwrap_or_default();
        matches!(own.find(above), Found::Value(_))
    })
}

/// Reads a pointer. A key at the root needs no slash. In any other text without one, a separator might be meant that is none, such as a dot.
pub(super) fn read_pointer(field: &str, text: &str) -> Result<Vec<String>, ValuesError> {
    let shown: String = text.chars().take(100).collect();
    let is_key = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let absolute = match !text.is_empty() && text.chars().all(is_key) {
        true => format!("/{text}"),
        false => text.to_owned(),
    };
    let pointer = Pointer::parse(&absolute).map_err(|problem| {
        ValuesError::at(
            "",
            format!("{field}: {shown:?} {problem}: write a path such as /controller/replicas"),
        )
    })?;
    let steps = pointer.steps();
    if steps.len() > super::MOST_LEVELS || text.len() > super::MOST_KEY {
        return Err(ValuesError::at("", format!("{field}: the path is too long")));
    }
    if steps.first().is_some_and(|first| first.starts_with(RESERVED)) {
        return Err(refuse_reserved(steps));
    }
    Ok(steps.to_vec())
}

fn refuse_reserved(steps: &[String]) -> ValuesError {
    ValuesError::at(
        join_steps(steps),
        "keys that begin with _ are the platform's (such as _cluster and _namespace): use another key",
    )
}

/// Refuses values that are too large for an object.
pub(crate) fn check_size(values: &Map<String, Value>) -> Result<(), ValuesError> {
    let mut size = Size(0);
    // The writer ends at the bound.
    let is_complete = values
        .iter()
        .try_for_each(|(key, value)| write!(size, "{key:?}:{value},"))
        .is_ok();
    if is_complete {
        return Ok(());
    }
    Err(ValuesError::new(
        &Path::Root,
        format!("the values have more than {MOST_BYTES} bytes: move large texts into a ConfigMap or Secret"),
    ))
}

/// Writes values as JSON with sorted keys.
pub(crate) fn write_json(values: &Map<String, Value>) -> String {
    let entries = read_entries(values, &Path::Root, 0).unwrap_or_default();
    ExactValue::Map(entries).to_string()
}

/// Counts bytes up to a bound.
struct Size(usize);

impl fmt::Write for Size {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.saturating_add(text.len());
        if self.0 <= MOST_BYTES { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn apply(package: Value, changes: Value) -> Result<Value, String> {
        let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let texts: Vec<String> = serde_json::from_value(changes["unset"].clone()).unwrap_or_default();
        let lists: Vec<KeyedList> = serde_json::from_value(changes["lists"].clone()).unwrap_or_default();
        let package = Layer::of(&map(&package)).map_err(|error| error.to_string())?;
        let changes =
            Override::of(Some(&map(&changes["values"])), &texts, &lists).map_err(|error| error.to_string())?;
        let effective = changes.apply(&package, &package).map_err(|error| error.to_string())?;
        Ok(Value::Object(effective.values))
    }

    #[test]
    fn values_merge_and_everything_but_maps_replaces() {
        let check = |package: Value, changes: Value, expected: Value| {
            assert_eq!(apply(package, changes), Ok(expected));
        };
        check(
            json!({ "a": { "b": 1, "c": [1, 2] }, "d": 1 }),
            json!({ "values": { "a": { "c": [3], "e": null }, "d": { "f": 1 } } }),
            json!({ "a": { "b": 1, "c": [3], "e": null }, "d": { "f": 1 } }),
        );
        check(
            json!({ "a": { "b": 1 }, "c": 2 }),
            json!({ "unset": ["/a/b", "/x/y", "/c"] }),
            json!({ "a": { "b": null }, "x": { "y": null }, "c": null }),
        );
        check(json!({ "a": 1 }), json!({ "values": { "a": {} } }), json!({ "a": {} }));
        check(
            json!({ "a": { "b": 1 } }),
            json!({ "values": { "a": {} } }),
            json!({ "a": { "b": 1 } }),
        );
        check(
            json!({ "a~b": { "c/d": 1 } }),
            json!({ "unset": ["/a~0b/c~1d"] }),
            json!({ "a~b": { "c/d": null } }),
        );
    }

    #[test]
    fn one_more_image_costs_no_other() {
        let images =
            |names: &[&str]| -> Vec<Value> { names.iter().map(|name| json!({ "name": name, "tag": 1 })).collect() };
        let lists = json!([{ "path": "/images", "key": "name" }]);
        let check = |package: Value, upper: Value, expected: Value| {
            let changes = json!({ "values": { "images": upper }, "lists": lists });
            assert_eq!(apply(package, changes), Ok(json!({ "images": expected })));
        };
        check(
            json!({ "images": images(&["c", "a", "b"]) }),
            json!([{ "name": "z", "tag": 2 }, { "name": "a", "tag": 3 }, { "name": "b", "$remove": true }, { "name": "y" }]),
            json!([{ "name": "c", "tag": 1 }, { "name": "a", "tag": 3 }, { "name": "z", "tag": 2 }, { "name": "y" }]),
        );
        check(
            json!({}),
            json!([{ "name": "a" }, { "name": "b", "$remove": true }]),
            json!([{ "name": "a" }]),
        );
        let short = json!({ "values": { "images": [{ "name": "b" }] }, "unset": ["tag"], "lists": [{ "path": "images", "key": "name" }] });
        let expected = json!({ "images": [{ "name": "a", "tag": 1 }, { "name": "b" }], "tag": null });
        assert_eq!(apply(json!({ "images": images(&["a"]) }), short), Ok(expected));
        check(
            json!({ "images": null }),
            json!([{ "name": 7 }]),
            json!([{ "name": 7 }]),
        );
    }

    #[test]
    fn invalid_changes_are_refused_with_their_path() {
        let lists = json!([{ "path": "/l", "key": "name" }]);
        let check = |package: Value, changes: Value, expected: &str| {
            assert_eq!(apply(package, changes).map(|_| ()), Err(expected.to_owned()));
        };
        let reserved = "keys that begin with _ are the platform's (such as _cluster and _namespace): use another key";
        check(
            json!({}),
            json!({ "values": { "_cluster": 1 } }),
            &format!("/_cluster: {reserved}"),
        );
        check(
            json!({}),
            json!({ "unset": ["/_namespace/host"] }),
            &format!("/_namespace/host: {reserved}"),
        );
        check(
            json!({}),
            json!({ "values": { "a": { "b": 1 } }, "unset": ["/a/b"] }),
            "/a/b: is set by values, and removed by `unset`: choose one",
        );
        check(
            json!({}),
            json!({ "values": { "a": null }, "unset": ["/a/b"] }),
            "/a/b: is set by values, and removed by `unset`: choose one",
        );
        check(
            json!({ "a": [1] }),
            json!({ "unset": ["/a/0"] }),
            "/a/0: /a is no map, so nothing below it can be removed",
        );
        check(
            json!({}),
            json!({ "unset": ["/a", "/a/b"] }),
            "/a/b: is below /a, which `unset` removes, too: remove one entry",
        );
        check(
            json!({}),
            json!({ "unset": ["a.b"] }),
            "/: unset[0]: \"a.b\" doesn't begin with a slash: write a path such as /controller/replicas",
        );
        let twice = json!([{ "name": "a" }, { "name": "a" }]);
        check(
            json!({ "l": twice }),
            json!({ "values": { "l": [] }, "lists": lists }),
            "/l/1: the list below has two items with name a: keep one of them",
        );
        check(
            json!({}),
            json!({ "values": { "l": twice }, "lists": lists }),
            "/l/1: the list has two items with name a: keep one of them",
        );
        check(
            json!({ "l": "text" }),
            json!({ "values": { "l": [] }, "lists": lists }),
            "/l: the value below is no list, so nothing can merge into it: remove the path from `lists`",
        );
        check(
            json!({}),
            json!({ "values": { "m": 1 }, "lists": lists }),
            "/l: `lists` names this path, and the values have no list there",
        );
        check(
            json!({}),
            json!({ "values": { "l": [{ "name": "a", "$remove": true, "tag": 1 }] }, "lists": lists }),
            "/l/0/$remove: an item that is removed has name and $remove: true, and nothing else",
        );
        let elsewhere = "$remove removes an item of a list that `lists` names, and has no meaning elsewhere";
        check(
            json!({}),
            json!({ "values": { "a": [{ "name": "a", "$remove": true }] } }),
            &format!("/a/0/$remove: {elsewhere}"),
        );
        check(
            json!({}),
            json!({ "values": { "l": [{ "name": "a", "b": { "$remove": true } }] }, "lists": lists }),
            &format!("/l/0/b/$remove: {elsewhere}"),
        );
        check(
            json!({}),
            json!({ "values": { "l": [1] }, "lists": lists }),
            "/l/0: the list has an item that is no map, so it can't merge by name",
        );
        check(
            json!({}),
            json!({ "values": { "l": [{ "name": 0.5 }] }, "lists": lists }),
            "/l/0: name must be a text or a whole number in the list",
        );
        let mut deep = json!(1);
        for _ in 0..500 {
            deep = json!({ "a": deep });
        }
        let error = apply(json!({}), json!({ "values": { "a": deep } })).unwrap_err();
        assert!(
            error.ends_with("the values have more than 100 levels: make them flatter"),
            "{error}"
        );
        let error = apply(json!({ "a": "x".repeat(1 << 20) }), json!({ "values": { "b": 1 } })).unwrap_err();
        assert!(
            error.starts_with("/: the values have more than 524288 bytes"),
            "{error}"
        );
    }

    #[test]
    fn maps_that_replace_another_kind_of_value_are_reported() {
        let package = json!({ "a": 5, "b": { "c": 1 } });
        let package = Layer::of(package.as_object().unwrap()).unwrap();
        let values = json!({ "a": { "d": 1 }, "b": { "e": 2 } });
        let changes = Override::of(values.as_object(), &["/b/c".to_owned()], &[]).unwrap();
        let effective = changes.apply(&package, &package).unwrap();
        assert_eq!(effective.replaced, ["/a"]);
        assert_eq!(effective.overridden, ["/a/d", "/b/c", "/b/e"]);
    }
}
