//! Differences between two states of an object as paths, and which field manager owns a path.
//!
//! Elements of lists are matched by `name` where they have one, else by position: enough to name the field that two writers fight for.

use serde_json::{Map, Value};
use structured_merge::{FieldPath, PathElement};
use tenure_api::ObjectView;

use crate::pointer::{Pointer, find_step};

/// The most differences that are looked for in one object.
const MOST_DIFFERENCES: usize = 16;

/// A path at which two states of an object differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The path for messages: `spec.template.spec.containers[name=app].image`.
    pub path: String,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq)]
enum Segment {
    Field(String),
    /// An element of a list, with its position if its name doesn't identify it.
    Element(Value, Option<usize>),
}

impl Difference {
    /// Returns the path in the form of managedFields.
    #[must_use]
    pub fn make_field_path(&self) -> FieldPath {
        let steps = self.segments.iter().map(|segment| match segment {
            Segment::Field(name) => PathElement::field(name),
            Segment::Element(_, Some(index)) => PathElement::Index(i64::try_from(*index).unwrap_or(i64::MAX)),
            Segment::Element(element, None) => {
                PathElement::key([("name", element.get("name").cloned().unwrap_or_default())])
            }
        });
        FieldPath(steps.collect())
    }
}

/// Finds the paths at which two states differ, at most 16.
#[must_use]
pub fn find_differences(one: &Value, other: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(one, other, &mut Vec::new(), &mut String::new(), &mut found);
    found
}

fn compare(one: &Value, other: &Value, segments: &mut Vec<Segment>, path: &mut String, found: &mut Vec<Difference>) {
    if one == other || found.len() >= MOST_DIFFERENCES {
        return;
    }
    match (one, other) {
        (Value::Object(left), Value::Object(right)) => {
            let added = right.keys().filter(|key| !left.contains_key(*key));
            for key in left.keys().chain(added) {
                let before = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                segments.push(Segment::Field(key.clone()));
                compare(
                    left.get(key).unwrap_or(&Value::Null),
                    right.get(key).unwrap_or(&Value::Null),
                    segments,
                    path,
                    found,
                );
                segments.pop();
                path.truncate(before);
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            let name = |element: &Value| ObjectView::new(element).find_text("/name").map(str::to_owned);
            let named = !left.is_empty() && left.iter().chain(right).all(|element| name(element).is_some());
            if named {
                let added = right
                    .iter()
                    .filter(|element| !left.iter().any(|other| name(other) == name(element)));
                for element in left.iter().chain(added) {
                    let key = name(element);
                    let find = |list: &[Value]| {
                        list.iter()
                            .find(|other| name(other) == key)
                            .cloned()
                            .unwrap_or(Value::Null)
                    };
                    let before = path.len();
                    path.push_str(&format!("[name={}]", key.as_deref().unwrap_or_default()));
                    segments.push(Segment::Element(element.clone(), None));
                    compare(&find(left), &find(right), segments, path, found);
                    segments.pop();
                    path.truncate(before);
                }
            } else if left.len() == right.len() {
                for (index, (left, right)) in left.iter().zip(right).enumerate() {
                    let before = path.len();
                    path.push_str(&format!("[{index}]"));
                    segments.push(Segment::Element(left.clone(), Some(index)));
                    compare(left, right, segments, path, found);
                    segments.pop();
                    path.truncate(before);
                }
            } else {
                found.push(Difference {
                    path: path.clone(),
                    segments: segments.clone(),
                });
            }
        }
        // A subtree or a scalar that only one side has is one difference, with the path of its root.
        _ => found.push(Difference {
            path: path.clone(),
            segments: segments.clone(),
        }),
    }
}

/// Finds the field manager, other than `ours`, that last set a path of a live object, by managedFields. If no manager owns the path because it was removed, the last
/// writer is returned. Returns nothing if no other manager exists.
#[must_use]
pub fn find_other_manager(live: &Value, difference: &Difference, ours: &str) -> Option<String> {
    let mut others: Vec<ObjectView<'_>> = ObjectView::new(live)
        .list_views("/metadata/managedFields")
        .filter(|entry| entry.read_text("/manager") != ours && entry.read_text("/subresource").is_empty())
        .collect();
    others.sort_by_key(|entry| entry.read_text("/time"));
    let owner = others.iter().rev().find(|entry| {
        entry
            .find("/fieldsV1")
            .is_some_and(|fields| owns_path(fields, &difference.segments))
    });
    let owner = owner.or(others.last())?;
    Some(owner.read_text("/manager").to_owned())
}

/// Finds the manager of a path: the last of these managedFields entries whose fields contain it.
#[must_use]
pub fn find_manager_among(entries: &[Value], difference: &Difference) -> Option<String> {
    let mut entries = entries.iter().rev().map(ObjectView::new);
    let owner = entries.find(|entry| {
        let fields = entry.find("/fieldsV1");
        fields.is_some_and(|fields| owns_path(fields, &difference.segments))
    })?;
    owner.find_text("/manager").map(str::to_owned)
}

/// Checks whether a FieldsV1 tree contains the path, a parent of the path as a leaf, or a field below the path.
fn owns_path(fields: &Value, segments: &[Segment]) -> bool {
    let Some((segment, rest)) = segments.split_first() else {
        return true;
    };
    let Some(fields) = fields.as_object() else { return false };
    let next = match segment {
        Segment::Field(name) => fields.get(&format!("f:{name}")),
        Segment::Element(element, _) => find_element(fields, element),
    };
    match next {
        Some(next) => next.as_object().is_some_and(serde_json::Map::is_empty) || owns_path(next, rest),
        None => false,
    }
}

/// Finds the fields of an element of a list, by its keys or its value.
fn find_element<'f>(fields: &'f Map<String, Value>, element: &Value) -> Option<&'f Value> {
    fields.iter().find_map(|(key, value)| {
        let matches = match key.split_once(':') {
            Some(("k", keys)) => serde_json::from_str::<Value>(keys).ok().is_some_and(|keys| {
                keys.as_object()
                    .is_some_and(|keys| keys.iter().all(|(key, value)| element.get(key) == Some(value)))
            }),
            Some(("v", scalar)) => serde_json::from_str::<Value>(scalar).ok().as_ref() == Some(element),
            _ => false,
        };
        matches.then_some(value)
    })
}

/// Checks whether a manager other than `ours` has applied this place of a live object. The place itself or a part below it counts; a parent as a whole doesn't (Flux's
/// rule).
#[must_use]
pub(crate) fn is_applied_by_another(live: &Value, place: &Pointer, ours: &str) -> bool {
    let mut others = ObjectView::new(live)
        .list_views("/metadata/managedFields")
        .filter(|entry| {
            entry.read_text("/manager") != ours
                && entry.read_text("/operation") == "Apply"
                && entry.read_text("/subresource").is_empty()
        });
    others.any(|entry| {
        let mut at = (entry.find("/fieldsV1"), Some(live));
        for step in place.steps() {
            let (Some(Value::Object(fields)), Some(value)) = at else {
                return false;
            };
            let next = find_step(value, step);
            let below = match (value, next) {
                (Value::Array(_), Some(element)) => find_element(fields, element),
                (Value::Array(_), None) => None,
                _ => fields.get(&format!("f:{step}")),
            };
            // A removed value may still have a manager.
            at = (below, Some(next.unwrap_or(&Value::Null)));
        }
        at.0.is_some()
    })
}
