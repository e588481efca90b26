//! The owners of a field of an object, from its managedFields. An object without managedFields has no owners.

use serde_json::Value;

use crate::managed::{Managed, ManagedFieldsEntry, ManagedFieldsError};
use crate::path::{FieldPath, PathElement};
use crate::set::FieldSet;

/// The part of a requested field that a manager owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Share {
    /// The field itself.
    Field,
    /// Something inside the field.
    Inside,
    /// Something that holds the field: an atomic list or map, which is owned as a whole, or the mere
    /// presence of one that isn't.
    Around,
}

/// A manager that owns a field, something around it or something in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The entry of managedFields.
    pub entry: ManagedFieldsEntry,
    /// The owned part of the field.
    pub share: Share,
    /// The path that the manager owns: the field's, the closest around it, or the first inside it.
    pub path: FieldPath,
}

/// Returns the owners of the field at `path`. If the field has no owners, as with a struct, the function returns the owners of fields
/// inside it. If these are missing too, it returns the owners of the closest owned field around it.
///
/// A field has several owners if all of them applied the same value.
///
/// # Errors
/// If the object's managedFields can't be read.
pub fn of_field(object: &Value, path: &FieldPath) -> Result<Vec<Owner>, ManagedFieldsError> {
    let entries = Managed::of_object(object)?.entries();
    let mut owners: Vec<Owner> = entries
        .into_iter()
        .filter_map(|entry| find_owner(entry, &path.0))
        .collect();
    if let Some(best) = owners.iter().map(|owner| owner.share).min() {
        owners.retain(|owner| owner.share == best);
        if best == Share::Around {
            let longest = owners.iter().map(|owner| owner.path.0.len()).max();
            owners.retain(|owner| longest == Some(owner.path.0.len()));
        }
    }
    Ok(owners)
}

fn find_owner(entry: ManagedFieldsEntry, path: &[PathElement]) -> Option<Owner> {
    if entry.fields.contains(path) {
        return Some(Owner {
            entry,
            share: Share::Field,
            path: FieldPath(path.to_vec()),
        });
    }
    if let Some(inside) = first_field_below(&entry.fields, path) {
        return Some(Owner {
            entry,
            share: Share::Inside,
            path: inside,
        });
    }
    let around = (1..path.len())
        .rev()
        .filter_map(|length| path.get(..length))
        .find(|prefix| entry.fields.contains(prefix))?;
    let path = FieldPath(around.to_vec());
    Some(Owner {
        entry,
        share: Share::Around,
        path,
    })
}

fn first_field_below(set: &FieldSet, path: &[PathElement]) -> Option<FieldPath> {
    let mut below = set;
    for element in path {
        below = &below.node(element)?.children;
    }
    let mut found = path.to_vec();
    loop {
        let node = below.nodes().first()?;
        found.push(node.element.clone());
        if node.member {
            return Some(FieldPath(found));
        }
        below = &node.children;
    }
}

/// Returns the value at a path, if the object has it. A list-map item matches if the key fields that it contains match. A key field that it
/// lacks may have the schema's default. Of several matching items, the one with the most key fields is chosen.
#[must_use]
pub fn value_at<'v>(object: &'v Value, path: &FieldPath) -> Option<&'v Value> {
    path.0.iter().try_fold(object, |value, element| match element {
        PathElement::Field(name) => value.get(&**name),
        PathElement::Index(index) => value.get(usize::try_from(*index).ok()?),
        PathElement::Value(wanted) => value
            .as_array()?
            .iter()
            .find(|item| crate::json::equal_values(item, wanted)),
        PathElement::Key(key) => {
            let items = value.as_array()?;
            let given = |item: &Value| key.iter().filter(|field| item.get(&*field.name).is_some()).count();
            let fits = |item: &&Value| {
                key.iter().all(|field| {
                    item.get(&*field.name)
                        .is_none_or(|value| crate::json::equal_values(value, &field.value))
                })
            };
            items
                .iter()
                .filter(fits)
                .filter(|item| given(item) > 0)
                .max_by_key(|item| given(item))
        }
    })
}
