//! Finds where two states of an object differ in the fields of a field set.
//!
//! A list is not searched again for each of its items, since the writer of the object chose their number.

use std::collections::HashMap;

use serde_json::Value;
use structured_merge::{FieldPath, FieldSet, PathElement};

/// How a map is compared if a field set has the map's own field, but none of its entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapOwnership {
    /// The map is one value, since the kind may declare it as atomic: a change of any entry counts.
    Whole,
    /// Entries belong to their own writers, since the kind has no atomic maps: only the removal of the map counts.
    Granular,
}

/// Returns the first field of the set whose value differs, in the notation `spec.replicas`. Fields that hold others are compared by
/// their entries. Finalizers and ownerReferences are ignored.
pub(crate) fn find_first(set: &FieldSet, old: &Value, new: &Value, maps: MapOwnership) -> Option<String> {
    let mut path = Vec::new();
    find_below(set, Some(old), Some(new), maps, &mut path)?;
    Some(FieldPath(path).to_string().trim_start_matches('.').to_owned())
}

fn find_below(
    set: &FieldSet,
    old: Option<&Value>,
    new: Option<&Value>,
    maps: MapOwnership,
    path: &mut Vec<PathElement>,
) -> Option<()> {
    if old == new || is_let_be(path) {
        return None;
    }
    let (old_items, new_items) = (Items::collect(set, old), Items::collect(set, new));
    for node in set.nodes() {
        let (before, after) = (old_items.find(&node.element), new_items.find(&node.element));
        path.push(node.element.clone());
        if node.children.is_empty() {
            let is_map = |value: Option<&Value>| value.is_some_and(Value::is_object);
            let is_kept = maps == MapOwnership::Granular && is_map(before) && is_map(after);
            if before != after && !is_kept && !is_let_be(path) {
                return Some(());
            }
        } else if find_below(&node.children, before, after, maps, path).is_some() {
            return Some(());
        }
        path.pop();
    }
    None
}

/// Checks whether a field is ignored: a part of metadata that every writer may change.
fn is_let_be(path: &[PathElement]) -> bool {
    let mut names = path.iter().filter_map(|element| match element {
        PathElement::Field(name) => Some(&**name),
        _ => None,
    });
    names.next() == Some("metadata")
        && matches!(
            names.next(),
            Some("finalizers" | "ownerReferences" | "managedFields" | "resourceVersion" | "generation")
        )
}

/// The entries of a map or a list, by their names in a field set.
struct Items<'a> {
    value: Option<&'a Value>,
    /// Items of a list by the values of their key fields, and those of a set by themselves.
    known: HashMap<String, &'a Value>,
    /// Names of the key fields.
    keys: Vec<String>,
}

impl<'a> Items<'a> {
    fn collect(set: &FieldSet, value: Option<&'a Value>) -> Self {
        let mut items = Self {
            value,
            known: HashMap::new(),
            keys: Vec::new(),
        };
        let Some(list) = value.and_then(Value::as_array) else {
            return items;
        };
        match set.nodes().first().map(|node| &node.element) {
            Some(PathElement::Key(key)) => {
                items.keys = key.iter().map(|field| field.name.to_string()).collect();
                for item in list {
                    let name = name_by(&items.keys, |name| item.get(name));
                    items.known.entry(name).or_insert(item);
                }
            }
            Some(PathElement::Value(_)) => {
                items.known = list.iter().map(|item| (item.to_string(), item)).collect();
            }
            _ => {}
        }
        items
    }

    fn find(&self, element: &PathElement) -> Option<&'a Value> {
        match element {
            PathElement::Field(name) => self.value?.get(&**name),
            PathElement::Index(index) => self.value?.get(usize::try_from(*index).ok()?),
            PathElement::Value(value) => self.known.get(&value.to_string()).copied(),
            PathElement::Key(key) => {
                let name = name_by(&self.keys, |name| {
                    key.iter().find(|field| &*field.name == name).map(|field| &field.value)
                });
                self.known.get(&name).copied()
            }
        }
    }
}

/// Returns the values of key fields as one text.
fn name_by<'v>(keys: &[String], find: impl Fn(&str) -> Option<&'v Value>) -> String {
    let values = keys
        .iter()
        .map(|key| find(key).map_or_else(String::new, Value::to_string));
    values.collect::<Vec<_>>().join("\u{0}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(fields: Value) -> FieldSet {
        FieldSet::from_fields_v1(&fields).expect("a set")
    }

    #[test]
    fn only_owned_fields_count_as_changed() {
        let own = set(
            json!({"f:spec": {"f:replicas": {}, "f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}, "f:name": {}}}},
            "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x\"": {}}}}),
        );
        let old = json!({"metadata": {"labels": {"a": "1", "b": "1"}, "finalizers": ["x"]},
            "spec": {"replicas": 1, "other": 1, "ports": [{"port": 80, "name": "web", "extra": 1}, {"port": 81}]}});
        let mut new = old.clone();
        new["spec"]["other"] = json!(2);
        new["spec"]["ports"] = json!([{"port": 81, "name": "more"}, {"port": 80, "name": "web", "extra": 2}]);
        new["metadata"] = json!({"labels": {"a": "1"}});
        assert_eq!(find_first(&own, &old, &new, MapOwnership::Whole), None);
        new["spec"]["ports"][1]["name"] = json!("api");
        assert_eq!(
            find_first(&own, &old, &new, MapOwnership::Whole).as_deref(),
            Some("spec.ports[port=80].name")
        );
        new["spec"]["ports"] = json!([{"port": 81}]);
        assert!(
            find_first(&own, &old, &new, MapOwnership::Whole)
                .is_some_and(|field| field.starts_with("spec.ports[port=80]"))
        );
        let stripped = json!({"metadata": {}, "spec": old["spec"]});
        assert_eq!(
            find_first(&own, &old, &stripped, MapOwnership::Whole).as_deref(),
            Some("metadata.labels.a")
        );
    }

    /// A removed entry changes both kinds of maps.
    #[test]
    fn added_entries_change_only_whole_maps() {
        let own = set(json!({"f:spec": {"f:components": {"f:a": {}}}}));
        let old = json!({"spec": {"components": {"a": {}}}});
        let added = json!({"spec": {"components": {"a": {"enabled": false}}}});
        let gone = json!({"spec": {"components": {}}});
        assert_eq!(find_first(&own, &old, &added, MapOwnership::Granular), None);
        for (new, maps) in [
            (&added, MapOwnership::Whole),
            (&gone, MapOwnership::Whole),
            (&gone, MapOwnership::Granular),
        ] {
            assert_eq!(find_first(&own, &old, new, maps).as_deref(), Some("spec.components.a"));
        }
    }

    #[test]
    fn a_long_list_is_searched_once() {
        let count = 20_000;
        let fields: serde_json::Map<String, Value> = (0..count)
            .map(|port| {
                (
                    format!("k:{{\"port\":{port}}}"),
                    json!({".": {}, "f:port": {}, "f:name": {}}),
                )
            })
            .collect();
        let own = set(json!({"f:spec": {"f:ports": fields}}));
        let list = |last: &str| -> Value {
            let items = (0..count)
                .rev()
                .map(|port| json!({"port": port, "name": if port == count - 1 { last } else { "a" }}));
            items.collect()
        };
        let (old, new) = (
            json!({"spec": {"ports": list("a")}}),
            json!({"spec": {"ports": list("b")}}),
        );
        assert_eq!(
            find_first(&own, &old, &new, MapOwnership::Whole).as_deref(),
            Some("spec.ports[port=19999].name")
        );
    }
}
